"""What every measurement must record: the machine, the driver, the versions and the model."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from ..formats.pte import Program
from ..gpu.adapters import THREADS
from ..gpu.device import Device
from ..graph.graph import Graph
from ..ops.spec import load_all
from ..shapes import prod
from ..version import __version__

_PACKAGES = ("wgpu", "numpy")


def machine() -> dict[str, Any]:
    """The host: its processor, memory, operating system and load."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_bytes": _memory(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def is_busy() -> bool:
    """Whether the load is more than twice the number of processors."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > 2 * (os.cpu_count() or 1)


def versions() -> dict[str, str]:
    """Our version, and those of Python and the packages that matter for speed."""
    return {
        "webgpu-run": __version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in _PACKAGES},
    }


def adapter(device: Device) -> dict[str, Any]:
    """The adapter, its driver, and its profile."""
    a = device.adapter
    return {
        "name": a.name,
        "backend": a.backend,
        "kind": a.kind,
        "driver": a.driver,
        "features": list(device.features),
        "timestamps": device.timestamps,
        "profile": device.limits.profile.name,
        "tuned": device.tuned,
        "threads": os.environ.get(THREADS),  # of a software driver, if it was set
    }


def model(program: Program) -> dict[str, Any]:
    """The file: its name, size, hash, and the number of parameters in its graphs."""
    path = Path(program.path)
    return {
        "name": _name(path),
        "file": path.name,
        "bytes": program.file_size,
        "sha256": sha256(path),
        "params": parameters(program),
    }


def _name(path: Path) -> str:
    """The file's name; for a file called model.pte, the heading of its model card."""
    card = path.parent / "MODEL_CARD.md"
    if path.stem == "model" and card.is_file():
        words = card.read_text(encoding="utf-8").lstrip("# ").split()
        return words[0] if words else path.stem
    return path.stem


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parameters(program: Program) -> int:
    """The number of trained parameters. Tied tables count once; scales, rotary tables and caches do not count."""
    load_all()
    counts: dict[tuple[int, str | int], int] = {}
    for d, delegate in enumerate(program.method().delegates):
        if delegate.graph is None:
            continue
        graph = Graph(delegate.graph, delegate.constant)
        for node in graph.nodes:
            for name, v in node.tensors.items():
                tensor = graph.tensors[graph.tensors[v].root]
                param = node.op.param(name)
                if tensor.constant < 0 or tensor.mutable or param.role in ("scales", "rotary", "sums"):
                    continue
                key = (d, delegate.graph.constants[tensor.constant].key or tensor.constant)
                counts[key] = max(counts.get(key, 0), param.per_byte * prod(tensor.max_dims))
    return sum(counts.values())


def peak_rss() -> int | None:
    """Peak memory of this process in bytes; None if the system does not report it."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
