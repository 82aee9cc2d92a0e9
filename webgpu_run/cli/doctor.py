"""`--doctor`: what this machine has to run on, what it lacks, and the command that gets it."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from ..debug.inspect import TensorUse, inspect
from ..errors import DeviceError, RunError, ShapeError, UnsupportedError
from ..formats.pte import Program
from ..gpu import tune
from ..gpu.adapters import HINT, Adapter, list_adapters, pick

_FEATURES = {
    "timestamp-query": "times measured on the GPU, for --timings",
    "shader-f16": "half-precision arithmetic in kernels",
    "subgroup": "sums across a subgroup, instead of through workgroup memory",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `fatal` is the error where nothing runs without it, `fix` what to type."""

    what: str
    good: bool
    detail: str
    fatal: type[RunError] | None = None
    fix: str | None = None


def examine(choice: str | None, program: Program | None) -> Iterator[Finding]:
    """Looks at the machine, and at what a program needs of it."""
    yield Finding("python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    try:
        adapters = list_adapters()
        yield Finding("wgpu", True, metadata.version("wgpu"))
    except RunError as error:
        yield Finding("wgpu", False, str(error), DeviceError, error.hint)
        return
    if not adapters:
        yield Finding("adapter", False, "none was found", DeviceError, HINT)
        return
    adapter = pick(choice, adapters)
    kind = "software: it works, slowly" if adapter.software else adapter.kind
    yield Finding("adapter", True, f"{adapter.name} · {adapter.backend} · {kind} · {adapter.driver}")
    known = tune.remembered(adapter)
    yield Finding("kernels", True, f"{known} (measured)" if known else "measured at the first run, then remembered")
    for feature, meaning in _FEATURES.items():
        yield Finding(feature, feature in adapter.features, meaning)
    yield from _limits(adapter, program)


def _limits(adapter: Adapter, program: Program | None) -> Iterator[Finding]:
    limits = adapter.handle.limits
    binding = int(limits["max-storage-buffer-binding-size"])
    yield Finding("largest binding", True, f"{binding:,} bytes")
    yield Finding("largest buffer", True, f"{int(limits['max-buffer-size']):,} bytes")
    yield Finding("workgroup memory", True, f"{int(limits['max-compute-workgroup-storage-size']):,} bytes")
    if program is None:
        return
    for method in inspect(program).methods:
        if method.problem:
            yield Finding(f"{method.name} ops", False, method.problem, UnsupportedError)
        total = sum(delegate.memory.total for delegate in method.delegates if delegate.memory)
        yield Finding(f"{method.name} memory", True, f"{total:,} bytes on the GPU")
        largest = max((d.largest for d in method.delegates if d.largest), key=_size, default=None)
        if largest:
            fits = largest.nbytes <= binding
            detail = f"{largest.nbytes:,} of {binding:,} bytes: {largest.role} {largest.dtype} {list(largest.dims)}"
            yield Finding(f"{method.name} largest binding", fits, detail, None if fits else ShapeError)


def _size(tensor: TensorUse) -> int:
    return tensor.nbytes


def show_doctor(choice: str | None, program: Program | None) -> int:
    """Prints the findings; a fatal one is also the error the command ends with."""
    from rich.table import Table
    from rich.text import Text

    from ..console.terminal import stdout_console

    findings = list(examine(choice, program))
    grid = Table.grid(padding=(0, 2))
    for found in findings:
        style = "green" if found.good else "red" if found.fatal else "yellow"
        mark = "✓" if found.good else "✗" if found.fatal else "–"
        detail = Text(found.detail, "default" if found.good else style)
        grid.add_row(Text(mark, style), Text(found.what, "bold"), detail)
        if found.fix:
            grid.add_row("", "", Text(f"→ {found.fix}", "bold"))
    stdout_console().print(grid)
    for found in findings:
        if found.fatal:
            raise found.fatal(f"{found.what}: {found.detail}", hint=found.fix)
    return 0
