"""Lists the adapters of this machine, and picks the one that a user names."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DeviceError, UsageError
from .native import check_process, ensure_instance, shorten_parsing

HINT = "install a Vulkan driver (a software one will do): sudo apt-get install -y mesa-vulkan-drivers"
THREADS = "LP_NUM_THREADS"  # environment variable: threads of Mesa's software driver
VECTORS = "LP_NATIVE_VECTOR_WIDTH"  # environment variable: bits of the vectors that this driver computes with
SMALL = 16 << 20  # bytes of a model file below which one thread is faster
_BACKENDS = {"vulkan": "Vulkan", "metal": "Metal", "d3d12": "D3D12", "gl": "OpenGL", "opengl": "OpenGL"}
_KINDS = {"DiscreteGPU": 0, "IntegratedGPU": 1, "Unknown": 2, "CPU": 3}
# What Mesa needs for vectors of 512 bits, and an extension that processors lack whose clock these vectors slow down.
_WIDE_VECTORS = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vbmi2"}


def has_wide_vectors(cpuinfo: str = "/proc/cpuinfo") -> bool:
    """Whether this processor computes with vectors of 512 bits at its usual clock."""
    with contextlib.suppress(OSError), open(cpuinfo, encoding="utf-8", errors="replace") as lines:
        return next(({*line.split()} >= _WIDE_VECTORS for line in lines if line.startswith("flags")), False)
    return False


if not os.environ.get("XDG_RUNTIME_DIR"):
    os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()  # without it Mesa prints a warning on stderr
if has_wide_vectors():
    os.environ.setdefault(VECTORS, "512")  # Mesa takes 256 by default, because of older processors


def load_wgpu() -> Any:
    """The wgpu package; a DeviceError if it can't be imported."""
    try:
        import wgpu
        import wgpu.backends.wgpu_native.extras
    except (ImportError, OSError, RuntimeError) as err:
        raise DeviceError(f"wgpu can't be loaded: {err}", hint="pip install --force-reinstall wgpu") from err
    shorten_parsing()
    return wgpu


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter; `index` is its place in the list, which has the best adapter first."""

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

    @property
    def key(self) -> tuple[str, str, str]:
        """What is the same for this adapter in every list."""
        return self.name, self.backend, self.driver


def list_adapters(*, gl: bool = True) -> list[Adapter]:
    """All adapters, best first: GPUs before software adapters, and every backend before OpenGL.

    Without `gl`, OpenGL is not looked for on Linux, where it is a separate driver that takes 11 MB.
    """
    check_process()
    wgpu = load_wgpu()
    if sys.platform == "linux":
        ensure_instance(gl=gl)
    try:
        handles = wgpu.gpu.enumerate_adapters_sync()
    except RuntimeError:
        handles = []
    rows: list[Any] = []
    for handle in handles:
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
        matching = [a for a in adapters if a.index == int(word)]
    elif word in _BACKENDS:
        matching = [a for a in adapters if a.backend == _BACKENDS[word]]
    elif word in ("cpu", "gpu"):
        matching = [a for a in adapters if a.software == (word == "cpu")]
    else:
        matching = [a for a in adapters if word in a.name.lower()]
    if not word or not matching:
        names = "; ".join(f"{a.index}: {a.name} ({a.backend})" for a in adapters)
        raise UsageError(f"--device {choice!r} names no adapter", hint=f"there is {names}")
    return matching[0]


def suit(nbytes: int) -> None:
    """Let a driver that is not loaded yet run a small model in one thread, unless the user chose a number.

    Mesa's software driver wakes all its threads for every dispatch, which takes longer than a small dispatch itself.
    """
    if nbytes < SMALL:
        os.environ.setdefault(THREADS, "0")
