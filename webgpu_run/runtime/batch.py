"""A batch of sequences on a device: one graph runs tokens of all of them, each with its own position and KV cache."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import DeviceError, ShapeError, UnsupportedError
from ..gpu.adapters import SMALL
from ..gpu.callstats import CallStats, host_clock
from ..gpu.executor import Executor
from ..gpu.residency import ProgressCallback
from ..gpu.turns import Turn
from ..graph import budget
from ..graph.boundary import graph_errors
from ..graph.lower import planned_batch
from ..graph.planner import Engine
from ..ops.pick_rows import rows_of_words
from ..ops.plan import TURNS
from ..shapes import Array, ceil_div
from .model import Model

MAX_ROWS = 64  # per call, if the batch has no more sequences
TOGETHER_NS = 100_000_000  # longest submission of a decode: longer ones waste more after the end of a reply
LEAST_ROWS = 2  # a single row has kernels of its own, which round differently
LEAST_SHARE = 4  # sequences of a copy of the model: fewer would share the unpacked weights badly
MOST_COPIES = 4  # of a model: more would wait for each other in Python, which records the calls of all


@dataclass(frozen=True, slots=True)
class Row:
    """A token of a sequence. The first `shared` positions of its text, a multiple of 8, are in the cache of `source`.

    `words` are a sampler's words if the token after this one is wanted.
    """

    token: int
    sequence: int
    position: int
    source: int = 0
    shared: int = 0
    words: Array | None = None


class Batch:
    """The model of `sequences` sequences. It uses the weights that the model has on the device."""

    def __init__(self, model: Model, sequences: int, progress: ProgressCallback | None = None) -> None:
        self.model, self.device, self.sequences = model, model.device, sequences
        before, engine = self.device.allocated, plan(model, sequences)
        with graph_errors(f"{model.method.name!r}"), self.device.lock:
            budget.check([engine], self.device.limits, self.device.max_buffer, is_loaded=True)
            uploads = model.runners[0].executor.resident.uploads
            self.executor = Executor(engine, self.device, progress, uploads)
        self.nbytes = self.device.allocated - before  # on the device, without the weights
        self.engine = engine
        graph = engine.graph
        self.most_rows = graph.tensors[graph.input_ids[0]].max_dims[1]
        self.context = min(b.high for p in engine.plans for b in p.bounds) + 1
        (self._vocab,) = set(model.tables.values()) or {2**31 - 1}
        self._ids, self._how = graph.nodes[-1].outs[0], graph.input_ids[-1]
        self._logits = graph.output_ids[0]
        self._step_ns = 0  # of the last decode
        # A batch of one sequence has a second row, which is not chosen for.
        self._most_steps = TURNS if engine.only_slots and sequences >= LEAST_ROWS else 1

    @property
    def cache_nbytes(self) -> int:
        """Bytes of the KV caches of all sequences."""
        return self.executor.resident.state_nbytes

    def run(
        self, rows: Sequence[Row], *, logits: bool = False, timed: bool = False
    ) -> tuple[list[int], Array | None, CallStats]:
        """Run these rows in one call. Returns the ids of the wanted tokens, in the order of the rows.

        With `logits`, also those of the wanted rows. On software adapters a row's result is the same to the bit,
        whatever other rows there are.
        """
        self._check(rows)
        wanted = [i for i, row in enumerate(rows) if row.words is not None]
        words = [row.words for row in rows if row.words is not None]
        read = (self._ids, self._logits) if logits else (self._ids,)
        (ids, *more), stats = self._call(rows, wanted, [words], read, timed=timed)
        count = len(wanted)
        chosen: list[int] = ids.reshape(-1)[:count].tolist()
        return chosen, more[0][:count] if more else None, stats

    def decode(self, rows: Sequence[Row], words: Sequence[Sequence[Array]]) -> tuple[list[list[int]], CallStats]:
        """Run steps of a decode in one submission; `words` has the sampler words of each step, one entry per row.

        `rows` are those of the first step. Each further one has the tokens that the step before it chose, one position
        on. Returns the ids that each step chose.
        """
        start = time.perf_counter_ns()
        if not 0 < len(words) <= self._most_steps:
            raise ShapeError(f"{len(words)} steps, a submission of this batch takes 1 to {self._most_steps}")
        self._check(rows)
        self._check([replace(row, position=row.position + len(words) - 1) for row in rows])
        (ids,), stats = self._call(rows, range(len(rows)), words, (self._ids,))
        chosen: list[list[int]] = ids.reshape(len(words), -1)[:, : len(rows)].tolist()
        self._step_ns = (time.perf_counter_ns() - start - stats.compile_ns) // len(words)
        return chosen, stats

    def together(self, left: int) -> int:
        """How many steps to put into the next submission, if at most `left` are wanted. The first step is alone."""
        count = TOGETHER_NS // self._step_ns if self._step_ns else 1
        return max(1, min(left, count, self._most_steps))

    def _call(
        self,
        rows: Sequence[Row],
        wanted: Sequence[int],
        words: Sequence[Sequence[Array]],
        read: tuple[int, ...],
        *,
        timed: bool = False,
    ) -> tuple[list[Array], CallStats]:
        start, stats = host_clock(), CallStats()
        if wanted:
            padding = [0] * (min(LEAST_ROWS, self.sequences) - len(wanted))
            wanted, words = [*wanted, *(wanted[i] for i in padding)], [[*w, *(w[i] for i in padding)] for w in words]
        # A repeated row writes the same keys and values once more.
        rows = [*rows, *[rows[-1]] * (LEAST_ROWS - len(rows))]
        places = [(row.sequence, row.position, row.source, row.shared) for row in rows]
        hows, last = [rows_of_words(step) for step in words], len(words) - 1
        if len({how.shape for how in hows}) > 1:
            raise ShapeError("the steps of a submission have sampler words of different lengths")
        tokens, place, index = (np.asarray(x, np.int32) for x in ([[row.token for row in rows]], places, wanted))
        steps = [
            [tokens, np.asarray([max(row.position for row in rows) + k], np.int32), place, index, how]
            for k, how in enumerate(hows)
        ]
        self.device.check()
        with self.device.lock, graph_errors(f"{self.model.method.name!r}"):
            self.executor.make_ready([*steps[last][:4], hows[0]], stats, turns=len(steps))
            is_same = all(np.array_equal(how, hows[0]) for how in hows)
            inputs = [() if is_same else ((self._how, how),) for how in hows]
            moved = [self.engine.moved(step) for step in steps] if last else [()]
            turns = [Turn(slots, own) for slots, own in zip(moved, inputs, strict=True)]
            self.executor.readbacks = read
            outs = self.executor.collect(self.executor.submit(stats, timed=timed, turns=turns), stats)
        stats.host_ns += host_clock() - start
        return outs, stats

    def _check(self, rows: Sequence[Row]) -> None:
        if not 0 < len(rows) <= self.most_rows:
            raise ShapeError(f"{len(rows)} rows, a call of this batch takes 1 to {self.most_rows}")
        for row in rows:
            if not 0 <= row.token < self._vocab:
                raise ShapeError(f"token id {row.token} is outside the model's vocabulary of {self._vocab}")
            if not (0 <= row.sequence < self.sequences and 0 <= row.source < self.sequences):
                raise ShapeError(f"sequence {max(row.sequence, row.source)}, the batch has {self.sequences}")
            if not 0 <= row.position < self.context:
                raise ShapeError(f"position {row.position} is outside the context of {self.context}")
            if row.shared % 8 or not 0 <= row.shared <= row.position:
                raise ShapeError(f"{row.shared} shared positions before position {row.position}")


def plan(model: Model, sequences: int) -> Engine:
    """The planned graph of a batch; UnsupportedError if the model does not have the form for it."""
    if not model.chooses:
        raise UnsupportedError("it is not a single delegate with a KV cache")
    return planned_batch(model.method.delegates[0], model.device.limits, sequences, max(MAX_ROWS, sequences))


def copies_of(model: Model, sequences: int) -> int:
    """How many batches share the sequences. Usually it is one.

    But Mesa's driver leaves cores unused if it runs a small model in one thread. Then copies of the model share them.
    """
    is_small = model.device.has_one_thread and model.program.file_size < SMALL
    return max(1, min(_cores(), MOST_COPIES, sequences // LEAST_SHARE)) if is_small else 1


def open_batches(
    model: Model, sequences: int, extra: int = 0, progress: ProgressCallback | None = None
) -> tuple[Batch, ...]:
    """Batches with room for `sequences` sequences together, and for `extra` more in each. Every batch after the first
    has a copy of the model, on a device with an instance of the driver of its own."""
    models = [model]
    with contextlib.suppress(DeviceError):  # the driver may refuse another instance
        while len(models) < copies_of(model, sequences):
            models.append(_copy(model))
    return tuple(Batch(m, ceil_div(sequences, len(models)) + extra, progress) for m in models)


def shares(count: int, batches: Sequence[Batch], extra: int = 0) -> list[int]:
    """How many of `count` sequences each batch gets: at least LEAST_SHARE, if the others have room for that."""
    room = batches[0].sequences - extra
    parts = max(1, min(len(batches), count // LEAST_SHARE), ceil_div(count, room))
    return [(count + parts - 1 - i) // parts for i in range(parts)]


def nbytes_of(batches: Sequence[Batch]) -> int:
    """Bytes on all devices, without those of the model that was there before."""
    return batches[0].nbytes + sum(batch.device.allocated for batch in batches[1:])


def _copy(model: Model) -> Model:
    kv = model.device.limits.kv
    return Model(model.program, model.device.twin(), method=model.method.name, kv=kv, is_checked=True)


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
