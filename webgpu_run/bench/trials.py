"""What to measure of a language model: prefills and decodes of several lengths, at several depths of the KV cache."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import ShapeError
from ..formats.pte import Method, Program, Tensor
from ..gpu.device import Device
from ..graph.graph import Graph
from ..graph.planner import Engine
from ..llm.session import Interface

MIN_ROUNDS, MAX_ROUNDS = 5, 30  # if their number is not given


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
