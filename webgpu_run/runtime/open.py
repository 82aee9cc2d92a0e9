"""Opening models: the only module where a file becomes a program, and a program becomes a model on a device."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from ..assets import bundled_model
from ..errors import UsageError
from ..formats import pte
from ..gpu import adapters
from ..gpu.device import Device
from ..gpu.residency import ProgressCallback
from ..gpu.tune import open_tuned
from ..graph.boundary import graph_errors
from ..graph.folding import fold_weights
from .model import Model


def open_program(path: str | os.PathLike[str] | None, data: Sequence[str | os.PathLike[str]] = ()) -> pte.Program:
    """The program in this file, or in the bundled one."""
    path = path or bundled_model()
    if path is None:
        raise UsageError("no MODEL.pte given", hint="webgpu-run MODEL.pte --inspect")
    program = pte.load(path, data or None)
    with graph_errors("the graph"):
        return replace(program, methods=tuple(_folded(method) for method in program.methods))


def _folded(method: pte.Method) -> pte.Method:
    delegates = tuple(fold_weights(delegate) for delegate in method.delegates)
    return method if delegates == method.delegates else replace(method, delegates=delegates)


def open_device(choice: str | None = None, *, tune: bool = True, only_model: pte.Program | None = None) -> Device:
    """The device that `choice` names, or the best one, with the kernels that are fastest on it.

    A command that runs one model names it as `only_model`: a driver that is not loaded yet is set up for its size,
    through the environment of this process, which a library must not touch.
    """
    if only_model is not None:
        adapters.suit(only_model.file_size)
    return open_tuned(choice, tune=tune)


def open_model(
    program: pte.Program,
    device: Device | str | None = None,
    *,
    method: str | None = None,
    fuse: bool = True,
    tune: bool = True,
    kv: str = "f32",
    all_rows: bool = False,
    verify: int = 0,
    progress: ProgressCallback | None = None,
    only_model: bool = False,
    is_checked: bool = False,
) -> Model:
    """Make a method of the program ready to run; `only_model` is as `open_device` takes it.

    With `all_rows`, a language model returns the logits of every token, not only of the last one.
    With `verify`, `Model.verify` takes up to so many tokens.
    `is_checked` says that `check_method` has accepted the method, so that its graphs are not planned once more.
    """
    if only_model:
        adapters.suit(program.file_size)
    return Model(
        program,
        device,
        method=method,
        fuse=fuse,
        tune=tune,
        kv=kv,
        all_rows=all_rows,
        verify=verify,
        progress=progress,
        is_checked=is_checked,
    )


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

    With `tune`, a device that is opened here gets the kernels that were measured to be fastest on it. With `kv` f16,
    the KV cache takes half the memory.
    """
    return open_model(pte.load(path, data), device, method=method, fuse=fuse, tune=tune, kv=kv, progress=progress)
