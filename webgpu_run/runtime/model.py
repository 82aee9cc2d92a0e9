"""A loaded model: runs a method's execution plan, delegates on the GPU and the kernels between them on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import ShapeError, UnsupportedError, UsageError
from ..formats import pte
from ..gpu.callstats import CallStats, host_clock
from ..gpu.device import Device
from ..gpu.executor import TURNS, Ticket
from ..gpu.residency import ProgressCallback
from ..gpu.tune import open_tuned
from ..graph import budget
from ..graph.lower import planned
from ..graph.planner import Engine
from ..ops.choice import GREEDY
from ..shapes import Array, Dims
from .interpreter import Interpreter
from .runner import Runner
from .support import check_method, notes

_STAND_IN = np.zeros((1, 1), np.int64)  # for an id that is on the device


@dataclass(frozen=True, slots=True)
class Started:
    """Steps in the queue."""

    ticket: Ticket
    stats: CallStats
    turns: int


class Model:
    """A method of a program on a device. `run` takes and gives numpy arrays at live shapes."""

    def __init__(
        self,
        program: pte.Program,
        device: Device | str | None = None,
        *,
        method: str | None = None,
        fuse: bool = True,
        tune: bool = True,
        kv: str = "f32",
        progress: ProgressCallback | None = None,
    ) -> None:
        self.program = program
        self.method = program.method(method)
        # what `run` takes and gives; dims are upper bounds where they are dynamic
        self.inputs = self._tensors(self.method.inputs)
        self.outputs = self._tensors(self.method.outputs)
        self.metadata = program.metadata
        check_method(self.method)
        self.notes = notes(self.method)
        self.interpreter = Interpreter(self.method)
        self.device = device if isinstance(device, Device) else open_tuned(device, tune=tune)
        if kv != self.device.limits.kv:
            self.device = copy.copy(self.device)
            self.device.limits = replace(self.device.limits, kv=kv)
        if kv not in ("f32", "f16"):
            raise UsageError(f"kv is {kv!r}, expected f32 or f16")
        self.stats = CallStats()
        engines = [planned(d, self.device.limits, fuse=fuse) for d in self.method.delegates]
        _check_kv(engines, kv)
        budget.check(engines, self.device.limits, self.device.max_buffer)
        self.runners = [
            Runner(delegate, self.device, progress=progress, engine=engine)
            for delegate, engine in zip(self.method.delegates, engines, strict=True)
        ]
        self._tables = dict(self._picks())
        self._stepped = False  # the last step had one id
        self._last: Started | None = None
        self._held: int | None = None  # the id that the device chose last, while nothing has run since: it is there

    def _picks(self) -> Iterator[tuple[int, int]]:
        """(input, rows) for every input that picks rows of a table: kernels would take the last one for any past it."""
        for step in self.method.instructions:
            if isinstance(step, pte.DelegateCall):
                graph = self.runners[step.delegate].graph
                for given, v in zip(step.args, graph.input_ids, strict=False):
                    for node in (graph.nodes[i] for i in graph.readers.get(v, ())):
                        if given in self.method.inputs and v in (node.tensors[n] for n in node.op.named("index")):
                            (table,) = node.op.named("table")
                            yield self.method.inputs.index(given), graph.tensors[node.tensors[table]].max_dims[0]

    def _tensors(self, ids: Sequence[int]) -> tuple[pte.Tensor, ...]:
        values = (self.method.values[i] for i in ids)
        return tuple(v for v in values if isinstance(v, pte.Tensor))

    def run(self, inputs: Sequence[Any], *, timed: bool = False) -> list[Array]:
        """Run the method once; `stats` then says where the time went."""
        start = host_clock()
        self.stats, self._held = (stats := CallStats()), None
        arrays = self._checked(inputs)
        out = self.interpreter.run(arrays, lambda i, given: self.runners[i].call(given, stats, timed=timed))
        stats.host_ns += host_clock() - start
        return out

    @property
    def chooses(self) -> bool:
        """Whether `start` works: the whole method is one delegate that takes ids and a position and gives logits."""
        return (
            len(self.runners) == len(self.method.instructions) == 1
            and len(self.method.inputs) == 2
            and self.runners[0].pick is not None
            and self.runners[0].visitor is None
        )

    @property
    def most_turns(self) -> int:
        """How many steps `start` takes at once: one, if a position decides more than what kernels find in a slot."""
        return TURNS if self.runners[0].engine.only_slots else 1

    def start(
        self, ids: Sequence[int] | None, position: int, how: Sequence[Array] = (GREEDY,), *, timed: bool = False
    ) -> Started:
        """Queue one step without waiting for it; None takes the id that the step before will have chosen.

        `how` is what a sampler's `words` give. With several of them as many steps are queued, each of which takes the
        one id that the step before it chose.
        """
        start = host_clock()
        stats = CallStats()
        fed = ids is None or list(ids) == [self._held]
        given = [_STAND_IN if fed else np.asarray([ids]), np.asarray([position])]
        tokens, at = given if fed and self._stepped else self._checked(given)
        steps = [(tokens, at + k, words) for k, words in enumerate(how)]
        ticket = self.runners[0].start(steps, stats, fed=fed, timed=timed)
        self._stepped, self._held = given[0].shape == _STAND_IN.shape, None  # a shape that was checked; not known yet
        stats.host_ns += host_clock() - start
        self._last = Started(ticket, stats, len(how))
        return self._last

    def finish(self, started: Started) -> list[int]:
        """The ids that started steps chose."""
        start = host_clock()
        self.stats = stats = started.stats
        chosen: list[int] = self.runners[0].executor.collect(started.ticket, stats)[0].reshape(-1).tolist()
        self._held = chosen[-1] if started is self._last else None
        stats.host_ns += host_clock() - start
        return chosen

    @property
    def cache_nbytes(self) -> int:
        """GPU memory of the KV caches."""
        return sum(runner.executor.resident.state_nbytes for runner in self.runners)

    def reset(self) -> None:
        """Empty the KV caches."""
        for runner in self.runners:
            runner.executor.reset()
        self.interpreter.reset()

    def _checked(self, inputs: Sequence[Any]) -> list[Array]:
        specs = self.inputs
        if len(inputs) != len(specs):
            raise ShapeError(f"{len(inputs)} inputs given, {self.method.name} takes {len(specs)}")
        out = []
        for i, (given, spec) in enumerate(zip(inputs, specs, strict=True)):
            array = np.asarray(given)
            if array.dtype != spec.dtype and array.dtype.kind not in ("fiu" if spec.dtype.startswith("f") else "iub"):
                raise ShapeError(f"input {i} is {array.dtype}, {self.method.name} takes {spec.dtype}")
            if array.shape != spec.dims:
                self._check_dims(i, array.shape, spec)
            if array.dtype.kind in "iu" and array.size:
                least, most, rows = array.min(), array.max(), self._tables.get(i)
                if rows is not None and not 0 <= least <= most < rows:
                    bad = least if least < 0 else most
                    raise ShapeError(f"input {i} has {bad}, the table that it picks from has {rows} rows")
                if most > 2**31 - 1 or least < -(2**31):
                    raise ShapeError(f"input {i} has a value that does not fit 32 bits")
            out.append(array.astype(spec.dtype, copy=False))
        return out

    def _check_dims(self, i: int, dims: Dims, spec: pte.Tensor) -> None:
        if len(dims) != len(spec.dims):
            raise ShapeError(f"input {i} has rank {len(dims)} {list(dims)}, {self.method.name} takes {list(spec.dims)}")
        for axis, (n, most) in enumerate(zip(dims, spec.dims, strict=True)):
            if n > most or (spec.dynamism == "static" and n != most):
                bound = "exactly" if spec.dynamism == "static" else "at most"
                raise ShapeError(f"input {i}: dim {axis} is {n}, {self.method.name} takes {bound} {most}")


def _check_kv(engines: Sequence[Engine], kv: str) -> None:
    """Only attention that fusion made keeps a cache of its own, in a form of its own."""
    graphs = [engine.graph for engine in engines]
    fused = any(node.op.remember for graph in graphs for node in graph.nodes)
    if kv != "f32" and (not fused or any(t.mutable for graph in graphs for t in graph.tensors.values())):
        raise UnsupportedError(f"a KV cache that is not fused with its attention can't be {kv}; try --kv f32")
