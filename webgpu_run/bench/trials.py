"""Measures a language model: prefill of several lengths and decode, each at several depths of the KV cache.

A round runs every trial once. A machine that is slower for a while then slows down all trials, and shows in the spread
of each instead of in the difference between two. Wall times are measured without timestamps, with the same submissions
as in a normal run. GPU times come from separate repetitions, because timestamps need one pass per dispatch, which is
slower.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import ShapeError
from ..formats.pte import Method, Program, Tensor
from ..gpu.callstats import CallStats
from ..gpu.device import Device
from ..graph.graph import Graph
from ..graph.planner import Engine
from ..llm.session import Interface
from ..ops.choice import GREEDY
from ..runtime.batch import Batch
from ..runtime.batch import Row as BatchRow
from ..runtime.decode import Decoder
from ..runtime.model import Model
from ..shapes import Array
from .energy import Meter, used

MIN_ROUNDS, MAX_ROUNDS = 5, 30  # if their number is not given
TIMED_STEPS = 4  # decode steps per round that are also timed on the GPU
SETTLE = 2  # decode steps that bring the model back to the shapes of decode


@dataclass(frozen=True, slots=True)
class Trial:
    """One row: prefill or decode of `tokens` tokens, with `depth` tokens in the cache before.

    A prefill with `generate` is followed by a decode of that many tokens, and the time is that of both. With `batch`,
    that many sequences are decoded at the same time, each for `tokens` tokens.
    """

    decode: bool
    tokens: int
    depth: int = 0
    generate: int = 0
    batch: int = 0

    @property
    def label(self) -> str:
        more = f"+tg{self.generate}" if self.generate else f" b{self.batch}" if self.batch else ""
        return f"{'tg' if self.decode else 'pp'}{self.tokens}{more}" + (f" @ d{self.depth}" if self.depth else "")

    @property
    def phase(self) -> str:
        if self.batch:
            return "batch"
        return "decode" if self.decode else "both" if self.generate else "prefill"

    @property
    def total(self) -> int:
        """Tokens of all sequences."""
        return (self.tokens + self.generate) * max(1, self.batch)


def trials(
    seq_lens: Sequence[int],
    decodes: Sequence[int],
    depths: Sequence[int],
    both: Sequence[tuple[int, int]] = (),
    batches: Sequence[int] = (),
) -> list[Trial]:
    """The cross product, sorted by depth, so that the cache is filled once for each depth."""
    return [
        trial
        for depth in depths
        for trial in (
            *(Trial(False, n, depth) for n in seq_lens if n),
            *(Trial(True, n, depth) for n in decodes if n),
            *(Trial(True, n, depth, batch=count) for n in decodes if n for count in batches),
            *(Trial(False, n, depth, generate) for n, generate in both),
        )
    ]


def rounds(repeat: int | None, budget: float) -> Iterator[int]:
    """`repeat` rounds, or as many as should end within `budget` seconds, but at least MIN_ROUNDS."""
    start = time.monotonic()
    for i in range(repeat or MAX_ROUNDS):
        yield i
        done = i + 1
        if repeat is None and done >= MIN_ROUNDS and (time.monotonic() - start) * (done + 1) / done > budget:
            return


@dataclass(frozen=True, slots=True)
class LengthLimits:
    """The lengths that a model can run."""

    largest: int  # tokens per call
    capacity: int  # positions
    vocab: int
    exact: bool  # a call takes exactly `largest` tokens

    @classmethod
    def of(cls, program: Program, method: Method, device: Device | None = None) -> LengthLimits:
        """The limits that the file states; with a device, also those of its plans."""
        known = Interface.of(method, program.metadata)
        tokens = method.values[method.inputs[0]]
        exact = isinstance(tokens, Tensor) and tokens.dynamism == "static"
        capacity = known.capacity
        for delegate in method.delegates if device else ():
            if delegate.graph is not None and device is not None:
                plans = Engine(Graph(delegate.graph, delegate.constant), device.limits).plans
                capacity = min([capacity, *(b.high + known.largest for plan in plans for b in plan.bounds)])
        return cls(known.largest, capacity, known.vocab, exact)

    def problem(self, trial: Trial) -> str | None:
        """Why this model cannot run this trial; None if it can."""
        most = self.capacity - trial.depth
        if most < 1:
            return f"{trial.label}: the model holds {self.capacity} tokens, the maximum depth is {self.capacity - 1}"
        if (tokens := trial.tokens + trial.generate) > most:
            at = f" at depth {trial.depth}" if trial.depth else ""
            return f"{trial.label}: {tokens} tokens do not fit{at}, the maximum is {most}"
        lengths = (trial.depth, 1 if trial.decode else trial.tokens, int(trial.generate > 0))
        if self.exact and any(n % self.largest for n in lengths):
            return f"{trial.label}: this model takes exactly {self.largest} tokens per call"
        return None

    def check(self, todo: Sequence[Trial], asked: Sequence[Trial]) -> None:
        """Refuse a requested trial that cannot run, and a depth at which none of the default trials can."""
        for depth in dict.fromkeys(t.depth for t in todo):
            rest = [t for t in todo if t.depth == depth and t not in asked]
            if all(self.problem(t) for t in rest):
                asked = [*asked, *sorted(rest, key=lambda t: t.tokens)[:1]]
        for trial in asked:
            problem = self.problem(trial)
            if problem:
                raise ShapeError(problem)


@dataclass(frozen=True, slots=True)
class Sample:
    """One repetition of a trial, in nanoseconds.

    For a decode, `gaps` has the time between the arrival of each token on the host and of the one before it. Tokens of
    one submission arrive together. `shares` has each token's share of the time of its submission.
    """

    wall: int
    host: int
    wait: int
    shares: tuple[int, ...] = ()
    gaps: tuple[int, ...] = ()


@dataclass(slots=True)
class OpTime:
    """Time and work of the dispatches of one op with one kernel, in one timed prefill or step."""

    op: str
    kernel: str
    route: str
    count: int = 0
    gpu_ns: int = 0
    nbytes: int = 0
    flops: int = 0


@dataclass(slots=True)
class Measured:
    """All measurements of a trial so far. For a decode, GPU times and work are those of one token."""

    trial: Trial
    samples: list[Sample] = field(default_factory=list)  # one per round, in the order of time
    first_ns: int = 0  # the first run, which plans and compiles
    ttft_ns: list[int] = field(default_factory=list)  # prefills that follow a decode step, as a second prompt would
    joules: list[dict[str, float]] = field(default_factory=list)  # of each sample, by what reports them
    gpu_ns: list[int] = field(default_factory=list)
    ops: list[list[OpTime]] = field(default_factory=list)  # of each of the times in `gpu_ns`
    works: list[tuple[int, int]] = field(default_factory=list)
    working_set: int = 0
    dispatches: int = 0
    calls: int = 0

    @property
    def rates(self) -> list[float]:
        """Tokens per second."""
        return [self.trial.total / s.wall * 1e9 for s in self.samples]

    @property
    def latencies(self) -> list[float]:
        """Milliseconds per prefill, or between two tokens as they arrive."""
        if self.trial.decode:
            return [ns / 1e6 for s in self.samples for ns in s.gaps]
        return [s.wall / 1e6 for s in self.samples]

    @property
    def steps(self) -> list[float]:
        """Milliseconds of each decode step: a token's share of its submission."""
        return [ns / 1e6 for s in self.samples for ns in s.shares]

    @property
    def compile_ms(self) -> float:
        """How much longer the first run took than the others: planning, and compiling kernels that are not cached."""
        return max(0.0, self.first_ns - statistics.median(s.wall for s in self.samples)) / 1e6

    @property
    def gpu(self) -> tuple[int, list[OpTime]] | None:
        """Nanoseconds on the GPU and ops of the median timed run; other programs make some runs much slower."""
        if not self.gpu_ns:
            return None
        middle = self.gpu_ns.index(statistics.median_low(self.gpu_ns))
        return self.gpu_ns[middle], self.ops[middle]

    def per(self, name: str) -> float:
        """Mean milliseconds (wall, host or wait) per prefill, or per token."""
        mean = statistics.fmean(getattr(s, name) for s in self.samples) / 1e6
        return mean / self.trial.tokens if self.trial.decode else mean


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
        before = model.device.allocated
        self._batch = Batch(model, sequences) if sequences > 1 else None
        self.batch_bytes = model.device.allocated - before

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
        return _sample(wall, stats)

    def _decode(self, trial: Trial) -> Sample:
        """Greedy steps. A token arrives when its id is on the host."""
        model, position, stats, shares = self.model, trial.depth, list[CallStats](), list[int]()
        arrivals = [time.perf_counter_ns()]
        ids = self._ids(position, position + 1)
        for i in range(trial.tokens):
            if model.chooses:
                got = self._decoder.next(ids[0], position + i, lambda _: GREEDY, left=trial.tokens - 1 - i)
                ids = [got.id]
                stats.append(got.stats)
                shares.append(got.wall_ns)
            else:
                ids = [int(np.argmax(self._logits(ids, position + i)))]
                stats.append(model.stats)
            arrivals.append(time.perf_counter_ns())
        gaps = tuple(b - a for a, b in itertools.pairwise(arrivals))
        self._filled = max(self._filled, position + trial.tokens)
        return _sample(arrivals[-1] - arrivals[0], stats, tuple(shares) or gaps, gaps)

    def _decode_batch(self, trial: Trial) -> Sample:
        """Greedy steps of several sequences. What the cache holds before `depth` has no influence on the speed."""
        assert self._batch
        stats, arrivals = list[CallStats](), [time.perf_counter_ns()]
        tokens = self._ids(trial.depth, trial.depth + trial.batch)
        for i in range(trial.tokens):
            rows = [BatchRow(token, k, trial.depth + i, words=GREEDY) for k, token in enumerate(tokens)]
            tokens, _, of_call = self._batch.run(rows)
            stats.append(of_call)
            arrivals.append(time.perf_counter_ns())
        gaps = tuple(b - a for a, b in itertools.pairwise(arrivals))
        return _sample(arrivals[-1] - arrivals[0], stats, gaps, gaps)

    def _timed_batch(self, trial: Trial, position: int) -> tuple[CallStats, list[tuple[int, int]]]:
        """One step of a batch with timestamps, and the work of its dispatches."""
        assert self._batch
        tokens = self._ids(position, position + trial.batch)
        rows = [BatchRow(token, k, position, words=GREEDY) for k, token in enumerate(tokens)]
        stats = self._batch.run(rows, timed=True)[2]
        return stats, [c.step.work for c in self._batch.executor.commands()]

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


def _sample(wall: int, stats: Sequence[CallStats], shares: tuple[int, ...] = (), gaps: tuple[int, ...] = ()) -> Sample:
    return Sample(wall, sum(s.host_ns for s in stats), sum(s.wait_ns for s in stats), shares, gaps)
