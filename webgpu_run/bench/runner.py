"""Measures a language model: runs trials in rounds.

A round runs every trial once. A machine that is slower for a while then slows down all trials, and shows in the spread
of each instead of in the difference between two. Wall times are measured without timestamps, with the same submissions
as in a normal run. GPU times come from separate repetitions, because timestamps need one pass per dispatch, which is
slower.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from ..gpu.callstats import CallStats
from ..llm.session import Interface
from ..ops.choice import GREEDY
from ..runtime.batch import Batch, nbytes_of, open_batches, shares
from ..runtime.batch import Row as BatchRow
from ..runtime.decode import Decoder
from ..runtime.model import Model
from ..shapes import Array
from .energy import Meter, used
from .samples import Measured, OpTime, Sample
from .trials import LengthLimits, Trial

TIMED_STEPS = 4  # decode steps per round that are also timed on the GPU
SETTLE = 2  # decode steps that bring the model back to the shapes of decode


class Bench:
    """Runs trials on a loaded model."""

    def __init__(
        self,
        model: Model,
        reach: LengthLimits,
        *,
        chunk: int | None = None,
        text: Sequence[int] = (),
        sequences: int = 0,
        meter: Meter | None = None,
    ) -> None:
        """`text` are the tokens of prompts, repeated as needed; without it they are pseudo-random.

        `sequences` is the largest batch of a trial.
        """
        self.model, self.reach, self.text, self.meter = model, reach, text, meter
        self.chunk = reach.largest if reach.exact else min(chunk or reach.largest, reach.largest)
        self._filled = 0
        self._decoder = Decoder(model)
        self._batches = open_batches(model, sequences) if sequences > 1 else ()
        self._threads = ThreadPoolExecutor(max(1, len(self._batches)))
        self.batch_bytes = nbytes_of(self._batches) if self._batches else 0

    def run_round(self, measured: Measured, warmup: int) -> None:
        """Add one round to a trial: warm-up, a sample, and in some rounds GPU times."""
        trial, first = measured.trial, not measured.samples
        self._fill(trial.depth)
        for _ in range(warmup if first else 0):
            sample = self._once(trial)
            measured.first_ns = measured.first_ns or sample.wall
        if not first and warmup:
            if trial.decode:
                self._once(replace(trial, tokens=min(trial.tokens, SETTLE)))
            elif not trial.generate:
                self._prompt(measured)
        before = self.meter.read() if self.meter else {}
        measured.samples.append(self._once(trial))
        if self.meter:
            measured.joules.append(used(before, self.meter.read()))
        measured.first_ns = measured.first_ns or measured.samples[0].wall
        if first and trial.phase == "prefill":
            self._prompt(measured)
        if (
            trial.phase != "both" and len(measured.samples).bit_count() == 1
        ):  # rounds 1, 2, 4, 8, ...: few, but spread over the run
            self._timed(measured)

    def _once(self, trial: Trial) -> Sample:
        if trial.batch > 1:
            return self._decode_batch(trial)
        if trial.decode:
            return self._decode(trial)
        prefill = self._prefill(trial.tokens, trial.depth)
        if not trial.generate:
            return prefill
        decode = self._decode(Trial(True, trial.generate, trial.depth + trial.tokens))
        return Sample(*(getattr(prefill, f) + getattr(decode, f) for f in ("wall", "host", "wait")))

    def _prompt(self, measured: Measured) -> None:
        """Measure a prefill that starts from another shape, as a second prompt does."""
        if not self.reach.exact:
            self._prefill(1, measured.trial.depth)
        measured.ttft_ns.append(self._once(measured.trial).wall)

    def _ids(self, start: int, end: int) -> list[int]:
        """Token ids for these positions, the same in every run."""
        if self.text:
            return [self.text[i % len(self.text)] for i in range(start, end)]
        return [(i * 2654435761 >> 8) % self.reach.vocab for i in range(start + 1, end + 1)]

    def _fill(self, depth: int) -> None:
        """Fill the cache up to `depth` tokens; what earlier trials left there may stay."""
        if depth > self._filled:
            self._prefill(depth - self._filled, self._filled)

    def _calls(self, count: int, position: int) -> Iterator[tuple[list[int], int]]:
        for at in range(0, count, self.chunk):
            end = min(at + self.chunk, count)
            yield self._ids(position + at, position + end), position + at

    def _prefill(self, count: int, position: int) -> Sample:
        """Prefill in chunks; it ends when the id of the next token is on the host."""
        stats: list[CallStats] = []
        start = time.perf_counter_ns()
        if self.model.chooses:
            previous = None
            for ids, at in self._calls(count, position):
                started = self.model.start(ids, at)
                if previous:
                    self.model.finish(previous)
                stats.append(started.stats)
                previous = started
            assert previous
            self.model.finish(previous)
        else:
            for ids, at in self._calls(count, position):
                int(np.argmax(self._logits(ids, at)))
                stats.append(self.model.stats)
        wall = time.perf_counter_ns() - start
        self._filled = max(self._filled, position + count)
        return Sample.of(wall, stats)

    def _decode(self, trial: Trial) -> Sample:
        """Greedy steps. A token is delivered when its id is on the host."""
        model, position, stats, shares = self.model, trial.depth, list[CallStats](), list[int]()
        start = last = time.perf_counter_ns()
        deliveries: list[tuple[int, int]] = []
        ids = self._ids(position, position + 1)
        for i in range(trial.tokens):
            is_new = True
            if model.chooses:
                got = self._decoder.next(ids[0], position + i, lambda _: GREEDY, left=trial.tokens - 1 - i)
                ids = [got.id]
                is_new = not stats or got.stats is not stats[-1]  # the tokens of one submission share its statistics
                stats.append(got.stats)
                shares.append(got.wall_ns)
            else:
                ids = [int(np.argmax(self._logits(ids, position + i)))]
                stats.append(model.stats)
            if is_new:
                now = time.perf_counter_ns()
                deliveries.append((now - last, 1))
                last = now
            else:
                ns, count = deliveries[-1]
                deliveries[-1] = (ns, count + 1)
        wall = time.perf_counter_ns() - start
        self._filled = max(self._filled, position + trial.tokens)
        return Sample.of(wall, stats, shares or [ns for ns, _ in deliveries], deliveries)

    def _shares(self, trial: Trial, position: int) -> list[tuple[Batch, list[int]]]:
        """The batches of a trial, each with the tokens of its sequences."""
        tokens = iter(self._ids(position, position + trial.batch))
        counts = shares(trial.batch, self._batches)
        return [(b, list(itertools.islice(tokens, n))) for b, n in zip(self._batches, counts, strict=False)]

    def _decode_batch(self, trial: Trial) -> Sample:
        """Greedy steps of several sequences. What the cache holds before `depth` has no influence on the speed.

        If several batches share the sequences, the sample has the calls of the first one, and the time of all.
        """
        parts, start = self._shares(trial, trial.depth), time.perf_counter_ns()
        others = [self._threads.submit(self._decode_part, trial, *part) for part in parts[1:]]
        stats, deliveries = self._decode_part(trial, *parts[0])
        for other in others:
            other.result()
        each = [ns // count for ns, count in deliveries for _ in range(count)]
        return Sample.of(time.perf_counter_ns() - start, stats, each, deliveries)

    def _decode_part(
        self, trial: Trial, batch: Batch, tokens: list[int]
    ) -> tuple[list[CallStats], list[tuple[int, int]]]:
        """The steps of one batch: the statistics of its calls, and the time and tokens of each delivery."""
        stats, deliveries, done, last = list[CallStats](), list[tuple[int, int]](), 0, time.perf_counter_ns()
        while done < trial.tokens:
            rows = [BatchRow(token, k, trial.depth + done) for k, token in enumerate(tokens)]
            count = batch.together(trial.tokens - done)
            (*_, tokens), of_call = batch.decode(rows, [[GREEDY] * len(rows)] * count)
            now = time.perf_counter_ns()
            stats.append(of_call)
            deliveries.append((now - last, count))
            done, last = done + count, now
        return stats, deliveries

    def _timed_batch(self, trial: Trial, position: int) -> tuple[CallStats, list[tuple[int, int]]]:
        """One step of a batch with timestamps, and the work of its dispatches. If several batches share the sequences,
        it is a step of the first one: the others take the same time in parallel."""
        batch, tokens = self._shares(trial, position)[0]
        rows = [BatchRow(token, k, position, words=GREEDY) for k, token in enumerate(tokens)]
        stats = batch.run(rows, timed=True)[2]
        return stats, [c.step.work for c in batch.executor.commands()]

    def _logits(self, ids: Sequence[int], position: int, *, timed: bool = False) -> Array:
        """The logits of the last token."""
        positions = Interface.of(self.model.method, self.model.metadata).positions(position, len(ids))
        logits = self.model.run([np.asarray([ids]), np.asarray(positions)], timed=timed)[0]
        row: Array = logits.reshape(-1, logits.shape[-1])[-1]
        return row

    def timed(self, trial: Trial) -> CallStats:
        """One prefill in one call, with timestamps."""
        return self._call(self._ids(trial.depth, trial.depth + trial.tokens), trial.depth)

    def _call(self, ids: Sequence[int], position: int) -> CallStats:
        """One call, with timestamps if the adapter has them."""
        if self.model.chooses:
            self.model.finish(self.model.start(ids, position, timed=True))
        else:
            self._logits(ids, position, timed=True)
        return self.model.stats

    def _timed(self, measured: Measured) -> None:
        """Measure GPU time by op, and add up the work that the dispatches declare."""
        trial, stamps = measured.trial, self.model.device.timestamps
        for i in range(min(trial.tokens, TIMED_STEPS) if trial.decode and stamps else 1):
            if trial.decode:
                calls = [(self._ids(trial.depth + i, trial.depth + i + 1), trial.depth + i)]
            else:
                calls = list(self._calls(trial.tokens, trial.depth))
            gpu_ns, works, working_set = 0, list[tuple[int, int]](), 0
            ops: dict[tuple[str, str, str], OpTime] = {}
            for ids, at in calls:
                if trial.batch > 1:
                    stats, of_call = self._timed_batch(trial, at)
                else:
                    stats = self._call(ids, at)
                    of_call = [c.step.work for runner in self.model.runners for c in runner.executor.commands()]
                gpu_ns += stats.gpu_ns
                working_set = max(working_set, sum(nbytes for nbytes, _ in of_call))
                works += of_call
                for d in stats.timed:
                    key = (d.op, d.kernel, d.route)
                    row = ops.setdefault(key, OpTime(*key))
                    row.count += 1
                    row.gpu_ns += d.gpu_ns
                    row.nbytes += d.work[0]
                    row.flops += d.work[1]
            if stamps:
                measured.gpu_ns.append(gpu_ns)
                measured.ops.append(list(ops.values()))
            measured.works, measured.working_set = works, working_set
            measured.dispatches, measured.calls = len(works), len(calls)
