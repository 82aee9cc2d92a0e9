"""Runs a planned graph on a device: the parameter arena, and one command stream per call."""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ..errors import RunError, UnsupportedError
from ..graph.graph import GPU_DTYPE, Node
from ..graph.passes.pick import PICK
from ..graph.planner import MEMO, Delta, Engine
from ..ops import wgsl
from ..ops.plan import STAGED_ROWS, TURNS, Plan, Reach, Step
from ..shapes import Array, Dims, align, prod
from . import native
from .callstats import CallStats, TimedDispatch, host_clock
from .device import PER_TURN, Device, Image
from .residency import ProgressCallback, Residency
from .timestamps import Stamps
from .turns import AREA, AREAS, SLOTS, WORDS_AT, Recorded, Turn, areas, words_of

PART_NS = 100_000_000  # longest submission of a call that is watched
OF_ANY_ROUTE = 8  # dispatches that a node has room for, because another route may have more than its first plan
LONG_WORK = 4e9  # a call with less work than this is one submission: it takes milliseconds on a GPU

Watch = Callable[[float], None]  # takes the share of a call that is done


@dataclass(slots=True)
class _Command:
    """One dispatch of a node."""

    handles: native.RecordedDispatch
    node: int
    step: Step
    params_at: int  # offset of its uniforms in the arena
    objects: tuple[Any, Any]  # keeps the wgpu objects behind the handles alive


@dataclass(frozen=True, slots=True)
class Ticket:
    """A submitted call whose outputs have not been read back yet."""

    reads: tuple[tuple[int, Dims, Any], ...]  # (tensor, live dims, staging buffer) of each output
    submission: Any
    commands: Sequence[_Command] = ()  # only if the dispatches are timed


def _idle(dispatch: native.RecordedDispatch) -> native.RecordedDispatch:
    """The same dispatch with no workgroups."""
    return *dispatch[:2], 0, 0, 0, (), dispatch[6]


class Executor:
    """The commands of the current plans, their bind groups, and the arena that holds their uniforms."""

    def __init__(
        self,
        engine: Engine,
        device: Device,
        progress: ProgressCallback | None = None,
        uploads: dict[Any, Any] | None = None,
    ) -> None:
        self.engine, self.graph, self.device = engine, engine.graph, device
        self.limits = device.limits
        self.resident = Residency(engine, device, progress, uploads)
        self.buffers = self.resident.buffers
        if self.graph.slot_count >= SLOTS:
            raise UnsupportedError(
                f"the graph's kernels read {self.graph.slot_count} SymInts, there is room for {SLOTS - 1}"
            )
        self._params_offsets: list[int] = []
        least = max(OF_ANY_ROUTE * self.limits.uniform_align, 256)
        self._words = words_of(self.graph)
        at = align(AREAS, self.limits.uniform_align)
        for plan in engine.plans:
            self._params_offsets.append(at)
            at += max(least, sum(self._uniform_bytes(step) for step in plan.steps))
        self.arena = memoryview(bytearray(at))
        self._arena_buffer = device.buffer(at, "parameters")
        self._changed: tuple[int, int] | None = (0, at)
        self._slots: list[int] = []
        self._bind_groups: dict[Any, Any] = {}
        self._node_commands: list[list[_Command]] = [[] for _ in self.graph.nodes]
        self._commands: list[_Command] = []
        self._recorded = Recorded(device.native, [])
        self._is_stale = True
        self._wakes: set[tuple[int, int]] = set()  # (slot, value from which on it is not idle) of idle dispatches
        self._pending: dict[int, list[_Command]] = {}
        self._remembered: dict[tuple[int, int, int | None], tuple[Plan, list[_Command]]] = {}
        self._layers: dict[int, int] = {}  # node -> bound layers of its images
        self._pending_layers: dict[int, int] = {}
        self._reaches: dict[tuple[int, int], list[int]] = {}  # (slot, first position beyond the bound layers) -> nodes
        self._staging: dict[int, list[Any]] = {}  # free staging buffers by tensor
        self._turns_buffer: Any = None  # inputs of each turn other than sampler words, if a submission has several
        self._stamps = Stamps(device)
        self._work_per_ns = 0.0  # of the last part of a watched call; its work is in operations and eighths of a byte
        self.tensor_outputs = tuple(v for v in self.graph.output_ids if v in self.graph.tensors)
        self.readbacks = self.tensor_outputs
        self._skipped: frozenset[int] = frozenset()
        self._first = True
        self._is_half_done = False  # an exception ended `make_ready` while it changed the engine, commands or arena
        # An input that only SymInts are read from is not needed on the device.
        self.device_inputs = {v for v in self.graph.input_ids if v in self.graph.tensors and self._is_needed(v)}

    def _is_needed(self, v: int) -> bool:
        nodes = [self.graph.nodes[i] for i in self.graph.readers.get(v, ())]
        return v in self.tensor_outputs or any(node.op.out_kind != "symint" for node in nodes)

    def skip(self, nodes: frozenset[int]) -> None:
        """Omit these nodes from the command stream. No output that is read back may depend on them."""
        if nodes != self._skipped:
            self._skipped, self._is_stale = nodes, True

    def make_ready(
        self, inputs: Sequence[Array], stats: CallStats, on_device: Collection[int] = (), *, turns: int = 1
    ) -> Delta:
        """Resize to these inputs and bring the device up to date: commands, uniforms, and the inputs' live bytes.

        A shape that is refused leaves everything as it was. `on_device` is that of `upload`. Several turns bring their
        own slots, so that `submit` writes the arena.
        """
        start, host = time.perf_counter_ns(), host_clock()
        if self._is_half_done:
            self._restore()
        delta = self.engine.resize(inputs, self._prepare_call)
        self.commit()
        if self._first or delta.plans:
            stats.compile_ns += time.perf_counter_ns() - start
            stats.host_ns -= host_clock() - host
        self._first = False
        self.upload(inputs, stats, on_device)
        if turns == 1:
            self.write_arena(stats)
        self._is_half_done = False
        return delta

    def _restore(self) -> None:
        """Undo a `make_ready` that an exception ended after its changes began: back to the state before the first."""
        self.engine.build()
        self._first = self._is_stale = True
        self._layers, self._reaches, self._slots = {}, {}, []
        self._changed = (0, self.arena.nbytes)

    # -- commands ------------------------------------------------------------------------------------------------

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
        self._pending = {i: self._commands_of(i, plan, live) for i, plan in plans.items()}
        if self.limits.software:
            self._compile([c for commands in self._pending.values() for c in commands])

    def _prepare_call(self, delta: Delta) -> None:
        """Prepare for `make_ready`. In the first call no plan has commands yet, also those that build made."""
        if self._first:
            plans = {i: delta.plans.get(i, plan) for i, plan in enumerate(self.engine.plans)}
            delta = Delta(plans, delta.dims, delta.syms)
        self.prepare(delta)
        self._is_half_done = True  # the engine commits next

    def _compile(self, commands: Sequence[_Command]) -> None:
        """Run each new kernel with zero workgroups: a software driver compiles at the first run, not at creation."""
        fresh = {id(c.objects[0]): _idle(c.handles) for c in commands}
        fresh = {key: c for key, c in fresh.items() if key not in self.device.compiled}
        if fresh:
            self.device.call(((), fresh.values(), ()))
            self.device.wait()
            self.device.compiled |= fresh.keys()

    def _layers_to_bind(self, index: int, reach: Reach, slots: Sequence[int]) -> int:
        """Layers to bind: a power of two, so that a growing context rarely needs new bind groups. Never shrinks."""
        last = (slots[self.graph.nodes[index].slots[reach.arg]] + reach.rows - 1) // reach.unit
        return max(self._layers.get(index, 1), 1 << last.bit_length())

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
        for i, commands in self._pending.items():
            self._node_commands[i] = commands
            for command in commands:
                self._write_params(command.params_at, command.step.uniform())
        if self._pending:
            self._is_stale = True
        self._pending = {}
        slots = self.engine.slot_values()
        if slots != self._slots:
            if any((slots[i] < below) != (self._slots[i] < below) for i, below in self._wakes if self._slots):
                self._is_stale = True
            self._slots = slots
        for at, data in areas([Turn(slots)], None):
            self._write_params(at, data)

    def _write_params(self, at: int, data: bytes) -> None:
        """Set bytes of the arena; if they differ, the next `write_arena` covers them."""
        end = at + len(data)
        if self.arena[at:end] != data:
            self.arena[at:end] = data
            lo, hi = self._changed or (at, end)
            self._changed = (min(lo, at), max(hi, end))

    def _commands_of(self, index: int, plan: Plan, live: Mapping[int, Dims]) -> list[_Command]:
        """The commands of a plan. Those of recent plans are remembered, because calls return to the same lengths."""
        key = (index, id(plan), self._pending_layers.get(index))
        known, commands = self._remembered.get(key, (None, []))
        if known is not plan:
            if len(self._remembered) >= MEMO:
                self._remembered.clear()
            commands = self._make_commands(self.graph.nodes[index], plan, live)
            self._remembered[key] = plan, commands
        return commands

    def _make_commands(self, node: Node, plan: Plan, live: Mapping[int, Dims]) -> list[_Command]:
        commands = []
        end = self._params_offsets[node.index]
        for step in plan.steps:
            if 0 in step.grid:
                continue
            at, end = end, end + self._uniform_bytes(step)
            if end - self._params_offsets[node.index] > self._node_room(node.index):
                raise RunError(f"{node.label}: the uniforms of {len(plan.steps)} dispatches are over their room")
            kernel = wgsl.load(step.kernel)
            pipeline = self.device.pipeline(kernel, step.consts)
            bindings = self._bindings(node, at, step, kernel, live)
            key = (step.kernel, step.consts, tuple((id(resource), *part) for resource, *part in bindings))
            group = self._bind_groups.get(key)
            if group is None:
                group = self._bind_groups[key] = self.device.bind_group(kernel, step.consts, bindings)
            offsets = self.device.native.offsets(sum(b.name in PER_TURN for b in kernel.bindings(step.consts)), 0)
            handles = (native.handle(pipeline), native.handle(group), *step.grid, self._staging_of(node, step), offsets)
            commands.append(_Command(handles, node.index, step, at, (pipeline, group)))
        return commands

    def _staging_of(self, node: Node, step: Step) -> native.Staging:
        if step.stage is None:
            return ()
        buffer, image = (self.resident.find(node, name) for name in (step.stage.source, step.stage.image))
        return self.device.native.staging(buffer, image.texture, step.stage.width, step.stage.rows, STAGED_ROWS)

    def _uniform_bytes(self, step: Step) -> int:
        return align(len(step.uniform()), self.limits.uniform_align)

    def _node_room(self, index: int) -> int:
        at = self._params_offsets
        return (at[index + 1] if index + 1 < len(at) else self.arena.nbytes) - at[index]

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
                out.append((self._arena_buffer, params_at, size))
                continue
            if name == "slots":
                out.append((self._arena_buffer, 0, 4 * SLOTS))
                continue
            if name == "ids" and node.op.name == PICK:  # the token of the next turn
                out.append((self.resident.source(self.graph.input_ids[0]), 0, 16))
                continue
            resource = self.resident.find(node, name)
            if isinstance(resource, Image):
                layers = self.resident.layers(node, name, live) or self._pending_layers[node.index]
                out.append((resource, layers))
                continue
            if binding.kind == "texture" or binding.kind.startswith("image"):
                out.append((resource,))
                continue
            if self._words is not None and node.tensors.get(name) == self._words:
                size = 1 << (4 * prod(live[self._words]) - 1).bit_length()
                out.append((self._arena_buffer, WORDS_AT, max(AREA - WORDS_AT, size)))
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

    # -- calls ---------------------------------------------------------------------------------------------------

    def upload(self, inputs: Sequence[Array], stats: CallStats, on_device: Collection[int] = ()) -> None:
        """Upload the live bytes of each input. 64-bit integers are narrowed to 32 bits. Inputs in `on_device` are
        skipped.
        """
        given = dict(zip(self.graph.input_ids, inputs, strict=True))
        for v, data in self.as_stored({v: array for v, array in given.items() if v not in on_device}):
            if v == self._words:
                self._write_params(WORDS_AT, data.tobytes())
            elif data.nbytes:
                self.device.write(self.buffers[self.graph.tensors[v].root], data)
                stats.upload_bytes += data.nbytes

    def as_stored(self, inputs: Mapping[int, Array]) -> Iterator[tuple[int, Array]]:
        """Those of the inputs that kernels read, as the device stores them."""
        for v, array in inputs.items():
            if v in self.device_inputs:
                yield v, np.ascontiguousarray(array, GPU_DTYPE[self.graph.tensors[v].dtype])

    def write_arena(self, stats: CallStats) -> None:
        """Write the changed range of the arena in one piece."""
        if self._changed:
            lo, hi = self._changed[0] & ~3, align(self._changed[1], 4)
            self.device.write(self._arena_buffer, self.arena[lo:hi], lo)
            stats.arena_bytes += hi - lo
            self._changed = None  # after the write: one that failed is repeated by the next call

    def commands(self) -> list[_Command]:
        """The commands of the current plans, in execution order."""
        if self._is_stale:
            current = [c for i, commands in enumerate(self._node_commands) if i not in self._skipped for c in commands]
            self._wakes = {wake for c in current if (wake := self._wake(c))}
            self._commands = [c for c in current if not (wake := self._wake(c)) or self._slots[wake[0]] >= wake[1]]
            self._recorded = Recorded(self.device.native, [c.handles for c in self._commands])
            self._is_stale = False
        return self._commands

    def _wake(self, command: _Command) -> tuple[int, int] | None:
        idle = command.step.idle
        return (self.graph.nodes[command.node].slots[idle.arg], idle.below) if idle else None

    def execute(self, stats: CallStats, *, timed: bool = False, watch: Watch | None = None) -> list[Array]:
        """Run the current plans and return the outputs at their live shapes.

        `watch` is called now and then in a call that takes long, with the share that is done. What it raises ends the
        call.
        """
        first = self._run_watched(stats, watch) if watch and not timed else 0
        return self.collect(self.submit(stats, timed=timed, first=first), stats)

    def _run_watched(self, stats: CallStats, watch: Watch) -> int:
        """Run all but the last part of a long call, in submissions of about PART_NS. Returns where the last begins."""
        commands = self.commands()
        costs = np.cumsum([step.work[1] + 8 * step.work[0] for step in (c.step for c in commands)], dtype=np.float64)
        at, done, whole = 0, 0.0, float(costs[-1]) if commands else 0.0
        while whole > LONG_WORK:
            goal = done + (self._work_per_ns * PART_NS if self._work_per_ns else whole / 32)
            end = int(np.searchsorted(costs, goal)) + 1
            if end >= len(commands):
                break
            start, host = time.perf_counter_ns(), host_clock()
            self.device.until(self.device.call(((), self._recorded.turn(0)[at:end], ())))
            taken = time.perf_counter_ns() - start
            stats.wait_ns += taken
            stats.host_ns -= host_clock() - host
            self._work_per_ns = (float(costs[end - 1]) - done) / taken
            at, done = end, float(costs[end - 1])
            watch(done / whole)
        return at

    def submit(
        self, stats: CallStats, *, timed: bool = False, turns: Sequence[Turn] = (Turn(),), first: int = 0
    ) -> Ticket:
        """Queue the current plans from command `first` on, once per turn. The outputs of several turns are stacked."""
        device = self.device
        commands, count = self.commands(), len(turns)
        stats.dispatches += len(commands) * count
        reads, after = [], list[native.Copy]()
        for v in self.readbacks:
            dims, staging = self.engine.live[v], None
            nbytes = prod(dims) * 4 * count
            if nbytes:
                staging = self._take_staging(v)
                after.append((self.resident.source(v), 0, staging, 0, nbytes))
            reads.append((v, (count, *dims) if count > 1 else dims, staging))
            stats.read_bytes += nbytes
        recorded = [self._recorded.turn(k) for k in range(count)]
        if timed and device.timestamps:
            self._prepare_stamps(stats)
            part = ((), recorded[0], after)
            return Ticket(tuple(reads), self._stamps.submit(part, [c.objects for c in commands]), commands)
        copies = self._write_turns(turns, stats) if count > 1 else []
        if any(copies):
            parts = [(before, run, ()) for before, run in zip(copies, recorded, strict=True)]
            return Ticket(tuple(reads), device.call(*parts, ((), (), after)))
        run = recorded[0][first:] if count == 1 else list(chain.from_iterable(recorded))
        return Ticket(tuple(reads), device.call(((), run, after)))

    def _take_staging(self, v: int) -> Any:
        """A staging buffer for a tensor. It belongs to one ticket until it has been read. If that never happens, or
        fails half-way, the buffer may be mapped and is never used again.
        """
        free = self._staging.setdefault(v, [])
        if free:
            return free.pop()
        return self.device.buffer(prod(self.graph.tensors[v].max_dims) * 4, "readback", read=True)

    def _write_turns(self, turns: Sequence[Turn], stats: CallStats) -> list[list[native.Copy]]:
        """Write the areas of all turns. Inputs that have no place there are uploaded in one write. Returns the copies
        that each turn begins with.
        """
        for at, part in areas(turns, self._words):
            self._write_params(at, part)
        self.write_arena(stats)
        data, copies = bytearray(), list[list[native.Copy]]()
        for turn in turns:
            copies.append([])
            for v, array in turn.inputs:
                if v != self._words and array.nbytes:
                    target = self.buffers[self.graph.tensors[v].root]
                    copies[-1].append((self._turns_buffer, len(data), target, 0, array.nbytes))
                    data += array.tobytes()
        if data:
            if self._turns_buffer is None:
                words = sum(prod(self.graph.tensors[v].max_dims) for v, _ in turns[0].inputs)
                self._turns_buffer = self.device.buffer(TURNS * 4 * words, "turns")
                copies = [[(self._turns_buffer, *copy[1:]) for copy in turn] for turn in copies]
            self.device.write(self._turns_buffer, bytes(data))
            stats.arena_bytes += len(data)
        return copies

    def collect(self, ticket: Ticket, stats: CallStats) -> list[Array]:
        """Wait for a submitted call and return its outputs."""
        start, host = time.perf_counter_ns(), host_clock()
        outs = []
        for v, dims, staging in ticket.reads:
            dtype = np.dtype(GPU_DTYPE[self.graph.tensors[v].dtype])
            outs.append(self.device.read_mapped(staging, ticket.submission, dtype, dims))
            if staging is not None:
                self._staging[v].append(staging)
        if not outs:
            self.device.wait()
        stats.wait_ns += time.perf_counter_ns() - start
        stats.host_ns -= host_clock() - host  # waiting may use processor time
        if ticket.commands:
            self._collect_times(ticket.commands, stats)
        return outs

    def _prepare_stamps(self, stats: CallStats) -> None:
        """Create query sets and use them once. It takes milliseconds that must not count as the call's own."""
        start, host = time.perf_counter_ns(), host_clock()
        if not self._stamps.ready(len(self._commands)) and self._commands:
            nothing = ((), [_idle(self._recorded.turn(0)[0])], ())
            self._stamps.submit(nothing, [self._commands[0].objects])
            self._stamps.read(1)
        stats.compile_ns += time.perf_counter_ns() - start
        stats.host_ns -= host_clock() - host

    def _collect_times(self, commands: Sequence[_Command], stats: CallStats) -> None:
        for c, (begin, end) in zip(commands, self._stamps.read(len(commands)), strict=True):
            node = self.graph.nodes[c.node]
            ns = max(0, int(end) - int(begin))
            route, live, step = self.engine.plans[c.node].route, self.engine.live.get(node.outs[0], ()), c.step
            stats.timed.append(
                TimedDispatch(c.node, node.op.short, step.kernel, route, step.grid, ns, step.work, live, int(begin))
            )
            stats.gpu_ns += ns

    def execute_node(self, index: int) -> None:
        """Run one node alone. All nodes in order give what `execute` gives."""
        if self._node_commands[index]:
            self.device.call(((), [c.handles for c in self._node_commands[index]], ()))

    def read(self, v: int) -> Array:
        """The current contents of a tensor, at its live shape. Later nodes may reuse its memory."""
        dims, dtype = self.engine.live[v], np.dtype(GPU_DTYPE[self.graph.tensors[v].dtype])
        count = prod(dims)
        if not count:
            return np.zeros(dims, dtype)
        return np.frombuffer(self.device.read(self.resident.source(v), count * 4), dtype, count).reshape(dims)

    def reset(self) -> None:
        """Zero the state that persists between calls."""
        self.resident.reset()
