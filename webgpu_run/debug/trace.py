"""`--trace-resize`: for each call, which inputs changed and which nodes were planned again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from ..ops.plan import Plan
from ..runtime.calls import ModelCall
from ..runtime.model import Model
from ..runtime.runner import Runner
from ..shapes import Dims
from .layers import layers_of
from .notebook import as_html, as_text

if TYPE_CHECKING:
    from rich.tree import Tree

MANY = 3  # more equal calls than this in a row become one line


@dataclass(frozen=True, slots=True)
class NodeTrace:
    """One node that was planned again, or whose symbolic integer changed."""

    node: int
    op: str
    max_dims: Dims
    live_dims: Dims
    route: str
    was: str  # the previous route, if it was different
    grids: tuple[tuple[int, int, int], ...]
    uniform_bytes: int
    sym: int | None
    layer: int

    def facts(self) -> tuple[Any, ...]:
        """What must be equal for two nodes of different layers to be shown as one."""
        return self.op, self.max_dims, self.live_dims, self.route, self.was, self.grids, self.uniform_bytes, self.sym


@dataclass(frozen=True, slots=True)
class InputTrace:
    """One input of the call."""

    index: int
    dtype: str
    max_dims: Dims
    live_dims: Dims
    was: Dims
    value: int | None  # of a position


@dataclass(frozen=True, slots=True)
class CallTrace:
    """One call."""

    call: int
    phase: str
    tokens: int
    position: int
    inputs: tuple[InputTrace, ...]
    nodes: tuple[NodeTrace, ...]
    total: int
    dispatches: int
    arena_bytes: int

    @property
    def planned(self) -> int:
        return sum(node.sym is None for node in self.nodes)

    @property
    def moved(self) -> int:
        """SymInts that have a new value."""
        return len(self.nodes) - self.planned

    @property
    def skipped(self) -> int:
        """Nodes whose inputs did not change."""
        return self.total - len(self.nodes)


class Tracer:
    """Tells what the last call changed, from the deltas that it left in the runners."""

    def __init__(self, model: Model, shapes: Sequence[Dims] = ()) -> None:
        """`shapes` are those of the inputs in the call before, if the model has been run."""
        self.model = model
        layers = model.metadata.get("get_n_layers")
        self._layers = [layers_of(r.graph, layers if isinstance(layers, int) else None) for r in model.runners]
        self._plans: list[list[Plan]] = [list(r.engine.plans) for r in model.runners]
        self._inputs: list[Dims] = list(shapes) or [t.dims for t in model.inputs]
        self._makers = [{n.outs[0]: n.index for n in r.graph.nodes if n.op.out_kind == "symint"} for r in model.runners]

    def trace(self, call: ModelCall) -> CallTrace:
        """What this call changed. Must be called after every call, because it compares with the one before."""
        nodes = [
            self._node(r, i, k)
            for k, r in enumerate(self.model.runners)
            for i in sorted({*r.delta.plans, *(self._makers[k][v] for v in r.delta.syms if v in self._makers[k])})
        ]
        self._plans = [list(r.engine.plans) for r in self.model.runners]
        inputs = []
        is_text = call.phase in ("prefill", "decode")
        for i, (spec, dims) in enumerate(zip(self.model.inputs, call.shapes, strict=False)):
            value = call.position if is_text and i == 1 else None
            inputs.append(InputTrace(i, spec.dtype, spec.dims, dims, self._inputs[i], value))
        self._inputs = [t.live_dims for t in inputs]
        return CallTrace(
            call.index + 1,
            call.phase,
            call.tokens,
            call.position,
            tuple(inputs),
            tuple(nodes),
            sum(len(r.graph.nodes) for r in self.model.runners),
            call.stats.dispatches,
            call.stats.arena_bytes,
        )

    def _node(self, runner: Runner, index: int, k: int) -> NodeTrace:
        node, plan = runner.graph.nodes[index], runner.engine.plans[index]
        before = self._plans[k][index]
        first = runner.graph.tensors.get(node.outs[0])
        return NodeTrace(
            index,
            node.op.short,
            first.max_dims if first else (),
            plan.outs[0] if plan.outs else (),
            plan.route,
            before.route if before.route != plan.route else "",
            tuple(step.grid for step in plan.steps),
            sum(len(step.uniform()) for step in plan.steps),
            plan.sym,
            self._layers[k][index],
        )


def as_json(trace: CallTrace) -> str:
    """One line for programs."""
    return json.dumps(as_dict(trace))


def as_dict(trace: CallTrace) -> dict[str, Any]:
    """The call as plain data."""
    return {
        "call": trace.call,
        "phase": trace.phase,
        "tokens": trace.tokens,
        "position": trace.position,
        "inputs": [
            {
                "index": i.index,
                "dtype": i.dtype,
                "max": i.max_dims,
                "was": i.was,
                "live": i.live_dims,
                "value": i.value,
            }
            for i in trace.inputs
        ],
        "planned": trace.planned,
        "moved": trace.moved,
        "skipped": trace.skipped,
        "dispatches": trace.dispatches,
        "uniform_bytes_written": trace.arena_bytes,
        "nodes": [
            {
                "node": n.node,
                "op": n.op,
                "layer": n.layer if n.layer >= 0 else None,
                "max": n.max_dims,
                "live": n.live_dims,
                "value": n.sym,
                "route": n.route,
                "was": n.was or None,
                "grid": n.grids,
                "uniform_bytes": n.uniform_bytes,
            }
            for n in trace.nodes
        ],
    }


def head(trace: CallTrace) -> str:
    """The call in one line."""
    moved = f", {_numbers([trace])} changed" if trace.moved else ""
    tokens = f" {trace.tokens} tok @ {trace.position}" if trace.phase in ("prefill", "decode") else ""
    return (
        f"call {trace.call} · {trace.phase}{tokens} · "
        f"{trace.planned} of {trace.total} nodes planned{moved}, {trace.skipped} skipped · "
        f"{trace.dispatches} dispatches · {trace.arena_bytes:,} B of uniforms"
    )


def as_tree(trace: CallTrace) -> Tree:
    """The call for people: inputs, then nodes; equal layers are folded into one."""
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree(Text(head(trace), "bold"), guide_style="dim")
    for i in trace.inputs:
        value = f" = {i.value}" if i.value is not None else ""
        change = f"max {_dims(i.max_dims)} → live {_dims(i.live_dims)}"
        was = f"  (was {_dims(i.was)})" if i.was != i.live_dims else "  (same shape)"
        tree.add(Text(f"input {i.index}  {i.dtype}  {change}{value}{was}", "cyan"))
    for number in (n for n in trace.nodes if n.sym is not None):
        tree.add(_line(number))
    for nodes, layers in _folded([n for n in trace.nodes if n.sym is None]):
        if nodes[0].layer < 0:
            tree.add(_line(nodes[0]))
            continue
        more = f"layers {layers[0]}–{layers[-1]}, each" if len(layers) > 1 else f"layer {layers[0]}"
        branch = tree.add(Text(f"{more}: {len(nodes)} nodes", "bold"))
        for node in nodes:
            branch.add(_line(node))
    return tree


def _line(n: NodeTrace) -> Any:
    from rich.text import Text

    text = Text(f"{n.op}#{n.node}  ", no_wrap=False)
    if n.sym is not None:
        return text.append(f"= {n.sym}")
    text.append(_dims(n.live_dims) if n.max_dims == n.live_dims else f"{_dims(n.max_dims)} → {_dims(n.live_dims)}")
    text.append(f"  {n.was} → " if n.was else "  ", "yellow")
    text.append(n.route, "yellow" if n.was else "green")
    if n.grids:
        text.append(f"  grid {' + '.join(_grid(g) for g in n.grids)}  {n.uniform_bytes} B", "dim")
    return text


def _folded(nodes: Sequence[NodeTrace]) -> Iterable[tuple[list[NodeTrace], list[int]]]:
    """Groups to show: a single node outside of layers, or the nodes of a layer with all equal layers after it."""
    groups: list[tuple[list[NodeTrace], list[int]]] = []
    at = 0
    while at < len(nodes):
        end = at + 1
        while nodes[at].layer >= 0 and end < len(nodes) and nodes[end].layer == nodes[at].layer:
            end += 1
        block = list(nodes[at:end])
        last = groups[-1] if groups else None
        if (
            last
            and block[0].layer >= 0
            and block[0].layer == last[1][-1] + 1
            and [n.facts() for n in block] == [n.facts() for n in last[0]]
        ):
            last[1].append(block[0].layer)
        else:
            groups.append((block, [block[0].layer]))
        at = end
    return groups


def _dims(dims: Dims) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"


def _grid(grid: tuple[int, int, int]) -> str:
    return "×".join(str(g) for g in grid if g != 1) or "1"


class Trace(Sequence[CallTrace]):
    """The calls of a reply. A Python prompt shows them as `--trace-resize` does, a notebook with colours."""

    def __init__(self, calls: Sequence[CallTrace]) -> None:
        self._calls = list(calls)

    @overload
    def __getitem__(self, index: int) -> CallTrace: ...
    @overload
    def __getitem__(self, index: slice) -> Trace: ...
    def __getitem__(self, index: int | slice) -> CallTrace | Trace:
        return Trace(self._calls[index]) if isinstance(index, slice) else self._calls[index]

    def __len__(self) -> int:
        return len(self._calls)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain data, as the lines of `--trace-resize=json`."""
        return [as_dict(call) for call in self._calls]

    def _shown(self) -> list[Any]:
        lines = Lines()
        items = [item for call in self._calls for item in lines.add(call)] + lines.finish()
        return [item if isinstance(item, str) else as_tree(item) for item in items]

    def __repr__(self) -> str:
        return as_text(self._shown())

    def _repr_html_(self) -> str:
        return as_html(self._shown())


class Lines:
    """Calls as lines or trees; many equal calls in a row become one line."""

    def __init__(self) -> None:
        self._alike: list[CallTrace] = []

    def add(self, trace: CallTrace) -> list[CallTrace | str]:
        """Add a call; what can be shown now."""
        if not trace.planned and (not self._alike or _shape(self._alike[-1]) == _shape(trace)):
            self._alike.append(trace)
            return []
        out = self.finish()
        if not trace.planned:
            self._alike.append(trace)
            return out
        return [*out, trace]

    def finish(self) -> list[CallTrace | str]:
        alike, self._alike = self._alike, []
        if len(alike) <= MANY:
            return [head(t) for t in alike]
        first, last = alike[0], alike[-1]
        moved = f"{_numbers(alike)} changed, " if any(t.moved for t in alike) else ""
        planned = f"0 of {first.total} nodes planned, {moved}{_span(t.skipped for t in alike)} skipped"
        return [
            f"calls {first.call}–{last.call} · {first.phase} {first.tokens} tok @ {first.position}–{last.position} · "
            f"each: {planned} · {first.dispatches} dispatches · {_span(t.arena_bytes for t in alike)} B of uniforms"
        ]


def _shape(trace: CallTrace) -> tuple[Any, ...]:
    return trace.phase, trace.tokens, trace.dispatches, trace.total


def _numbers(traces: Sequence[CallTrace]) -> str:
    most = max(t.moved for t in traces)
    return f"{_span(t.moved for t in traces)} number{'s' * (most > 1)}"


def _span(numbers: Iterable[int]) -> str:
    values = sorted(set(numbers))
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,}–{values[-1]:,}"


def summary(traces: Sequence[CallTrace]) -> Mapping[str, int]:
    """Totals of a run, for `--stats json`."""
    return {
        "calls": len(traces),
        "planned": sum(t.planned for t in traces),
        "moved": sum(t.moved for t in traces),
        "skipped": sum(t.skipped for t in traces),
        "uniform_bytes": sum(t.arena_bytes for t in traces),
    }
