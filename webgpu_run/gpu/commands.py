"""The commands of the current plans: pipelines, bind groups, and which dispatches a call records."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import RunError, UnsupportedError
from ..graph.graph import Node
from ..graph.planner import MEMO, Delta, Engine
from ..ops import wgsl
from ..ops.plan import STAGED_ROWS, Plan, Reach, Step
from ..shapes import Dims, prod
from . import native
from .arena import Arena
from .device import PER_TURN, Device, Image
from .residency import Residency
from .turns import AREA, SLOTS, WORDS_AT, Recorded, Turn, areas, words_of


@dataclass(slots=True)
class Dispatch:
    """One dispatch of a node, ready to be recorded."""

    handles: native.RecordedDispatch
    node: int
    step: Step
    params_at: int  # offset of its uniforms in the arena
    objects: tuple[Any, Any]  # keeps the wgpu objects behind the handles alive


def idle(dispatch: native.RecordedDispatch) -> native.RecordedDispatch:
    """The same dispatch with no workgroups."""
    return *dispatch[:2], 0, 0, 0, (), dispatch[6]


class CommandStream:
    """The dispatches of every node's current plan. New plans are first prepared, then committed."""

    def __init__(self, engine: Engine, device: Device, resident: Residency, arena: Arena) -> None:
        self.engine, self.graph, self.device = engine, engine.graph, device
        self.limits, self.resident, self.arena = device.limits, resident, arena
        self.words = words_of(self.graph)
        self.of_node: list[list[Dispatch]] = [[] for _ in self.graph.nodes]
        self._slots: list[int] = []
        self._bind_groups: dict[Any, Any] = {}
        self._current: list[Dispatch] = []
        self._recorded = Recorded(device.native, [])
        self._is_stale = True
        self._skipped: frozenset[int] = frozenset()
        self._wakes: set[tuple[int, int]] = set()  # (slot, value from which on it is not idle) of idle dispatches
        self._pending: dict[int, list[Dispatch]] = {}
        self._remembered: dict[tuple[int, int, int | None], tuple[Plan, list[Dispatch]]] = {}
        self._layers: dict[int, int] = {}  # node -> bound layers of its images
        self._pending_layers: dict[int, int] = {}
        self._reaches: dict[tuple[int, int], list[int]] = {}  # (slot, first position beyond the bound layers) -> nodes

    def skip(self, nodes: frozenset[int]) -> None:
        """Omit these nodes from the command stream. No output that is read back may depend on them."""
        if nodes != self._skipped:
            self._skipped, self._is_stale = nodes, True

    def current(self) -> list[Dispatch]:
        """The dispatches of the current plans, in execution order."""
        if self._is_stale:
            current = [d for i, dispatches in enumerate(self.of_node) if i not in self._skipped for d in dispatches]
            self._wakes = {wake for d in current if (wake := self._wake(d))}
            self._current = [d for d in current if not (wake := self._wake(d)) or self._slots[wake[0]] >= wake[1]]
            self._recorded = Recorded(self.device.native, [d.handles for d in self._current])
            self._is_stale = False
        return self._current

    def recorded(self) -> Recorded:
        """The same, recorded for each turn."""
        self.current()
        return self._recorded

    def _wake(self, dispatch: Dispatch) -> tuple[int, int] | None:
        idle = dispatch.step.idle
        return (self.graph.nodes[dispatch.node].slots[idle.arg], idle.below) if idle else None

    # -- from plans to commands ----------------------------------------------------------------------------------

    def prepare(self, delta: Delta) -> None:
        """Make pipelines and bind groups for new plans, and for nodes whose position is now beyond their bound layers.

        If this fails, nothing has been committed.
        """
        slots, plans = self.engine.slot_values(delta.syms), dict(delta.plans)
        for (slot, end), nodes in self._reaches.items():
            if slots[slot] >= end:
                plans |= {i: self.engine.plans[i] for i in nodes if i not in plans}
        self._pending, self._pending_layers = {}, {}
        if not plans:
            return
        live = ChainMap(dict(delta.dims), self.engine.live)
        self._pending_layers = {
            i: self._layers_to_bind(i, plan.reach, slots) for i, plan in plans.items() if plan.reach
        }
        self._pending = {i: self._dispatches(i, plan, live) for i, plan in plans.items()}
        if self.limits.software:
            self._compile([d for dispatches in self._pending.values() for d in dispatches])

    def commit(self) -> None:
        """Make what `prepare` prepared current, and put the new uniforms and slot values into the arena."""
        if self._pending_layers:
            self._layers |= self._pending_layers
            self._reaches = {}
            for i, layers in self._layers.items():
                if reach := self.engine.plans[i].reach:
                    key = (self.graph.nodes[i].slots[reach.arg], layers * reach.unit - reach.rows + 1)
                    self._reaches.setdefault(key, []).append(i)
            self._pending_layers = {}
        for i, dispatches in self._pending.items():
            self.of_node[i] = dispatches
            for dispatch in dispatches:
                self.arena.put(dispatch.params_at, dispatch.step.uniform())
        if self._pending:
            self._is_stale = True
        self._pending = {}
        slots = self.engine.slot_values()
        if slots != self._slots:
            if any((slots[i] < below) != (self._slots[i] < below) for i, below in self._wakes if self._slots):
                self._is_stale = True
            self._slots = slots
        for at, data in areas([Turn(slots)], None):
            self.arena.put(at, data)

    def forget(self) -> None:
        """Let the next `prepare` and `commit`, of all plans, assume nothing about the ones before."""
        self._is_stale = True
        self._layers, self._reaches, self._slots = {}, {}, []

    def _compile(self, dispatches: Sequence[Dispatch]) -> None:
        """Run each new kernel with zero workgroups: a software driver compiles at the first run, not at creation."""
        fresh = {id(d.objects[0]): idle(d.handles) for d in dispatches}
        fresh = {key: d for key, d in fresh.items() if key not in self.device.compiled}
        if fresh:
            self.device.call(((), fresh.values(), ()))
            self.device.wait()
            self.device.compiled |= fresh.keys()

    def _layers_to_bind(self, index: int, reach: Reach, slots: Sequence[int]) -> int:
        """Layers to bind: a power of two, so that a growing context rarely needs new bind groups. Never shrinks."""
        last = (slots[self.graph.nodes[index].slots[reach.arg]] + reach.rows - 1) // reach.unit
        return max(self._layers.get(index, 1), 1 << last.bit_length())

    def _dispatches(self, index: int, plan: Plan, live: Mapping[int, Dims]) -> list[Dispatch]:
        """The dispatches of a plan. Those of recent plans are remembered, because calls return to the same lengths."""
        key = (index, id(plan), self._pending_layers.get(index))
        known, dispatches = self._remembered.get(key, (None, []))
        if known is not plan:
            if len(self._remembered) >= MEMO:
                self._remembered.clear()
            dispatches = self._make_dispatches(self.graph.nodes[index], plan, live)
            self._remembered[key] = plan, dispatches
        return dispatches

    def _make_dispatches(self, node: Node, plan: Plan, live: Mapping[int, Dims]) -> list[Dispatch]:
        steps, dispatches = [step for step in plan.steps if 0 not in step.grid], []
        for step, at in zip(steps, self.arena.places(node, steps), strict=True):
            kernel = wgsl.load(step.kernel)
            pipeline = self.device.pipeline(kernel, step.consts)
            bindings = self._bindings(node, at, step, kernel, live)
            key = (step.kernel, step.consts, tuple((id(resource), *part) for resource, *part in bindings))
            group = self._bind_groups.get(key)
            if group is None:
                group = self._bind_groups[key] = self.device.bind_group(kernel, step.consts, bindings)
            offsets = self.device.native.offsets(sum(b.name in PER_TURN for b in kernel.bindings(step.consts)), 0)
            handles = (native.handle(pipeline), native.handle(group), *step.grid, self._staging(node, step), offsets)
            dispatches.append(Dispatch(handles, node.index, step, at, (pipeline, group)))
        return dispatches

    def _staging(self, node: Node, step: Step) -> native.Staging:
        if step.stage is None:
            return ()
        buffer, image = (self.resident.find(node, name) for name in (step.stage.source, step.stage.image))
        return self.device.native.staging(buffer, image.texture, step.stage.width, step.stage.rows, STAGED_ROWS)

    def _bindings(
        self, node: Node, params_at: int, step: Step, kernel: wgsl.Kernel, live: Mapping[int, Dims]
    ) -> list[tuple[Any, ...]]:
        """What each binding refers to, in order: (buffer, offset, nbytes), (image, layers) or (texture view,)."""
        windows, rename = dict(step.windows), dict(step.rename)
        out: list[tuple[Any, ...]] = []
        for binding in kernel.bindings(step.consts):
            name = rename.get(binding.name, binding.name)
            if name == "params":
                size = kernel.params.itemsize if kernel.params is not None else 16
                out.append((self.arena.buffer, params_at, size))
                continue
            if name == "slots":
                out.append((self.arena.buffer, 0, 4 * SLOTS))
                continue
            if name == "ids" and node.attrs.get("feeds"):  # the tokens of the next turn
                tokens = self.graph.input_ids[0]
                out.append((self.resident.source(tokens), 0, 4 * prod(self.graph.tensors[tokens].max_dims)))
                continue
            resource = self.resident.find(node, name)
            if isinstance(resource, Image):
                layers = self.resident.layers(node, name, live) or self._pending_layers[node.index]
                out.append((resource, layers))
                continue
            if binding.kind == "texture" or binding.kind.startswith("image"):
                out.append((resource,))
                continue
            if self.words is not None and node.tensors.get(name) == self.words:
                size = 1 << (4 * prod(live[self.words]) - 1).bit_length()
                out.append((self.arena.buffer, WORDS_AT, max(AREA - WORDS_AT, size)))
                continue
            window = windows.get(name)
            offset, size = (window.offset, window.nbytes) if window else (0, self.resident.extent(node, name, live))
            if offset + size > resource.size:
                raise RunError(f"{node.label}: the window of {name} ends past its buffer")
            if binding.kind == "uniform":
                size = min(size, self.limits.max_uniform)
            elif size > self.limits.max_binding:
                raise UnsupportedError(
                    f"{node.label}: {name} is {size:,} bytes, the adapter binds at most {self.limits.max_binding:,}"
                )
            out.append((resource, offset, size))
        return out
