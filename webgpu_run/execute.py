"""Runs a planned graph on a device: the parameter arena, and one command stream a call."""

from __future__ import annotations

import os
import struct
import time
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from . import kernel as kernels
from . import native
from .device import Device, Image
from .errors import RunError, UnsupportedError
from .graph import GPU_DTYPE, Node
from .op import STAGED_ROWS, Array, Plan, Reach, Step
from .residency import Progress, Residency
from .resize import Delta, Engine
from .shapes import Dims, align, prod

__all__ = ["SLOTS", "CallStats", "Dispatch", "Executor", "Progress", "Ticket", "host_clock"]
SLOTS = 64  # SymInts that kernels read, at most: slots.wgsl declares as many
_QUERIES = 4096  # timestamps of a query set, at most
# On a software adapter the device takes the processor from us: that is waiting too, and wall time would call it ours.
# (Windows counts a thread's time in ticks of 16 ms.)
host_clock = time.perf_counter_ns if os.name == "nt" else time.thread_time_ns


@dataclass(slots=True)
class Dispatch:
    """One measured dispatch."""

    node: int
    op: str
    kernel: str
    route: str
    grid: tuple[int, int, int]
    gpu_ns: int
    work: tuple[int, int]
    live_dims: Dims = ()
    begin_ns: int = 0


@dataclass(slots=True)
class CallStats:
    """Where one call's time went."""

    host_ns: int = 0  # of this thread's processor, without waiting and without what compile_ns holds
    wait_ns: int = 0
    compile_ns: int = 0  # new plans, with the pipelines and bind groups they needed
    gpu_ns: int = 0  # sum of dispatches, when timed
    arena_bytes: int = 0
    upload_bytes: int = 0
    read_bytes: int = 0
    dispatches: int = 0
    timed: list[Dispatch] = field(default_factory=list)


@dataclass(slots=True)
class _Command:
    handles: native.Dispatch
    node: int
    step: Step
    params_at: int  # where its uniforms are in the arena
    objects: tuple[Any, Any]  # keeps the wgpu objects behind the handles alive


@dataclass(frozen=True, slots=True)
class Ticket:
    """A submitted call whose outputs have not been read: (tensor, live dims, staging buffer) each."""

    reads: tuple[tuple[int, Dims, Any], ...]
    submission: Any
    commands: Sequence[_Command] = ()  # when timed


class Executor:
    """The command list of the current plans, with bind groups made once, and the arena their uniforms are in."""

    def __init__(self, engine: Engine, device: Device, progress: Progress | None = None) -> None:
        self.engine, self.graph, self.device = engine, engine.graph, device
        self.limits = device.limits
        self.resident = Residency(engine, device, progress)
        self.buffers = self.resident.buffers
        if self.graph.slot_count > SLOTS:
            raise UnsupportedError(
                f"the graph's kernels read {self.graph.slot_count} SymInts, there is room for {SLOTS}"
            )
        self._arena_at: list[int] = []
        least = max(4 * self.limits.uniform_align, 256)  # other routes of a node may need more than its first plan
        at = align(4 * SLOTS, self.limits.uniform_align)
        for plan in engine.plans:
            self._arena_at.append(at)
            at += max(least, sum(self._params_room(step) for step in plan.steps))
        self.arena = memoryview(bytearray(at))
        self._arena_buffer = device.buffer(at, "parameters")
        self._changed: tuple[int, int] | None = (0, at)
        self._slots: list[int] = []
        self._groups: dict[Any, Any] = {}
        self._lists: list[list[_Command]] = [[] for _ in self.graph.nodes]
        self._commands: list[_Command] = []
        self._handles: list[native.Dispatch] = []
        self._stale = True
        self._pending: dict[int, list[_Command]] = {}
        self._layers: dict[int, int] = {}  # node -> layers of its images that are bound
        self._pending_layers: dict[int, int] = {}
        self._reaches: dict[tuple[int, int], list[int]] = {}  # (slot, the first position past what is bound) -> nodes
        self._staging: dict[tuple[int, int], Any] = {}
        self._calls = 0
        self._queries: list[tuple[Any, Any]] = []  # query sets and the buffers they are resolved to, as many as needed
        self.readbacks: tuple[int, ...] = self.graph.output_ids
        self._skipped: frozenset[int] = frozenset()
        # an input that only SymInts are read from never has to reach the device
        self._inputs = {
            v
            for v in self.graph.input_ids
            if v in self.graph.output_ids
            or any(self.graph.nodes[i].op.out_kind != "symint" for i in self.graph.readers.get(v, ()))
        }

    def skip(self, nodes: frozenset[int]) -> None:
        """Leave these nodes out of the command stream: nothing that is read back may depend on them."""
        if nodes != self._skipped:
            self._skipped, self._stale = nodes, True

    # -- commands ------------------------------------------------------------------------------------------------

    def prepare(self, delta: Delta) -> None:
        """Pipelines and bind groups for new plans, and for a position past what is bound of the images.

        Raises before anything is committed.
        """
        slots, plans = self.engine.slot_values(delta.syms), dict(delta.plans)
        for (slot, end), nodes in self._reaches.items():
            if slots[slot] >= end:
                plans |= {i: self.engine.plans[i] for i in nodes if i not in plans}
        self._pending, self._pending_layers = {}, {}
        if not plans:
            return
        live = ChainMap(dict(delta.dims), self.engine.live)
        self._pending_layers = {i: self._reach(i, plan.reach, slots) for i, plan in plans.items() if plan.reach}
        self._pending = {i: self._make(self.graph.nodes[i], plan, live) for i, plan in plans.items()}
        if self.limits.software:
            self._compile([c for commands in self._pending.values() for c in commands])

    def _compile(self, commands: Sequence[_Command]) -> None:
        """A software driver compiles a kernel when it first runs: now, for no workgroups, rather than in a call."""
        fresh = {id(c.objects[0]): (*c.handles[:2], 0, 0, 0, ()) for c in commands}
        fresh = {key: c for key, c in fresh.items() if key not in self.device.compiled}
        if fresh:
            self.device.call(fresh.values())
            self.device.wait()
            self.device.compiled |= fresh.keys()

    def _reach(self, index: int, reach: Reach, slots: Sequence[int]) -> int:
        """Layers to bind: powers of two, so that a growing context changes bind groups rarely; never fewer again."""
        last = (slots[self.graph.nodes[index].slots[reach.arg]] + reach.rows - 1) // reach.unit
        return max(self._layers.get(index, 1), 1 << last.bit_length())

    def commit(self) -> None:
        if self._pending_layers:
            self._layers |= self._pending_layers
            self._reaches = {}
            for i, layers in self._layers.items():
                if reach := self.engine.plans[i].reach:
                    key = (self.graph.nodes[i].slots[reach.arg], layers * reach.unit - reach.rows + 1)
                    self._reaches.setdefault(key, []).append(i)
            self._pending_layers = {}
        for i, commands in self._pending.items():
            self._lists[i] = commands
            for command in commands:
                self._put(command.params_at, command.step.uniform())
        if self._pending:
            self._stale = True
        self._pending = {}
        slots = self.engine.slot_values()
        if slots != self._slots:
            self._slots = slots
            self._put(0, struct.pack(f"<{len(slots)}i", *slots))

    def _put(self, at: int, data: bytes) -> None:
        """Set bytes of the arena, and widen what the next write has to carry if they are new."""
        end = at + len(data)
        if self.arena[at:end] != data:
            self.arena[at:end] = data
            lo, hi = self._changed or (at, end)
            self._changed = (min(lo, at), max(hi, end))

    def _make(self, node: Node, plan: Plan, live: Mapping[int, Dims]) -> list[_Command]:
        commands = []
        end = self._arena_at[node.index]
        for step in plan.steps:
            if 0 in step.grid:
                continue
            at, end = end, end + self._params_room(step)
            if end - self._arena_at[node.index] > self._room(node.index):
                raise RunError(f"{node.label}: the uniforms of {len(plan.steps)} dispatches are over their room")
            kernel = kernels.load(step.kernel)
            pipeline = self.device.pipeline(kernel, step.consts)
            bindings = self._bindings(node, at, step, kernel, live)
            key = (step.kernel, step.consts, tuple((id(resource), *part) for resource, *part in bindings))
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = self.device.bind_group(kernel, step.consts, bindings)
            handles = (pipeline._internal, group._internal, *step.grid, self._staging_of(node, step))
            commands.append(_Command(handles, node.index, step, at, (pipeline, group)))
        return commands

    def _staging_of(self, node: Node, step: Step) -> native.Staging:
        if step.stage is None:
            return ()
        buffer, image = (self.resident.find(node, name) for name in (step.stage.source, step.stage.image))
        return self.device.native.staging(buffer, image.texture, step.stage.width, step.stage.rows, STAGED_ROWS)

    def _params_room(self, step: Step) -> int:
        return align(len(step.uniform()), self.limits.uniform_align)

    def _room(self, index: int) -> int:
        at = self._arena_at
        return (at[index + 1] if index + 1 < len(at) else self.arena.nbytes) - at[index]

    def _bindings(
        self, node: Node, params_at: int, step: Step, kernel: kernels.Kernel, live: Mapping[int, Dims]
    ) -> list[tuple[Any, ...]]:
        """In binding order: (buffer, offset, nbytes), (image, layers) or (texture view,)."""
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
            resource = self.resident.find(node, name)
            if isinstance(resource, Image):
                layers = self.resident.layers(node, name, live) or self._pending_layers[node.index]
                out.append((resource, layers))
                continue
            if binding.kind == "texture" or binding.kind.startswith("image"):
                out.append((resource,))
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

    def upload(self, inputs: Sequence[Array], stats: CallStats, *, fed: Sequence[int] = ()) -> None:
        """Live bytes of the inputs that the device reads, 64-bit ones narrowed; those in `fed` are there already."""
        for v, array in zip(self.graph.input_ids, inputs, strict=True):
            if v not in self._inputs or v in fed:
                continue
            data = np.ascontiguousarray(array, GPU_DTYPE[self.graph.tensors[v].dtype])
            if data.nbytes:
                self.device.write(self.buffers[self.graph.tensors[v].root], data)
                stats.upload_bytes += data.nbytes

    def write_arena(self, stats: CallStats) -> None:
        """One write of what changed since the last one, or none."""
        if self._changed:
            lo, hi = self._changed[0] & ~3, align(self._changed[1], 4)
            self.device.write(self._arena_buffer, self.arena[lo:hi], lo)
            self._changed = None  # only now: a write that failed is tried again by the next call
            stats.arena_bytes += hi - lo

    def commands(self) -> list[_Command]:
        """The command stream of the current plans."""
        if self._stale:
            self._commands = [c for i, commands in enumerate(self._lists) if i not in self._skipped for c in commands]
            self._handles = [c.handles for c in self._commands]
            self._stale = False
        return self._commands

    def execute(self, stats: CallStats, *, timed: bool = False) -> list[Array]:
        """Run the current plans; outputs at their live shapes."""
        return self.collect(self.submit(stats, timed=timed), stats)

    def submit(self, stats: CallStats, *, timed: bool = False, feed: Sequence[tuple[int, int]] = ()) -> Ticket:
        """Put the current plans in the queue. `feed` first copies one tensor into another, on the device."""
        device = self.device
        commands = self.commands()
        stats.dispatches += len(commands)
        timed = timed and device.timestamps
        source, live = self.resident.source, self.engine.live
        before = [(source(x), source(target), prod(live[target]) * 4) for x, target in feed]
        self._calls ^= 1  # two calls may be in flight: each has staging buffers of its own
        reads, after = [], []
        for v in self.readbacks:
            dims = live[v]
            nbytes = prod(dims) * 4
            key = (v, self._calls)
            if nbytes:
                if key not in self._staging:
                    most = prod(self.graph.tensors[v].max_dims) * 4
                    self._staging[key] = device.buffer(most, "readback", read=True)
                after.append((source(v), self._staging[key], nbytes))
            reads.append((v, dims, self._staging.get(key)))
            stats.read_bytes += nbytes
        if timed:
            self._make_queries(len(commands), stats)
            return Ticket(tuple(reads), self._submit_timed(before, commands, after), commands)
        return Ticket(tuple(reads), device.call(self._handles, before, after))

    def collect(self, ticket: Ticket, stats: CallStats) -> list[Array]:
        """Wait for a submitted call and read its outputs."""
        start, host = time.perf_counter_ns(), host_clock()
        outs = [
            self.device.read_mapped(staging, ticket.submission, np.dtype(GPU_DTYPE[self.graph.tensors[v].dtype]), dims)
            for v, dims, staging in ticket.reads
        ]
        if not outs:
            self.device.wait()
        stats.wait_ns += time.perf_counter_ns() - start
        stats.host_ns -= host_clock() - host  # a wait may poll
        if ticket.commands:
            self._collect_times(ticket.commands, stats)
        return outs

    def _make_queries(self, count: int, stats: CallStats) -> None:
        """Query sets for so many dispatches; making and first using them takes milliseconds that are not the call's."""
        start, host, first = time.perf_counter_ns(), host_clock(), not self._queries
        use, handle = self.device.wgpu.BufferUsage, self.device.handle
        while len(self._queries) * _QUERIES < 2 * count:
            resolved = handle.create_buffer(size=_QUERIES * 8, usage=use.QUERY_RESOLVE | use.COPY_SRC)
            self._queries.append((handle.create_query_set(type="timestamp", count=_QUERIES), resolved))
        if first and self._commands:
            nothing = replace(self._commands[0], step=replace(self._commands[0].step, grid=(0, 0, 0)))
            self._submit_timed((), [nothing], ())
            self._collect_times([nothing], CallStats())
        stats.compile_ns += time.perf_counter_ns() - start
        stats.host_ns -= host_clock() - host

    def _submit_timed(
        self, before: Sequence[native.Copy], commands: Sequence[_Command], after: Sequence[native.Copy]
    ) -> Any:
        """A pass a dispatch, each between two timestamps."""
        encoder = self.device.handle.create_command_encoder()
        for source, target, nbytes in before:
            encoder.copy_buffer_to_buffer(source, 0, target, 0, nbytes)
        each = _QUERIES // 2
        for i, c in enumerate(commands):
            writes = {
                "query_set": self._queries[i // each][0],
                "beginning_of_pass_write_index": i % each * 2,
                "end_of_pass_write_index": i % each * 2 + 1,
            }
            self.device.native.stage(encoder._internal, c.handles[-1])
            compute = encoder.begin_compute_pass(timestamp_writes=writes)
            compute.set_pipeline(c.objects[0])
            compute.set_bind_group(0, c.objects[1])
            compute.dispatch_workgroups(*c.step.grid)
            compute.end()
        for (queries, resolved), first in zip(self._queries, range(0, len(commands), each), strict=False):
            encoder.resolve_query_set(queries, 0, 2 * min(each, len(commands) - first), resolved, 0)
        for source, target, nbytes in after:
            encoder.copy_buffer_to_buffer(source, 0, target, 0, nbytes)
        return self.device.submit(encoder)

    def _collect_times(self, commands: Sequence[_Command], stats: CallStats) -> None:
        left = 16 * len(commands)
        data = b""
        for _, resolved in self._queries:
            data += bytes(self.device.handle.queue.read_buffer(resolved, 0, min(left - len(data), _QUERIES * 8)))
            if len(data) == left:
                break
        ticks = np.frombuffer(data, np.uint64).reshape(-1, 2)
        for c, (begin, end) in zip(commands, ticks, strict=True):
            node = self.graph.nodes[c.node]
            ns = max(0, int(end) - int(begin))
            route, live = self.engine.plans[c.node].route, self.engine.live.get(node.outs[0], ())
            stats.timed.append(
                Dispatch(c.node, node.op.short, c.step.kernel, route, c.step.grid, ns, c.step.work, live, int(begin))
            )
            stats.gpu_ns += ns

    def execute_node(self, index: int) -> None:
        """Run one node alone; in order, these give what `execute` gives."""
        if self._lists[index]:
            self.device.call([c.handles for c in self._lists[index]])

    def read(self, v: int) -> Array:
        """What a tensor holds now, at its live shape; memory is shared, so not for long."""
        dims, dtype = self.engine.live[v], np.dtype(GPU_DTYPE[self.graph.tensors[v].dtype])
        count = prod(dims)
        if not count:
            return np.zeros(dims, dtype)
        return np.frombuffer(self.device.read(self.resident.source(v), count * 4), dtype, count).reshape(dims)

    def reset(self) -> None:
        """Zero what persists between calls."""
        self.resident.reset()
