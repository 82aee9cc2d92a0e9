"""Runs a planned graph on a device: uploads, submissions, readbacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..graph.graph import GPU_DTYPE
from ..graph.planner import Delta, Engine
from ..ops.plan import TURNS
from ..shapes import Array, Dims, prod
from . import native
from .arena import Arena
from .callstats import CallStats, TimedDispatch, host_clock
from .commands import CommandStream, Dispatch, idle
from .device import Device
from .residency import ProgressCallback, Residency
from .timestamps import Stamps
from .turns import SLOTS, WORDS_AT, Turn, areas

PART_NS = 100_000_000  # longest submission of a call that is watched
LONG_WORK = 4e9  # a call with less work than this is one submission: it takes milliseconds on a GPU

Watch = Callable[[float], None]  # takes the share of a call that is done


@dataclass(frozen=True, slots=True)
class Ticket:
    """A submitted call whose outputs have not been read back yet."""

    reads: tuple[tuple[int, Dims, Any], ...]  # (tensor, live dims, staging buffer) of each output
    submission: Any
    commands: Sequence[Dispatch] = ()  # only if the dispatches are timed


class Executor:
    """A graph on a device: its memory, its arena, its command stream, and the calls that use them."""

    def __init__(
        self,
        engine: Engine,
        device: Device,
        progress: ProgressCallback | None = None,
        uploads: dict[Any, Any] | None = None,
    ) -> None:
        self.engine, self.graph, self.device = engine, engine.graph, device
        self.resident = Residency(engine, device, progress, uploads)
        self.buffers = self.resident.buffers
        if self.graph.slot_count >= SLOTS:
            raise UnsupportedError(
                f"the graph's kernels read {self.graph.slot_count} SymInts, there is room for {SLOTS - 1}"
            )
        self.arena = Arena(engine, device)
        self.stream = CommandStream(engine, device, self.resident, self.arena)
        self._words = self.stream.words
        self._staging: dict[int, list[Any]] = {}  # free staging buffers by tensor
        self._turns_buffer: Any = None  # inputs of each turn other than sampler words, if a submission has several
        self._stamps = Stamps(device)
        self._work_per_ns = 0.0  # of the last part of a watched call; its work is in operations and eighths of a byte
        self.tensor_outputs = tuple(v for v in self.graph.output_ids if v in self.graph.tensors)
        self.readbacks = self.tensor_outputs
        self._first = True
        self._is_half_done = False  # an exception ended `make_ready` while it changed the engine, commands or arena
        # An input that only SymInts are read from is not needed on the device.
        self.device_inputs = {v for v in self.graph.input_ids if v in self.graph.tensors and self._is_needed(v)}

    def _is_needed(self, v: int) -> bool:
        nodes = [self.graph.nodes[i] for i in self.graph.readers.get(v, ())]
        return v in self.tensor_outputs or any(node.op.out_kind != "symint" for node in nodes)

    def skip(self, nodes: frozenset[int]) -> None:
        """Omit these nodes from the command stream. No output that is read back may depend on them."""
        self.stream.skip(nodes)

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
        self.stream.commit()
        if self._first or delta.plans:
            stats.compile_ns += time.perf_counter_ns() - start
            stats.host_ns -= host_clock() - host
        self._first = False
        self.upload(inputs, stats, on_device)
        if turns == 1:
            self.arena.write(stats)
        self._is_half_done = False
        return delta

    def _restore(self) -> None:
        """Undo a `make_ready` that an exception ended after its changes began: back to the state before the first."""
        self.engine.build()
        self._first = True
        self.stream.forget()
        self.arena.write_all()

    def _prepare_call(self, delta: Delta) -> None:
        """Prepare for `make_ready`. In the first call no plan has commands yet, also those that build made."""
        if self._first:
            plans = {i: delta.plans.get(i, plan) for i, plan in enumerate(self.engine.plans)}
            delta = Delta(plans, delta.dims, delta.syms)
        self.stream.prepare(delta)
        self._is_half_done = True  # the engine commits next

    def upload(self, inputs: Sequence[Array], stats: CallStats, on_device: Collection[int] = ()) -> None:
        """Upload the live bytes of each input. 64-bit integers are narrowed to 32 bits. Inputs in `on_device` are
        skipped.
        """
        given = dict(zip(self.graph.input_ids, inputs, strict=True))
        for v, data in self.as_stored({v: array for v, array in given.items() if v not in on_device}):
            if v == self._words:
                self.arena.put(WORDS_AT, data.tobytes())
            elif data.nbytes:
                self.device.write(self.buffers[self.graph.tensors[v].root], data)
                stats.upload_bytes += data.nbytes

    def as_stored(self, inputs: Mapping[int, Array]) -> Iterator[tuple[int, Array]]:
        """Those of the inputs that kernels read, as the device stores them."""
        for v, array in inputs.items():
            if v in self.device_inputs:
                yield v, np.ascontiguousarray(array, GPU_DTYPE[self.graph.tensors[v].dtype])

    def commands(self) -> list[Dispatch]:
        """The dispatches of the current plans, in execution order."""
        return self.stream.current()

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
            self.device.until(self.device.call(((), self.stream.recorded().turn(0)[at:end], ())))
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
        recorded = [self.stream.recorded().turn(k) for k in range(count)]
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
            self.arena.put(at, part)
        self.arena.write(stats)
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
        commands = self.commands()
        if not self._stamps.ready(len(commands)) and commands:
            self._stamps.submit(((), [idle(commands[0].handles)], ()), [commands[0].objects])
            self._stamps.read(1)
        stats.compile_ns += time.perf_counter_ns() - start
        stats.host_ns -= host_clock() - host

    def _collect_times(self, commands: Sequence[Dispatch], stats: CallStats) -> None:
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
        if dispatches := self.stream.of_node[index]:
            self.device.call(((), [d.handles for d in dispatches], ()))

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
