"""`--inspect`: what is in a file, as tables or as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..console.terminal import stdout_console
from ..debug.inspect import (
    PROMISED_BINDING,
    DelegateReport,
    MethodReport,
    OpCount,
    Port,
    Report,
    TensorUse,
    as_json,
    bindings,
    merged,
)
from ..debug.inspect import inspect as make_report
from ..formats.pte import DelegateCall, Program
from ..formats.vkgraph import OperatorCall, SymInt, Value, ValueList, VkGraph, VkTensor
from ..ops.limits import Limits

BAR = 36
RULE = 120  # columns of the title's rule, at most
_MEMORY = (("weights", "blue"), ("caches", "magenta"), ("activations", "cyan"))
_UNITS = ("B", "kB", "MB", "GB", "TB")


def show(program: Program, view: str, limits: Limits | None = None) -> None:
    """Print one view of a program on stdout."""
    report = make_report(program, limits)
    if view == "json":
        print(json.dumps(as_json(report), indent=1))
        return
    console = stdout_console()
    console.print(_title(report), width=min(console.width, RULE))
    for part in _VIEWS[view](program, report):
        console.print(part)


def size(nbytes: int) -> str:
    """A byte count with 3 significant digits and a decimal unit."""
    value, unit = float(nbytes), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{nbytes} B" if unit == 0 else f"{value:.3g} {_UNITS[unit]}"


def shape(port: Port) -> str:
    """The dims of an input or output; ≤ marks those that may be smaller at run time."""
    if port.kind != "tensor":
        return port.kind
    return "[" + ", ".join(f"≤{dim}" if port.dynamic and dim > 1 else str(dim) for dim in port.dims) + "]"


def _title(report: Report) -> RenderableType:
    name = Text(os.path.basename(report.path) or "program", "bold")
    name.append(f"  {size(report.file_size)}", "default not bold")
    return Rule(name, align="left", style="dim")


def _summary(program: Program, report: Report) -> Iterable[RenderableType]:
    if report.metadata:
        grid = Table.grid(padding=(0, 2))
        for key, value in report.metadata.items():
            grid.add_row(Text(key, "dim"), Text(json.dumps(value)))
        yield _section("metadata", grid)
    for method in report.methods:
        yield _section(f"method {method.name}", _method(method))
        if len(method.delegates) > 1:
            yield _section(f"{method.name} · {len(method.delegates)} delegates", _delegates(method.delegates))
        else:
            for delegate in method.delegates:
                yield _section(f"{method.name} · delegate · {delegate.backend}", _delegate(delegate))
    yield _section("file", _sizes(report))


def _section(name: str, body: RenderableType) -> RenderableType:
    return Group(Text(name, "bold cyan"), Padding(body, (0, 0, 1, 2), expand=False))


def _method(method: MethodReport) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    for label, ports in (("in", method.inputs), ("out", method.outputs)):
        for i, port in enumerate(ports):
            dynamic = Text(" dynamic", "yellow") if port.dynamic else Text("")
            grid.add_row(Text(f"{label} {i}", "dim"), Text(port.dtype), Text(shape(port)) + dynamic)
    steps = Text()
    for i, (name, supported, count) in enumerate(_runs(method)):
        steps.append(" → " if i else "", "dim")
        steps.append(name, "green" if supported else "red")
        steps.append(f" ×{count}" if count > 1 else "", "dim")
    lines: list[RenderableType] = [grid, Text("runs ", "dim") + (steps or Text("nothing"))]
    if method.problem:
        lines.append(Text(f"cannot run: {method.problem}", "red"))
    lines += [Text(f"note: {note}", "yellow") for note in method.notes]
    return Group(*lines)


def _runs(method: MethodReport) -> Iterable[tuple[str, bool, int]]:
    """Name, support and length of each run of equal steps."""
    rows: list[tuple[str, bool, int]] = []
    for step in method.steps:
        if rows and rows[-1][:2] == (step.name, step.supported):
            rows[-1] = (*rows[-1][:2], rows[-1][2] + 1)
        else:
            rows.append((step.name, step.supported, 1))
    return rows


def _delegate(delegate: DelegateReport) -> RenderableType:
    if not delegate.ops:
        return Text("not a Vulkan delegate: it cannot be run here", "red")
    calls = sum(op.count for op in delegate.ops)
    missing = [op for op in delegate.ops if not op.supported]
    facts = Text(f"{calls} ops of {len(delegate.ops)} kinds, {delegate.values} values, {delegate.symints} symbolic")
    for key, value in delegate.options.items():
        facts.append(f", {key} {value}", "dim")
    facts.append("  all supported" if not missing else f"  {len(missing)} not supported", "red" if missing else "green")
    return Group(facts, _counts(delegate.ops), Text(""), _memory(delegate))


def _delegates(delegates: tuple[DelegateReport, ...]) -> RenderableType:
    table = _table("#", "backend", "ops", "not supported", "GPU memory", "largest binding", right=(0, 2, 3, 4, 5))
    for i, delegate in enumerate(delegates):
        missing = sum(op.count for op in delegate.ops if not op.supported)
        table.add_row(
            str(i),
            Text(delegate.backend, "default" if delegate.ops else "red"),
            str(sum(op.count for op in delegate.ops)),
            Text(str(missing), "red") if missing else "",
            size(delegate.memory.total) if delegate.memory else "",
            size(delegate.largest.nbytes) if delegate.largest else "",
        )
    return Group(table, _delegate(merged(delegates)))


def _counts(ops: tuple[OpCount, ...]) -> RenderableType:
    most = max(op.count for op in ops)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="left")
    grid.add_column(justify="right")
    for op in ops:
        mark = Text("✓", "green") if op.supported else Text("✗", "red")
        bar = Text("█" * max(1, round(op.count / most * BAR * 2 / 3)), "blue" if op.supported else "red")
        grid.add_row(mark + Text(f" {op.name}", "default"), Text(str(op.count)), bar)
    return grid


def _memory(delegate: DelegateReport) -> RenderableType:
    memory, largest = delegate.memory, delegate.largest
    grid = Table.grid(padding=(0, 2))
    if memory:
        bar, legend = Text(), Text()
        for name, style in _MEMORY:
            nbytes = getattr(memory, name)
            bar.append("█" * round(nbytes / max(1, memory.total) * BAR), style)
            if nbytes:
                legend.append("■ ", style).append(f"{name} {size(nbytes)}  ")
        grid.add_row(Text("GPU memory", "dim"), Text(size(memory.total), "bold"), bar)
        grid.add_row("", "", legend)
    if largest:
        full = min(BAR, max(1, round(largest.nbytes / PROMISED_BINDING * BAR)))
        fits = largest.nbytes <= PROMISED_BINDING
        gauge = Text("█" * full, "green" if fits else "red").append("░" * (BAR - full), "dim")
        grid.add_row(Text("largest binding", "dim"), Text(size(largest.nbytes), "bold"), gauge)
        share = f"{largest.nbytes / PROMISED_BINDING:.1%} of the 128 MiB that WebGPU promises"
        grid.add_row("", "", Text(f"{share}: {_named(largest)}", "dim" if fits else "red"))
    return grid


def _named(tensor: TensorUse) -> str:
    return f"value {tensor.value}, {tensor.role} {tensor.dtype} {list(tensor.dims)}"


def _sizes(report: Report) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(justify="right")
    for what, nbytes in report.sizes.items():
        share = nbytes / max(1, report.file_size)
        bar = Text("█" * round(share * BAR), "blue")
        grid.add_row(Text(what, "dim"), Text(size(nbytes)), bar + Text(f" {share:.1%}", "dim"))
    return grid


def _size_view(program: Program, report: Report) -> Iterable[RenderableType]:
    yield _section("file", _sizes(report))
    table = _table("offset", "bytes", "what", "name", right=(0, 1))
    for part in report.parts:
        table.add_row(f"{part.offset:#x}", f"{part.nbytes:,}", part.what, Text(part.name))
    yield table


def _ops(program: Program, report: Report) -> Iterable[RenderableType]:
    for title, graph, delegate in _graphs(program, report):
        yield _section(title, _counts(delegate.ops) if delegate.ops else Text("no ops"))
        known = {op.name: op.supported for op in delegate.ops}
        table = _table("#", "op", "takes", "gives", right=(0,))
        for i, call in enumerate(graph.chain):
            *args, out = (_brief(graph, arg) for arg in call.args)
            style = "default" if known[call.name] else "red"
            table.add_row(str(i), Text(call.name, style), Text(" ".join(args)), Text(out))
        yield table


def _tensors(program: Program, report: Report) -> Iterable[RenderableType]:
    for title, graph, _ in _graphs(program, report):
        table = _table("value", "role", "dtype", "dims", "bytes", "memory", "storage", right=(0, 4))
        for tensor in bindings(graph):
            value = graph.values[tensor.value]
            assert isinstance(value, VkTensor)
            place = f"constant {value.constant_id}" if value.constant_id >= 0 else f"object {value.mem_obj_id}"
            where = f"{value.storage} {value.layout}".replace("DEFAULT_STORAGE DEFAULT_LAYOUT", "default")
            row = (str(tensor.value), tensor.role, tensor.dtype, str(list(tensor.dims)), f"{tensor.nbytes:,}")
            table.add_row(*row, place, where)
        yield _section(title, table)


def _values(program: Program, report: Report) -> Iterable[RenderableType]:
    for title, graph, _ in _graphs(program, report):
        writers = {item: call for call in graph.chain for item in _written(graph, call)}
        table = _table("value", "kind", "content", "written by", right=(0,))
        for i, value in enumerate(graph.values):
            kind = "Null" if value is None else type(value).__name__
            by = Text(writers[i].name) if i in writers else Text("")
            table.add_row(str(i), kind, Text(_content(value)), by)
        yield _section(title, table)


def _graphs(program: Program, report: Report) -> Iterable[tuple[str, VkGraph, DelegateReport]]:
    """Title, graph and report of every Vulkan delegate."""
    for method, method_report in zip(program.entry_points, report.methods, strict=True):
        used = {step.delegate for step in method.instructions if isinstance(step, DelegateCall)}
        for i, delegate in enumerate(method.delegates):
            if delegate.graph is not None:
                unused = "" if i in used else " (never called)"
                yield f"{method.name} · delegate #{i}{unused}", delegate.graph, method_report.delegates[i]


def _written(graph: VkGraph, call: OperatorCall) -> tuple[int, ...]:
    """Ids of the values that a call writes."""
    out = graph.values[call.args[-1]]
    return out.items if isinstance(out, ValueList) else call.args[-1:]


def _brief(graph: VkGraph, i: int) -> str:
    """An argument of an op: a tensor with its shape, a number, or a list of these."""
    value = graph.values[i]
    if isinstance(value, ValueList):
        return "(" + " ".join(_brief(graph, item) for item in value.items) + ")"
    if isinstance(value, VkTensor):
        return f"%{i}:{_content(value)}"
    return f"%{i}" if isinstance(value, SymInt) else _content(value)


def _content(value: Value) -> str:
    if isinstance(value, VkTensor):
        mark = f" constant {value.constant_id}" if value.constant_id >= 0 else ""
        return f"{value.dtype}[{','.join(map(str, value.dims))}]{mark}"
    if isinstance(value, SymInt):
        return "set at run time"
    if value is None:
        return "None"
    if isinstance(value, bool | int | float | str):
        return repr(value)
    return str(list(value.items))


def _table(*columns: str, right: tuple[int, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i in right else "left", overflow="fold")
    return table


_VIEWS: dict[str, Callable[[Program, Report], Iterable[RenderableType]]] = {
    "summary": _summary,
    "ops": _ops,
    "tensors": _tensors,
    "values": _values,
    "size": _size_view,
}
