"""The adapters that there are, and which one a user means."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DeviceError, UsageError
from .native import ensure_instance

if not os.environ.get("XDG_RUNTIME_DIR"):
    os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()  # Mesa warns on stderr without one

HINT = "install a Vulkan driver (a software one will do): sudo apt-get install -y mesa-vulkan-drivers"
THREADS, _SMALL = "LP_NUM_THREADS", 16 << 20  # a variable of Mesa's; bytes of a model
_BACKENDS = {"vulkan": "Vulkan", "metal": "Metal", "d3d12": "D3D12", "gl": "OpenGL", "opengl": "OpenGL"}
_KINDS = {"DiscreteGPU": 0, "IntegratedGPU": 1, "Unknown": 2, "CPU": 3}


def load_wgpu() -> Any:
    """The package, or one clear error."""
    try:
        import wgpu
        import wgpu.backends.wgpu_native.extras
    except (ImportError, OSError, RuntimeError) as err:
        raise DeviceError(f"wgpu can't be loaded: {err}", hint="pip install --force-reinstall wgpu") from err
    return wgpu


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter as wgpu lists it, best first."""

    index: int
    name: str
    backend: str
    kind: str  # DiscreteGPU, IntegratedGPU, CPU, Unknown
    driver: str
    features: tuple[str, ...]
    handle: Any

    @property
    def software(self) -> bool:
        return self.kind == "CPU"


def list_adapters(*, gl: bool = True) -> list[Adapter]:
    """Every adapter, best first: a real GPU before a software one, any backend before OpenGL.

    On Linux OpenGL is a driver of its own, 11 MB in memory: without `gl` it is not looked for.
    """
    wgpu = load_wgpu()
    if sys.platform == "linux":
        ensure_instance(gl=gl)
    try:
        found = wgpu.gpu.enumerate_adapters_sync()
    except RuntimeError:
        found = []
    rows: list[Any] = []
    for handle in found:
        info = handle.info
        backend, kind = str(info["backend_type"]), str(info["adapter_type"])
        rank = (backend == "OpenGL", _KINDS.get(kind, 2))
        rows.append((rank, len(rows), info, backend, kind, handle))
    rows.sort(key=lambda row: row[:2])
    return [
        Adapter(
            i,
            str(info["device"]),
            backend,
            kind,
            str(info["description"] or info["vendor"]),
            tuple(sorted(handle.features)),
            handle,
        )
        for i, (_, _, info, backend, kind, handle) in enumerate(rows)
    ]


def pick(choice: str | None = None, adapters: Sequence[Adapter] | None = None) -> Adapter:
    """The adapter that `--device` names: an index, a backend, `cpu`, `gpu`, or part of a name."""
    if adapters is None:
        with contextlib.suppress(DeviceError, UsageError):
            return pick(choice, list_adapters(gl=False))
        adapters = list_adapters()
    if not adapters:
        raise DeviceError("no GPU adapter was found", hint=HINT)
    if choice is None:
        return adapters[0]
    word = choice.strip().lower()
    if word.isdigit():
        found = [a for a in adapters if a.index == int(word)]
    elif word in _BACKENDS:
        found = [a for a in adapters if a.backend == _BACKENDS[word]]
    elif word in ("cpu", "gpu"):
        found = [a for a in adapters if a.software == (word == "cpu")]
    else:
        found = [a for a in adapters if word in a.name.lower()]
    if not word or not found:
        names = "; ".join(f"{a.index}: {a.name} ({a.backend})" for a in adapters)
        raise UsageError(f"--device {choice!r} names no adapter", hint=f"there is {names}")
    return found[0]


def suit(nbytes: int) -> None:
    """Have a driver that is yet to be loaded run small models in one thread, unless the user has said otherwise.

    Mesa wakes all threads of its software driver for every dispatch: 20 to 40 µs, in which one alone is often done.
    """
    if nbytes < _SMALL:
        os.environ.setdefault(THREADS, "0")
