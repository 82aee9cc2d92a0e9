"""Opening models: the only place where a file becomes a program, and a program a model."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..assets import bundled_model
from ..errors import UsageError
from ..formats import pte
from ..gpu.device import Device
from ..gpu.residency import ProgressCallback
from .model import Model


def open_program(path: str | os.PathLike[str] | None, data: Sequence[str | os.PathLike[str]] = ()) -> pte.Program:
    """The program of this file, or of the bundled one."""
    path = path or bundled_model()
    if path is None:
        raise UsageError("no MODEL.pte given", hint="webgpu-run MODEL.pte --inspect")
    return pte.load(path, data or None)


def load(
    path: str | os.PathLike[str],
    *,
    data: Sequence[str | os.PathLike[str]] | None = None,
    device: Device | str | None = None,
    method: str | None = None,
    fuse: bool = True,
    tune: bool = True,
    kv: str = "f32",
    progress: ProgressCallback | None = None,
) -> Model:
    """Open a .pte (with these .ptd files, or those beside it) and make its method ready to run.

    With `tune` a device that is opened here gets the kernels that were measured to be fastest on it. With `kv` f16 the
    KV cache takes half the memory.
    """
    return Model(pte.load(path, data), device, method=method, fuse=fuse, tune=tune, kv=kv, progress=progress)
