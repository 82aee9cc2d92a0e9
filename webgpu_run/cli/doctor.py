"""`--doctor`: what this machine offers, what it lacks, and how to install what is missing."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from ..debug.inspect import inspect
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
    """The result of one check. `fatal` is the error to raise if nothing can run without it; `fix` says what to do."""

    subject: str
    is_good: bool
    detail: str
    fatal: type[RunError] | None = None
    fix: str | None = None


def examine(choice: str | None, program: Program | None) -> Iterator[Finding]:
    """Check the machine, and if there is a program, that the machine can run it."""
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
    profile = tune.remembered(adapter)
    yield Finding("kernels", True, f"{profile} (measured)" if profile else "measured at the first run, then remembered")
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
        largest = max((d.largest for d in method.delegates if d.largest), key=lambda t: t.nbytes, default=None)
        if largest:
            fits = largest.nbytes <= binding
            detail = f"{largest.nbytes:,} of {binding:,} bytes: {largest.role} {largest.dtype} {list(largest.dims)}"
            yield Finding(f"{method.name} largest binding", fits, detail, None if fits else ShapeError)


def show_doctor(choice: str | None, program: Program | None) -> int:
    """Print the findings, then raise the first fatal one."""
    from rich.table import Table
    from rich.text import Text

    from ..console.terminal import stdout_console

    findings = list(examine(choice, program))
    grid = Table.grid(padding=(0, 2))
    for finding in findings:
        style = "green" if finding.is_good else "red" if finding.fatal else "yellow"
        mark = "✓" if finding.is_good else "✗" if finding.fatal else "–"
        detail = Text(finding.detail, "default" if finding.is_good else style)
        grid.add_row(Text(mark, style), Text(finding.subject, "bold"), detail)
        if finding.fix:
            grid.add_row("", "", Text(f"→ {finding.fix}", "bold"))
    stdout_console().print(grid)
    for finding in findings:
        if finding.fatal:
            raise finding.fatal(f"{finding.subject}: {finding.detail}", hint=finding.fix)
    return 0
