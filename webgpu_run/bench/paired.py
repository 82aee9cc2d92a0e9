"""What pairs of calls, one of each side right after the other, say about the ratio of two speeds.

The estimate is the median of the ratios of the pairs, because another program that interrupts one call in five changes
the mean of the ratios by far more than what is to be found, but hardly their median. Its interval is between two of the
sorted ratios, which needs no assumption about how times are distributed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..shapes import Array

PROCESSES = 0.02  # processes that run the same code differ by this much, so a smaller difference is not called one
Z99 = 2.576  # standard deviations of a 99% interval
# Standard errors beyond 2 % at which the rounds may end early. With many looks, chance exceeds them once in 500 runs:
# a calculation that assumes independent calls, which those of a busy machine are not.
SURE = 4.0
WIDEST = math.log(2.0)  # an interval that reaches further than a factor of two says nothing


@dataclass(frozen=True, slots=True)
class Paired:
    """The ratio of the speeds of b and a. `low` and `high` enclose its logarithm; both are None for too few pairs.

    `a` and `b` are typical speeds: the median of all pairs, with exactly this ratio between them.
    """

    a: float
    b: float
    count: int
    low: float | None
    high: float | None

    @classmethod
    def of(cls, a: Sequence[float], b: Sequence[float], deviations: float = Z99) -> Paired:
        """Speeds of each pair, in the order of time."""
        logs = np.log(np.array([a, b]))
        differences = np.sort(logs[1] - logs[0])
        count = len(differences)
        middle, half = float(np.median(logs.mean(0))), float(np.median(differences)) / 2
        # Of `count` independent ratios, this many more or less than half are below the true median.
        reach = deviations / 2 * math.sqrt(count * _alikeness(logs[1] - logs[0]))
        first = math.floor(count / 2 - reach) - 1
        low, high = (float(differences[first]), float(differences[count - 1 - first])) if first >= 0 else (None, None)
        return cls(math.exp(middle - half), math.exp(middle + half), count, low, high)

    @property
    def ratio(self) -> float:
        return self.b / self.a

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the ratio; None if it says nothing."""
        middle = math.log(self.ratio)
        if self.low is None or self.high is None or max(middle - self.low, self.high - middle) > WIDEST:
            return None
        return math.exp(self.low), math.exp(self.high)

    def is_beyond(self, margin: float) -> bool:
        """Whether the whole interval is further from 1 than the margin, on one side."""
        return self.low is not None and self.high is not None and max(self.low, -self.high) > math.log(1 + margin)

    def is_within(self, margin: float) -> bool:
        """Whether the whole interval is closer to 1 than the margin."""
        return self.low is not None and self.high is not None and max(-self.low, self.high) <= math.log(1 + margin)

    def is_narrow(self, margin: float) -> bool:
        """Whether the interval is beyond PROCESSES or within the margin, wherever it lies."""
        return self.low is not None and self.high is not None and self.high - self.low < target(margin)

    def rounds(self, margin: float) -> int | None:
        """How many pairs should make it narrow: the width falls with the square root of their number."""
        if self.low is None or self.high is None:
            return None
        return max(self.count + 1, math.ceil(self.count * ((self.high - self.low) / target(margin)) ** 2))


def target(margin: float) -> float:
    """The width below which an interval supports a verdict."""
    return math.log(1 + margin) - math.log(1 + PROCESSES)


def is_settled(a: Sequence[float], b: Sequence[float], margin: float) -> bool:
    """Whether these pairs are enough.

    That is so if the interval is narrow, wherever it lies, so that looking often should favour no verdict; or if the
    difference is so large that looking often hardly explains it.
    """
    return Paired.of(a, b).is_narrow(margin) or Paired.of(a, b, SURE).is_beyond(PROCESSES)


def _alikeness(differences: Array) -> float:
    """How many times larger the variance of the median is because neighbouring pairs resemble each other.

    The correlations of a pair with the next, the one after it and so on are added up to the first that is not positive.
    """
    signs = np.sign(differences - np.median(differences))
    whole, total = float(signs @ signs), 0.0
    for lag in range(1, len(signs) // 8 + 1):
        correlation = float(signs[lag:] @ signs[:-lag]) / whole if whole else 0.0
        if correlation <= 0:
            break
        total += correlation
    return 1 + 2 * total
