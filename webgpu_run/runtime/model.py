"""A loaded model: runs a method's execution plan, its delegates on the GPU and the kernels between them on the CPU."""

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
from ..gpu.executor import Ticket, Watch
from ..gpu.residency import ProgressCallback
from ..gpu.tune import open_tuned
from ..graph import budget
from ..graph.boundary import graph_errors
from ..graph.lower import planned
from ..graph.passes.all_rows import all_rows as with_all_rows
from ..graph.passes.pick import PICK
from ..graph.planner import Engine
from ..ops.choice import GREEDY
from ..ops.limits import Limits
from ..ops.plan import TURNS
from ..shapes import Array, Dims
from .bfloat16 import stored
from .interpreter import Interpreter
from .runner import Runner
from .support import check_method, notes

_PLACEHOLDER = np.zeros((1, 1), np.int64)  # for a token id that is in device memory


@dataclass(frozen=True, slots=True)
class Started:
    """Decode steps that are queued, and not read yet."""

    ticket: Ticket
    stats: CallStats
    turns: int


class Model:
    """A method of a program on a device. `run` takes and returns numpy arrays at live shapes."""

    def __init__(
        self,
        program: pte.Program,
        device: Device | str | None = None,
        *,
        method: str | None = None,
        fuse: bool = True,
        tune: bool = True,
        kv: str = "f32",
        all_rows: bool = False,
        verify: int = 0,
        progress: ProgressCallback | None = None,
        is_checked: bool = False,
    ) -> None:
        self.program = program
        self.method = program.method(method)
        if not is_checked:
            check_method(self.method)
        if all_rows:
            with graph_errors(f"{self.method.name!r}"):
                self.method = with_all_rows(self.method)
        # What `run` takes and returns; an integer is a tensor of rank 0. Dynamic dims are given by their upper bounds.
        found = [pte.input_spec(self.method.values[i]) for i in self.method.inputs]
        self.inputs = tuple(spec for spec in found if spec is not None)
        results = (self.method.values[i] for i in self.method.outputs)
        self.outputs = tuple(v for v in results if isinstance(v, pte.Tensor))
        self.metadata = program.metadata
        self.notes = notes(self.method)
        self.interpreter = Interpreter(self.method)
        self.device = device if isinstance(device, Device) else open_tuned(device, tune=tune)
        if kv not in ("auto", "f32", "f16"):
            raise UsageError(f"kv is {kv!r}, expected auto, f32 or f16")
        self.stats = CallStats()
        self.most_verified = 0  # tokens that `verify` takes
        self.no_verify = ""  # why it takes none
        chosen = auto_kv(self.device.limits) if kv == "auto" else kv
        engines = self._planned(chosen, fuse=fuse, verify=verify, is_auto=kv == "auto")
        with graph_errors(f"{self.method.name!r}"), self.device.lock:
            budget.check(engines, self.device.limits, self.device.max_buffer)
            self.runners = [
                Runner(delegate, self.device, progress=progress, engine=engine)
                for delegate, engine in zip(self.method.delegates, engines, strict=True)
            ]
            self.tables = dict(self._picks())
        self._was_one_token = False  # whether the last step had a single token
        self._last_started: Started | None = None
        # The id the device chose last, if nothing has run since; it is still in device memory, so it is not uploaded.
        self._id_on_device: int | None = None

    def _planned(self, kv: str, *, fuse: bool, verify: int, is_auto: bool) -> list[Engine]:
        """The delegates' graphs with KV caches in this format, or in f32 if `is_auto` and they can't be stored so."""
        if kv != self.device.limits.kv:
            self.device = copy.copy(self.device)
            self.device.limits = replace(self.device.limits, kv=kv)
        engines = self._verifying_engines(verify, fuse) if verify else []
        engines = engines or [planned(d, self.device.limits, fuse=fuse) for d in self.method.delegates]
        if kv == "f32" or _can_be_half(engines):
            return engines
        if is_auto:
            return self._planned("f32", fuse=fuse, verify=verify, is_auto=False)
        raise UnsupportedError(f"a KV cache that is not fused with its attention can't be {kv}; try --kv f32")

    def _verifying_engines(self, rows: int, fuse: bool) -> list[Engine]:
        """The engine of a method that can return the logits of `rows` tokens, or none; `no_verify` then says why."""
        tokens = self.inputs[0].dims if self.inputs else ()
        rows = min(rows, tokens[-1]) if tokens else 0
        try:
            if len(self.method.delegates) != 1 or len(self.method.instructions) != 1:
                raise UnsupportedError("the model is more than one delegate")
            if rows < 2 or self.inputs[0].dynamism == "static":
                raise UnsupportedError("the model takes a fixed number of tokens per call")
            engines = [planned(self.method.delegates[0], self.device.limits, fuse=fuse, rows=rows)]
            if not fuse or engines[0].graph.nodes[-1].op.name != PICK:
                raise UnsupportedError("the device does not choose the tokens of this model")
        except UnsupportedError as error:
            self.no_verify = str(error)
            return []
        self.most_verified = rows
        return engines

    def _picks(self) -> Iterator[tuple[int, int]]:
        """(input, rows) for every input that indexes a table. Checked on the host, because kernels clamp the index."""
        for step in self.method.instructions:
            if isinstance(step, pte.DelegateCall):
                graph = self.runners[step.delegate].graph
                for given, v in zip(step.args, graph.input_ids, strict=False):
                    for node in (graph.nodes[i] for i in graph.readers.get(v, ())):
                        if given in self.method.inputs and v in (node.tensors[n] for n in node.op.named("index")):
                            (table,) = node.op.named("table")
                            yield self.method.inputs.index(given), graph.tensors[node.tensors[table]].max_dims[0]

    def run(self, inputs: Sequence[Any], *, timed: bool = False, watch: Watch | None = None) -> list[Array]:
        """Run the method once. `stats` then says where the time went.

        `inputs` are all inputs, or all but the numbers that the exporter fixed. `watch` is called now and then in a
        call that takes long, with the share of a delegate that is done.
        """
        start = host_clock()
        self.device.check()
        with self.device.lock:
            given = self._checked(inputs)
            self.stats = stats = CallStats()
            self._id_on_device = self._last_started = None
            with graph_errors(f"{self.method.name!r}"):
                outs = self.interpreter.run(
                    given, lambda i, args: self.runners[i].call(args, stats, timed=timed, watch=watch)
                )
            stats.host_ns += host_clock() - start
            return [np.asarray(out) for out in outs]

    @property
    def chooses(self) -> bool:
        """Whether `start` works: the method is a single delegate that takes ids and a position and returns logits."""
        return (
            len(self.runners) == len(self.method.instructions) == 1
            and len(self.method.inputs) == 2
            and self.runners[0].pick is not None
            and self.runners[0].visitor is None
        )

    @property
    def most_turns(self) -> int:
        """The most steps that `start` queues at once: one, if a plan depends on the position itself."""
        return TURNS if self.runners[0].engine.only_slots else 1

    def start(
        self, ids: Sequence[int] | None, position: int, words: Sequence[Array] = (GREEDY,), *, timed: bool = False
    ) -> Started:
        """Queue decode steps without waiting for them, one for each entry of `words`, a sampler's words.

        The first step takes `ids`, or, if that is None, the id that the step before it chooses; every other step takes
        the id of the step before it.
        """
        start = host_clock()
        self.device.check()
        with self.device.lock:
            from_device = ids is None or list(ids) == [self._id_on_device]
            if ids is None and self._last_started is None:
                raise UsageError("no step is queued whose id could be taken: another call has run since")
            self._id_on_device = self._last_started = None
            stats = CallStats()
            inputs = [_PLACEHOLDER if from_device else np.asarray([ids]), np.asarray([position])]
            tokens, at = inputs if from_device and self._was_one_token else self._checked(inputs)
            steps = [(tokens, at + k, choice) for k, choice in enumerate(words)]
            with graph_errors(f"{self.method.name!r}"):
                ticket = self.runners[0].start(steps, stats, from_device=from_device, timed=timed)
            self._was_one_token = inputs[0].shape == _PLACEHOLDER.shape
            stats.host_ns += host_clock() - start
            self._last_started = Started(ticket, stats, len(words))
            return self._last_started

    def finish(self, started: Started) -> list[int]:
        """Wait for started steps, and return the ids they chose."""
        start = host_clock()
        self.device.check()
        with self.device.lock:
            self.stats = stats = started.stats
            chosen: list[int] = self.runners[0].executor.collect(started.ticket, stats)[0].reshape(-1).tolist()
            if started is self._last_started:
                self._id_on_device = chosen[-1]
            stats.host_ns += host_clock() - start
            return chosen

    def verify(self, ids: Sequence[int], position: int) -> Array:
        """Run these tokens, at most `most_verified`, and return a row of logits for each."""
        start = host_clock()
        self.device.check()
        with self.device.lock:
            given = self._checked([np.asarray([ids]), np.asarray([position])])
            self.stats = stats = CallStats()
            self._id_on_device = self._last_started = None
            self._was_one_token = False
            with graph_errors(f"{self.method.name!r}"):
                logits = self.runners[0].call(given, stats, rows=len(ids))[0]
            stats.host_ns += host_clock() - start
            rows: Array = logits.reshape(len(ids), -1)
            return rows

    @property
    def cache_nbytes(self) -> int:
        """Bytes of the KV caches on the device."""
        return sum(runner.executor.resident.state_nbytes for runner in self.runners)

    def reset(self) -> None:
        """Empty the KV caches."""
        self.device.check()
        with self.device.lock:
            for runner in self.runners:
                runner.executor.reset()
            self.interpreter.reset()

    def _checked(self, inputs: Sequence[Any]) -> list[Array]:
        specs = [self.method.values[v] for v in self.method.inputs]
        if len(inputs) == len(self.inputs) < len(specs):
            varying = iter(inputs)
            inputs = [spec if pte.input_spec(spec) is None else next(varying) for spec in specs]
        if len(inputs) != len(specs):
            raise ShapeError(f"{len(inputs)} inputs given, {self.method.name} takes {len(specs)}")
        out = []
        for i, (given, value) in enumerate(zip(inputs, specs, strict=True)):
            spec = pte.input_spec(value)
            if spec is None:
                if given != value:
                    raise ShapeError(f"input {i} is {given}, {self.method.name} was exported for {value}")
                out.append(given)
                continue
            array = np.asarray(given)
            kinds = "fiu" if spec.array_dtype.startswith("f") else "iub"
            if array.dtype != spec.array_dtype and array.dtype.kind not in kinds:
                raise ShapeError(f"input {i} is {array.dtype}, {self.method.name} takes {spec.dtype}")
            if array.shape != spec.dims:
                self._check_dims(i, array.shape, spec)
            if array.dtype.kind in "iu" and array.size:
                least, most, rows = array.min(), array.max(), self.tables.get(i)
                if rows is not None and not 0 <= least <= most < rows:
                    bad = least if least < 0 else most
                    raise ShapeError(f"input {i} has {bad}, the table that it picks from has {rows} rows")
                if most > 2**31 - 1 or least < -(2**31):
                    raise ShapeError(f"input {i} has a value that does not fit 32 bits")
            out.append(stored(array, spec.dtype) if isinstance(value, pte.Tensor) else array.item())
        return out

    def _check_dims(self, i: int, dims: Dims, spec: pte.Tensor) -> None:
        if len(dims) != len(spec.dims):
            raise ShapeError(f"input {i} has rank {len(dims)} {list(dims)}, {self.method.name} takes {list(spec.dims)}")
        for axis, (n, most) in enumerate(zip(dims, spec.dims, strict=True)):
            if n > most or (spec.dynamism == "static" and n != most):
                bound = "exactly" if spec.dynamism == "static" else "at most"
                raise ShapeError(f"input {i}: dim {axis} is {n}, {self.method.name} takes {bound} {most}")


def auto_kv(limits: Limits) -> str:
    """The format of KV caches where none is asked for: f16 on a GPU that computes with it."""
    return "f16" if limits.f16 and not limits.software else "f32"


def _can_be_half(engines: Sequence[Engine]) -> bool:
    """Whether all KV caches are fused with their attention, which has its own format of them."""
    graphs = [engine.graph for engine in engines]
    fused = any(node.op.remember for graph in graphs for node in graph.nodes)
    return fused and not any(t.mutable for graph in graphs for t in graph.tensors.values())
