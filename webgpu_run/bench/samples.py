"""The measurements of a trial: one sample per round, and the times of its ops on the GPU."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..gpu.callstats import CallStats
from .trials import Trial


@dataclass(frozen=True, slots=True)
class Sample:
    """One repetition of a trial, in nanoseconds.

    The tokens of one submission of a decode are delivered together: `deliveries` has the time from each delivery on the
    host to the next, and how many tokens it had. `shares` has each token's share of the time of its submission.
    """

    wall: int
    host: int
    wait: int
    shares: tuple[int, ...] = ()
    deliveries: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(
        cls,
        wall: int,
        stats: Sequence[CallStats],
        shares: Sequence[int] = (),
        deliveries: Sequence[tuple[int, int]] = (),
    ) -> Sample:
        """A repetition that made the calls of these statistics."""
        host, wait = sum(s.host_ns for s in stats), sum(s.wait_ns for s in stats)
        return cls(wall, host, wait, tuple(shares), tuple(deliveries))


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
        """Milliseconds per prefill, or of a decode, from one delivery of tokens to the next."""
        if self.trial.decode:
            return [ns / 1e6 for s in self.samples for ns, _ in s.deliveries]
        return [s.wall / 1e6 for s in self.samples]

    @property
    def per_delivery(self) -> float | None:
        """Mean number of tokens that a reader of one sequence gets together; None for a prefill."""
        counts = [count for s in self.samples for _, count in s.deliveries]
        return statistics.fmean(counts) if counts else None

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
