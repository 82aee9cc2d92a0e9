"""The resize engine: one forward walk from the inputs that changed to the plans that depend on them.

`Engine.resize` computes and checks all new plans first and commits them in one step, so a refused shape leaves the
graph as it was. Building is the same walk with every node dirty and every tensor at its largest dims.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..errors import RunError, ShapeError, UnsupportedError
from ..ops.limits import Limits
from ..ops.plan import Plan
from ..ops.spec import Args
from ..shapes import Array, Dims
from .boundary import PROVOKED, graph_error
from .graph import Graph, Node, Sym
from .largest import largest_syms

MAX_DISPATCHES = 100_000  # in all plans of a graph


MEMO = 1024  # remembered plans, of about 8 kB each; more lengths than these are planned again


@dataclass(frozen=True, slots=True)
class Delta:
    """What one resize changed: new plans by node, live dims by tensor, SymInts by value id."""

    plans: Mapping[int, Plan]
    dims: Mapping[int, Dims]
    syms: Mapping[int, int]


class Engine:
    """Live shapes and current plans of a graph."""

    def __init__(self, graph: Graph, limits: Limits) -> None:
        self.graph, self.limits = graph, limits
        self.live: dict[int, Dims] = {i: t.max_dims for i, t in graph.tensors.items()}
        self.syms: dict[int, int] = {}
        self.plans: list[Plan] = []
        self.planned = 0  # how many plans resizes have replaced; stays 0 for a static graph
        self._memo: dict[Any, Plan] = {}
        self._bounds: dict[tuple[int, int], str] = {}
        self._bounds_unchecked = True  # until the first call compares the positions with their bounds
        self._symint_nodes = {n.outs[0]: n.index for n in graph.nodes if n.op.out_kind == "symint"}
        self._inputs = frozenset(graph.input_ids)
        self._data_nodes = [n.index for n in graph.nodes if n.op.reads_data and self._source(n) in self._inputs]
        self.only_slots = not any(graph.readers.get(graph.nodes[i].outs[0]) for i in self._data_nodes)
        self._declared = {v: t.max_dims for v, t in graph.tensors.items()}
        self._largest = largest_syms(graph)
        self.build()

    def build(self) -> None:
        """Plan every node at its largest shapes, as if no call had been made."""
        graph = self.graph
        self.live, self.plans, self._bounds_unchecked = dict(self._declared), [], True
        self.syms = {v: self._largest.get(v, 0) for v in graph.input_ids if v not in graph.tensors}
        first = self._walk({}, {}, dict.fromkeys(range(len(graph.nodes))))
        self.plans = [first.plans[i] for i in range(len(graph.nodes))]
        self.live.update(first.dims)
        self.syms.update(first.syms)
        self._bounds = self._all_bounds({})

    def resize(self, inputs: Sequence[Array], prepare: Callable[[Delta], None] | None = None) -> Delta:
        """Make the plans fit these inputs. `prepare` sees the change before it is committed and may refuse it."""
        graph = self.graph
        if len(inputs) != len(graph.input_ids):
            raise ShapeError(f"{len(inputs)} inputs given, the graph takes {len(graph.input_ids)}")
        dims: dict[int, Dims] = {}
        syms: dict[int, int] = {}
        dirty: dict[int, None] = {}
        data: dict[int, Array] = {}
        for i, (v, array) in enumerate(zip(graph.input_ids, inputs, strict=True)):
            new = array.shape
            if v in self.syms:
                if array.size != 1 or array.dtype.kind not in "iub":
                    raise ShapeError(f"input {i} is {array.dtype} {list(new)}, the graph takes one integer")
                if self.syms[v] != int(array.item()):
                    syms[v] = int(array.item())
                    dirty.update(dict.fromkeys(graph.readers.get(v, ())))
                continue
            data[v] = array
            if new != self.live[v]:
                self._check_live(v, new, f"input {i}")
                dims[v] = new
                dirty.update(dict.fromkeys(graph.readers.get(v, ())))
        if not dims and not syms and self.only_slots:
            delta = self._move(data)
        else:
            dirty.update(dict.fromkeys(self._data_nodes))
            delta = self._walk(dims, data, dirty, syms)
        self._check_bounds(delta)
        if prepare:
            prepare(delta)
        self._bounds_unchecked = False
        self.live.update(delta.dims)
        self.syms.update(delta.syms)
        for v in delta.syms.keys() & self._symint_nodes.keys():
            self.plans[self._symint_nodes[v]] = Plan(sym=delta.syms[v])
        for i, plan in delta.plans.items():
            self.plans[i] = plan
        if delta.plans:
            self._bounds = self._all_bounds({})
        self.planned += len(delta.plans)
        return delta

    def _move(self, data: Mapping[int, Array]) -> Delta:
        """What `_walk` would return if no shape changed and only kernels read the SymInts from data: a decode step."""
        syms = {}
        for index in self._data_nodes:
            node = self.graph.nodes[index]
            value = self.plan(node, {}, {}, data).sym
            if value is not None and value != self.syms[node.outs[0]]:
                syms[node.outs[0]] = value
        return Delta({}, {}, syms)

    def moved(self, inputs: Sequence[Array]) -> list[int]:
        """The slot values for inputs that have the live shapes. Valid only if `only_slots`."""
        return self.slot_values(self._move(dict(zip(self.graph.input_ids, inputs, strict=True))).syms)

    def args(
        self,
        node: Node,
        dims: Mapping[int, Dims] = MappingProxyType({}),
        syms: Mapping[int, int] = MappingProxyType({}),
    ) -> Args:
        """The node's arguments at the live dims and SymInts, those in `dims` and `syms` taking precedence."""
        live = {name: dims[v] if v in dims else self.live[v] for name, v in node.tensors.items()}
        attrs: dict[str, Any] = {n: syms[v] if v in syms else self.syms[v] for n, v in node.syms.items()}
        for name in node.symbolic:
            attrs[name] = tuple(
                (syms[x.value] if x.value in syms else self.syms[x.value]) if isinstance(x, Sym) else x
                for x in node.attrs[name]
            )
        return node.args(live, {**node.attrs, **attrs} if attrs else node.attrs)

    def plan(self, node: Node, dims: Mapping[int, Dims], syms: Mapping[int, int], data: Mapping[int, Array]) -> Plan:
        """The node's plan for these dims and SymInts; plans are memoized."""
        args = self.args(node, dims, syms)
        if node.op.reads_data:
            return self._plan(node, args, data)
        numbers = tuple([args.attrs[name] for name in (*node.syms, *node.symbolic)])
        key = (node.key, *args.dims.values(), numbers)
        plan = self._memo.get(key)
        if plan is None:
            if len(self._memo) >= MEMO:
                self._memo.clear()
            plan = self._memo[key] = self._plan(node, args, data)
        return plan

    def _plan(self, node: Node, args: Args, data: Mapping[int, Array]) -> Plan:
        if node.op.reads_data:
            values = self._data(node, args[node.op.reads_data], data)
            if values is None:  # at build, when there is no call yet
                return Plan(sym=self._largest.get(node.outs[0], 0))
            args.attrs = {**args.attrs, "data": values}
        if node.op.alias:
            args.attrs = {**args.attrs, "aliased": self.graph.tensors[node.outs[0]].root != node.outs[0]}
        try:
            plan = node.op.plan(args, self.limits)
        except RunError as err:
            raise type(err)(f"{node.op.name} (node {node.index}): {err}", hint=err.hint) from err
        except (IndexError, ValueError) as err:
            raise ShapeError(f"{node.op.name} (node {node.index}): {err}") from err
        except PROVOKED as err:
            raise graph_error(f"{node.op.name} (node {node.index})", err) from err
        limit = self.limits.max_workgroups
        for step in plan.steps:
            if max(step.grid) > limit:
                what = f"{step.kernel} on {' x '.join(map(str, step.grid))} workgroups"
                raise ShapeError(f"{node.op.name} (node {node.index}): {what} is over the adapter's limit of {limit}")
        return plan

    def _source(self, node: Node) -> int:
        """The tensor whose data the node's plan reads on the host; it must be an input or a constant."""
        assert node.op.reads_data
        v = self.graph.tensors[node.tensors[node.op.reads_data]].root
        if v not in self._inputs and not self.graph.is_constant(v):
            raise UnsupportedError(f"{node.op.name} (node {node.index}) reads a tensor that is computed on the device")
        return v

    def _data(self, node: Node, dims: Dims, data: Mapping[int, Array]) -> Array | None:
        v = self._source(node)
        if self.graph.is_constant(v):
            return self.graph.constant(v).reshape(dims)
        return data[v].reshape(dims) if v in data else None

    def _walk(
        self,
        dims: dict[int, Dims],
        data: Mapping[int, Array],
        dirty: Mapping[int, None],
        syms: Mapping[int, int] = MappingProxyType({}),
    ) -> Delta:
        """Plan every dirty node once, in execution order, and the nodes that read what changed."""
        graph, dims, syms = self.graph, dict(dims), dict(syms)
        heap = sorted(dirty)
        queued = set(heap)
        plans: dict[int, Plan] = {}
        dispatches = 0
        while heap:
            index = heapq.heappop(heap)
            node = graph.nodes[index]
            plan = self.plan(node, dims, syms, data)
            dispatches += len(plan.steps)
            if dispatches > MAX_DISPATCHES:
                raise ShapeError(f"{node.op.name} (node {index}): the graph needs over {MAX_DISPATCHES:,} dispatches")
            if not self.plans or (plan.sym is None and plan is not self.plans[index]):
                plans[index] = plan  # the plan of a SymInt node is its value, which goes into `syms`
            changed: list[int] = []
            if plan.sym is not None:
                out = node.outs[0]
                if self.syms.get(out) != plan.sym:
                    syms[out] = plan.sym
                    changed.append(out)
            for out, new in zip(node.outs, plan.outs, strict=False):
                if new != self.live[out]:
                    self._check_live(out, new, f"{node.op.name} (node {index}) output")
                    dims[out] = new
                    changed.append(out)
            for v in changed:
                for reader in graph.readers.get(v, ()):
                    if reader not in queued:
                        queued.add(reader)
                        heapq.heappush(heap, reader)
        return Delta(plans, dims, syms)

    def _check_live(self, v: int, new: Dims, what: str) -> None:
        top = self._declared[v]
        if len(new) != len(top):
            raise ShapeError(
                f"{what} has rank {len(new)} {list(new)}, the graph was built for rank {len(top)} {list(top)}"
            )
        for axis, (n, m) in enumerate(zip(new, top, strict=True)):
            if n > m:
                raise ShapeError(f"{what}: dim {axis} is {n}, the largest it was built for is {m} (of {list(top)})")

    def _all_bounds(self, plans: Mapping[int, Plan]) -> dict[tuple[int, int], str]:
        """(slot, highest value) -> what overflows above it."""
        bounds: dict[tuple[int, int], str] = {}
        for i, current in enumerate(self.plans):
            plan = plans.get(i, current)
            for bound in plan.bounds:
                bounds[(self.graph.nodes[i].slots[bound.arg], bound.high)] = bound.what
        return bounds

    def _check_bounds(self, delta: Delta) -> None:
        if not delta.plans and not delta.syms and not self._bounds_unchecked:
            return
        bounds = self._all_bounds(delta.plans) if delta.plans else self._bounds
        values = self.slot_values(delta.syms)
        for (slot, high), what in bounds.items():
            if not 0 <= values[slot] <= high:
                raise ShapeError(f"{what}: position {values[slot]} is outside 0..{high}")

    def slot_values(self, syms: Mapping[int, int] | None = None) -> list[int]:
        """The values that kernels read from the SymInt slots."""
        values = [0] * self.graph.slot_count
        for v, slot in self.graph.slots.items():
            values[slot] = (syms or {}).get(v, self.syms.get(v, 0))
        for number, slot in self.graph.fixed_slots.items():
            values[slot] = number
        return values
