"""`--inspect`: what is in a file, as tables or as JSON."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..console.columns import fitting
from ..console.narrow import Parts, TextBar
from ..console.terminal import stdout_console
from ..debug.facts import ModelFacts
from ..debug.fit import Fit
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
from ..gpu.known import known_adapters
from ..ops.limits import Limits

MOST_RUNS = 16  # steps of a method that are listed in order; of longer methods, each kind is counted
BAR = 36
SHOWN_LIMITS = 5
RULE = 120  # columns of the title's rule, at most
_MEMORY = (("weights", "blue"), ("caches", "magenta"), ("activations", "cyan"))
_UNITS = ("B", "kB", "MB", "GB", "TB")


def show(program: Program, view: str, limits: Limits | None = None) -> None:
    """Print one view of a program on stdout."""
    report = make_report(program, limits, known_adapters() if view in ("summary", "json") else ())
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


def _three(x: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


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
        if not method.problem:
            yield _section(f"{method.name} · will it fit?", _fit(method.fit))
    yield _section("file", _sizes(report))


def _section(name: str, body: RenderableType) -> RenderableType:
    return Group(Text(name, "bold cyan"), Padding(body, (0, 0, 1, 2), expand=False))


def _method(method: MethodReport) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    for label, ports in (("in", method.inputs), ("out", method.outputs)):
        for i, port in enumerate(ports):
            dynamic = Text(" dynamic", "yellow") if port.dynamic else Text("")
            grid.add_row(Text(f"{label} {i}", "dim"), Text(port.dtype), Text(shape(port)) + dynamic)
    steps, rows = Text(), list(_runs(method))
    if len(rows) > MOST_RUNS:
        rows, between = _counted(method), ", "
    else:
        between = " → "
    for i, (name, supported, count) in enumerate(rows):
        steps.append(between if i else "", "dim")
        steps.append(name, "green" if supported else "red")
        steps.append(f" ×{count}" if count > 1 else "", "dim")
    model = Table.grid(padding=(0, 2))
    for label, words in _facts(method.facts):
        model.add_row(Text(label, "dim"), Text(words))
    lines: list[RenderableType] = [grid, model, Text("runs ", "dim") + (steps or Text("nothing"))]
    if method.problem:
        lines.append(Text(f"cannot run: {method.problem}", "red"))
    lines += [Text(f"note: {note}", "yellow") for note in method.notes]
    return Group(*lines)


def _facts(facts: ModelFacts) -> Iterable[tuple[str, str]]:
    if facts.parameters:
        yield "parameters", f"{facts.parameters:,}"
    if facts.weights:
        yield "weights", ", ".join(f"{kind} ×{count}" for kind, count in facts.weights.items())
    if facts.attention:
        a = facts.attention
        pairs = [("layers", a.layers), ("heads", a.heads), ("kv heads", a.kv_heads), ("head dim", a.head_dim)]
        pairs += [("context", a.context)]
        yield "attention", ", ".join(f"{name} {value:,}" for name, value in pairs if value is not None)
    if facts.width and facts.vocabulary:
        yield "embedding", f"width {facts.width:,}, vocabulary {facts.vocabulary:,}"


def _runs(method: MethodReport) -> Iterable[tuple[str, bool, int]]:
    """Name, support and length of each run of equal steps."""
    rows: list[tuple[str, bool, int]] = []
    for step in method.steps:
        if rows and rows[-1][:2] == (step.name, step.supported):
            rows[-1] = (*rows[-1][:2], rows[-1][2] + 1)
        else:
            rows.append((step.name, step.supported, 1))
    return rows


def _counted(method: MethodReport) -> list[tuple[str, bool, int]]:
    """All delegates as one kind of step, then each CPU kernel with its number of calls, most frequent first."""
    kinds = Counter((step.name.split(" #")[0], step.supported) for step in method.steps)
    return [(name, supported, count) for (name, supported), count in kinds.most_common()]


def _delegate(delegate: DelegateReport) -> RenderableType:
    if not delegate.ops:
        return Text("not a Vulkan delegate: it cannot be run here", "red")
    calls = sum(op.count for op in delegate.ops)
    missing = [op for op in delegate.ops if not op.supported]
    counts = f"{calls} ops of {len(delegate.ops)} kinds, {delegate.values} values, {delegate.symints} symbolic"
    facts = [
        *map(Text, counts.split(", ")),
        *(Text(f"{key} {value}", "dim") for key, value in delegate.options.items()),
    ]
    facts.append(Text(f"{len(missing)} not supported", "red") if missing else Text("all supported", "green"))
    return Group(Parts(facts, ", "), _counts(delegate.ops), Text(""), _memory(delegate))


def _delegates(delegates: tuple[DelegateReport, ...]) -> RenderableType:
    rows: list[list[str | Text]] = [
        [
            str(i),
            Text(delegate.backend, "default" if delegate.ops else "red"),
            str(sum(op.count for op in delegate.ops)),
            Text(str(sum(op.count for op in delegate.ops if not op.supported) or ""), "red"),
            size(delegate.memory.total) if delegate.memory else "",
            size(delegate.largest.nbytes) if delegate.largest else "",
        ]
        for i, delegate in enumerate(delegates)
    ]
    heads = ["#", "backend", "ops", "not supported", "GPU memory", "largest binding"]
    numbers = [head for head in heads if head != "backend"]
    table = _Fitted(heads, rows, numbers, ("largest binding", "backend", "GPU memory"))
    return Group(table, _delegate(merged(delegates)))


def _counts(ops: tuple[OpCount, ...]) -> RenderableType:
    most = max(op.count for op in ops)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    for op in ops:
        mark = Text("✓", "green") if op.supported else Text("✗", "red")
        length = BAR * 2 // 3
        bar = TextBar([(max(1 / length, op.count / most), "█", "blue" if op.supported else "red")], length)
        grid.add_row(mark + Text(f" {op.name}", "default"), Text(str(op.count)), bar)
    return grid


def _memory(delegate: DelegateReport) -> RenderableType:
    memory, largest = delegate.memory, delegate.largest
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    if memory:
        used = [(name, getattr(memory, name), style) for name, style in _MEMORY if getattr(memory, name)]
        bar = TextBar([(nbytes / memory.total, "█", style) for _, nbytes, style in used], BAR)
        legend = [Text.assemble(("■ ", style), f"{name} {size(nbytes)}") for name, nbytes, style in used]
        grid.add_row(Text("GPU memory", "dim"), Text(size(memory.total), "bold"), bar)
        grid.add_row("", "", Parts(legend, "  "))
    if largest:
        full = min(1.0, max(1 / BAR, largest.nbytes / PROMISED_BINDING))
        fits = largest.nbytes <= PROMISED_BINDING
        gauge = TextBar([(full, "█", "green" if fits else "red"), (1 - full, "░", "dim")], BAR)
        grid.add_row(Text("largest binding", "dim"), Text(size(largest.nbytes), "bold"), gauge)
        share = f"{largest.nbytes / PROMISED_BINDING:.1%} of the 128 MiB that WebGPU promises"
        grid.add_row("", "", Text(f"{share}: {_named(largest)}", "dim" if fits else "red"))
    return grid


def _fit(fits: tuple[Fit, ...]) -> RenderableType:
    """Memory, exceeded limits and the highest possible speed on every adapter that was measured."""
    if not fits:
        return Text("webgpu-bench roofline measures this machine's adapters; then their limits are checked here", "dim")
    lines: list[RenderableType] = []
    for fit in fits:
        name = Text(f"{fit.adapter.partition(' (')[0]} ({fit.backend})", "bold")
        if fit.exceeded:
            lines.append(name + Text(" does not fit", "red"))
            lines += [Text(f"  {problem}", "red") for problem in fit.exceeded[:SHOWN_LIMITS]]
            if len(fit.exceeded) > SHOWN_LIMITS:
                lines.append(Text(f"  and {len(fit.exceeded) - SHOWN_LIMITS} more", "red"))
            continue
        have = f" of {size(fit.available)}" if fit.available is not None else ""
        parts = [name + Text(" fits", "green"), Text(f"{size(fit.nbytes)}{have}")]
        for speed in fit.speeds:
            kind = "decode" if speed.rows == 1 else f"prefill {speed.rows}" if speed.rows else "a call"
            rate = f"{_three(speed.per_second)} tokens/s" if speed.rows else f"{_three(speed.ms)} ms"
            parts.append(Text(f"{kind} {rate} at best"))
        lines.append(Parts(parts, " · "))
    return Group(*lines)


def _named(tensor: TensorUse) -> str:
    return f"value {tensor.value}, {tensor.role} {tensor.dtype} {list(tensor.dims)}"


def _sizes(report: Report) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    for what, nbytes in report.sizes.items():
        share = nbytes / max(1, report.file_size)
        bar = TextBar([(share, "█", "blue")], BAR)
        grid.add_row(Text(what, "dim"), Text(size(nbytes)), Text(f"{share:.1%}", "dim"), bar)
    return grid


def _size_view(program: Program, report: Report) -> Iterable[RenderableType]:
    yield _section("file", _sizes(report))
    rows = [[f"{part.offset:#x}", f"{part.nbytes:,}", part.what, part.name] for part in report.parts]
    yield _Fitted(["offset", "bytes", "what", "name"], rows, ("offset", "bytes"), ())


def _ops(program: Program, report: Report) -> Iterable[RenderableType]:
    for title, graph, delegate in _graphs(program, report):
        yield _section(title, _counts(delegate.ops) if delegate.ops else Text("no ops"))
        known = {op.name: op.supported for op in delegate.ops}
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(justify="right", no_wrap=True, style="dim")
        table.add_column()
        for i, call in enumerate(graph.chain):
            *args, out = (_brief(graph, arg) for arg in call.args)
            name = Text(call.name, "default" if known[call.name] else "red")
            table.add_row(
                str(i), name.append(" ").append(" ".join(args), "dim").append(" → ", "dim").append(out, "cyan")
            )
        yield table


def _tensors(program: Program, report: Report) -> Iterable[RenderableType]:
    for title, graph, _ in _graphs(program, report):
        rows = []
        for tensor in bindings(graph):
            value = graph.values[tensor.value]
            assert isinstance(value, VkTensor)
            place = f"constant {value.constant_id}" if value.constant_id >= 0 else f"object {value.mem_obj_id}"
            where = f"{value.storage} {value.layout}".replace("DEFAULT_STORAGE DEFAULT_LAYOUT", "default")
            row = [str(tensor.value), tensor.role, tensor.dtype, str(list(tensor.dims)), f"{tensor.nbytes:,}"]
            rows.append([*row, place, where])
        heads = ["value", "role", "dtype", "dims", "bytes", "memory", "storage"]
        yield _section(title, _Fitted(heads, rows, ("value", "bytes"), ("storage", "memory", "role")))


def _values(program: Program, report: Report) -> Iterable[RenderableType]:
    for title, graph, _ in _graphs(program, report):
        writers = {item: call for call in graph.chain for item in _written(graph, call)}
        rows = [
            [
                str(i),
                "Null" if value is None else type(value).__name__,
                _content(value),
                writers[i].name if i in writers else "",
            ]
            for i, value in enumerate(graph.values)
        ]
        heads = ["value", "kind", "content", "written by"]
        yield _section(title, _Fitted(heads, rows, ("value",), ("written by", "kind")))


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


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A table that leaves out columns on a narrow terminal. Its last column is wrapped between words."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str | Text]]
    right: Sequence[str]  # columns of numbers
    order: Sequence[str]  # columns to leave out, first to last

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept = fitting(self.heads, [[str(cell) for cell in row] for row in self.rows], options.max_width, self.order)
        table = Table(box=None, header_style="dim", pad_edge=False)
        for i in kept:
            justify: Literal["left", "right"] = "right" if self.heads[i] in self.right else "left"
            table.add_column(self.heads[i], justify=justify, no_wrap=i != kept[-1], overflow="ellipsis")
        for row in self.rows:
            table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in (row[i] for i in kept)))
        yield table


_VIEWS: dict[str, Callable[[Program, Report], Iterable[RenderableType]]] = {
    "summary": _summary,
    "ops": _ops,
    "tensors": _tensors,
    "values": _values,
    "size": _size_view,
}
