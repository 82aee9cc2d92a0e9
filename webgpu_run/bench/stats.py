"""Statistics of repeated measurements: summaries, intervals, outliers, and the ratio of two sets of samples.

Samples are in the order of time. A machine that others use, or that gets warm, is slower for a while and then faster
again, so neighbouring samples are alike, and the usual interval, which assumes that they are independent, is too
narrow. Slow changes show in the first cosines of the samples' spectrum. We therefore estimate the variance of the mean
from the first two cosines (two degrees of freedom) and by the usual formula, and take the larger one. A change that is
slower than a whole run cannot be seen within that run.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

OUTLIER = 14.826  # an outlier is this many median distances from the median (hyperfine's threshold)
WAVES = 2  # cosines that the interval is estimated from
WIDEST = 2.0  # an interval from less than half to more than twice the value is not shown
MATTERS = 0.1  # and at least this share of the median, because in very even samples outliers are harmless
_T95 = (
    (1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (6, 2.447), (7, 2.365), (8, 2.306), (9, 2.262),
    (10, 2.228), (12, 2.179), (15, 2.131), (20, 2.086), (30, 2.042), (60, 2.000), (120, 1.980), (math.inf, 1.960),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of samples; `low` and `high` enclose the mean with 95% confidence (None for a single sample)."""

    count: int
    mean: float
    sd: float
    median: float
    p90: float
    least: float
    most: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, samples: Sequence[float]) -> Summary:
        mean, n = statistics.fmean(samples), len(samples)
        sd = statistics.stdev(samples) if n > 1 else 0.0
        half = t95(min(WAVES, n - 1)) * math.sqrt(spread(samples)) if n > 1 else None
        low, high = (mean - half, mean + half) if half is not None else (None, None)
        return cls(
            n, mean, sd, statistics.median(samples), quantile(samples, 0.9), min(samples), max(samples), low, high
        )


def spread(samples: Sequence[float]) -> float:
    """The variance of the mean of two or more samples in the order of time."""
    n = len(samples)
    waves = [
        sum(x * math.cos(math.pi * j * (i + 0.5) / n) for i, x in enumerate(samples)) ** 2 * 2 / n
        for j in range(1, min(WAVES, n - 1) + 1)
    ]
    return max(statistics.fmean(waves), statistics.variance(samples)) / n


def t95(freedom: float) -> float:
    """Student's t for a two-sided 95% interval, interpolated linearly in 1/freedom between the rows of the table."""
    if freedom <= 1:
        return _T95[0][1]
    for (a, ta), (b, tb) in itertools.pairwise(_T95):
        if freedom <= b:
            share = (1 / a - 1 / freedom) / (1 / a - 1 / b)
            return ta + share * (tb - ta)
    return _T95[-1][1]


def quantile(samples: Sequence[float], q: float) -> float:
    """The q-quantile of the samples, interpolated linearly between neighbours."""
    ordered = sorted(samples)
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def scores(samples: Sequence[float]) -> list[float]:
    """Modified z-scores: distance from the median in units of the median distance."""
    middle = statistics.median(samples)
    unit = statistics.median(abs(s - middle) for s in samples)
    return [
        0.0 if s == middle else (s - middle) / unit if unit else math.copysign(math.inf, s - middle) for s in samples
    ]


def outliers(samples: Sequence[float]) -> list[int]:
    """Indices of samples that are outliers: many median distances away, and far enough to matter."""
    if len(samples) < 4:
        return []
    middle = statistics.median(samples)
    far = (abs(z) > OUTLIER for z in scores(samples))
    return [i for i, (s, f) in enumerate(zip(samples, far, strict=True)) if f and abs(s / middle - 1) > MATTERS]


@dataclass(frozen=True, slots=True)
class Ratio:
    """The mean of b over the mean of a. `half` is half the width of the 95% interval of its logarithm.

    It is None if a or b is a single sample.
    """

    value: float
    half: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval; None if it reaches further than a factor of WIDEST, because it says nothing then."""
        if self.half is None or self.half > math.log(WIDEST):
            return None
        return self.value * math.exp(-self.half), self.value * math.exp(self.half)

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes 1, so that the difference is not chance."""
        return self.is_beyond(0.0)

    def is_beyond(self, margin: float) -> bool:
        """Whether the whole interval is further from 1 than the margin, on one side."""
        return self.half is not None and abs(math.log(self.value)) - self.half > math.log(1 + margin)

    def is_within(self, margin: float) -> bool:
        """Whether the whole interval is closer to 1 than the margin, so that the two are the same for a user."""
        return self.half is not None and abs(math.log(self.value)) + self.half <= math.log(1 + margin)

    def rounds(self, count: int, margin: float) -> int | None:
        """How many rounds would settle it, if `count` rounds gave this: the width falls with their square root."""
        if self.half is None:
            return None
        distance = abs(math.log(self.value))
        target = max(distance, math.log(1 + margin) - distance)  # significant, or within the margin
        return max(count + 1, math.ceil(count * (self.half / target) ** 2))


def ratio(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """The ratio of the means of two sets of positive samples, with Welch's interval of its logarithm."""
    means = [statistics.fmean(s) for s in (a, b)]
    value = means[1] / means[0]
    if len(a) < 2 or len(b) < 2:
        return Ratio(value, None)
    va, vb = (spread([x / mean for x in s]) for s, mean in zip((a, b), means, strict=True))
    if va + vb == 0:
        return Ratio(value, 0.0)
    fa, fb = (min(WAVES, len(s) - 1) for s in (a, b))
    freedom = (va + vb) ** 2 / (va**2 / fa + vb**2 / fb)
    return Ratio(value, t95(freedom) * math.sqrt(va + vb))
