"""Statistics behind webgpu-bench: intervals, outliers, ratios, lists of lengths."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from webgpu_run.bench.rows import warnings
from webgpu_run.bench.stats import Ratio, Summary, outliers, quantile, ratio, spread, t95
from webgpu_run.cli.lengths import parse
from webgpu_run.errors import UsageError


def test_summary() -> None:
    s = Summary.of([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (s.count, s.mean, s.median, s.least, s.most) == (5, 3.0, 3.0, 1.0, 5.0)
    assert s.sd == pytest.approx(1.5811388)
    assert s.p90 == pytest.approx(4.6)
    assert s.low is not None
    assert s.low < 3 - 2.776 * 1.5811388 / math.sqrt(5)  # they rise all the time: not independent


def test_spread_of_few_is_the_usual_one() -> None:
    for samples in ([1.0, 4.0], [1.0, 4.0, 3.0]):
        assert spread(samples) == pytest.approx(statistics.variance(samples) / len(samples))
    even = [1.0, -1.0] * 8  # fast waves only
    assert spread(even) == pytest.approx(statistics.variance(even) / 16)


def test_one_sample_has_no_interval() -> None:
    s = Summary.of([7.0])
    assert (s.mean, s.sd, s.low, s.high) == (7.0, 0.0, None, None)


def test_quantile_of_few() -> None:
    assert quantile([3.0], 0.9) == 3.0
    assert quantile([1.0, 2.0], 0.5) == 1.5


def test_student_between_rows_of_the_table() -> None:
    assert t95(4) == 2.776
    assert 2.0 < t95(45) < 2.042
    assert t95(1e9) == pytest.approx(1.96, abs=1e-3)
    falling = [t95(f / 4) for f in range(4, 1000)]
    assert falling == sorted(falling, reverse=True)


def noise(rng: random.Random, count: int, memory: float) -> list[float]:
    """Around 100; each sample remembers the one before to this share."""
    out, now = [], rng.gauss(0, 1)
    for _ in range(count):
        out.append(100 + 5 * now)
        now = memory * now + math.sqrt(1 - memory**2) * rng.gauss(0, 1)
    return out


@pytest.mark.parametrize(("memory", "count", "least"), [(0, 5, 0.95), (0, 20, 0.95), (0.5, 20, 0.93), (0.8, 30, 0.9)])
def test_interval_holds_the_mean_as_often_as_it_says(memory: float, count: int, least: float) -> None:
    """Also where the machine is slower for a while; by the usual interval it would be 0.75 and 0.5 there."""
    rng = random.Random(1)
    held = 0
    for _ in range(1000):
        s = Summary.of(noise(rng, count, memory))
        assert s.low is not None
        assert s.high is not None
        held += s.low <= 100 <= s.high
    assert held / 1000 > least


@pytest.mark.parametrize(("memory", "count", "most"), [(0, 5, 0.05), (0, 20, 0.05), (0.5, 20, 0.07), (0.8, 30, 0.1)])
def test_two_runs_agree_as_often_as_they_say(memory: float, count: int, most: float) -> None:
    """Two runs one after the other, from one series."""
    rng = random.Random(2)
    both = (noise(rng, 2 * count, memory) for _ in range(1000))
    assert sum(ratio(x[:count], x[count:]).is_significant for x in both) / 1000 < most


def test_a_real_difference_is_found() -> None:
    rng = random.Random(3)
    pairs = ((noise(rng, 20, 0), [x * 0.9 for x in noise(rng, 20, 0)]) for _ in range(200))
    assert sum(ratio(a, b).is_significant for a, b in pairs) > 180


def test_ratio() -> None:
    r = ratio([100, 101, 99, 100], [80, 81, 79, 80])
    assert r.value == pytest.approx(0.8, rel=1e-3)
    assert r.is_significant
    assert not ratio([100, 90, 110], [95, 105, 99]).is_significant
    assert ratio([2.0], [1.0]) == Ratio(0.5, None)
    assert ratio([2.0, 2.0], [2.0, 2.0]).is_within(1e-9)
    assert ratio([1.0, 3.0], [4.0, 4.0]).value == 2.0  # of the means that a table shows
    assert ratio([1e-9, 1e9], [1.0, 1.0]).interval is None


def test_enough_rounds_settle_it() -> None:
    """The number of rounds that an unclear verdict names is enough in most cases, and a tenth of it in few."""
    rng, margin = random.Random(4), 0.05
    settled = {1.0: 0, 0.1: 0}
    unclear = 0
    for _ in range(300):
        first = ratio(noise(rng, 10, 0), noise(rng, 10, 0))
        if first.is_significant or first.is_within(margin):
            continue
        unclear += 1
        needed = first.rounds(10, margin)
        assert needed
        for share in settled:
            count = max(2, int(share * needed))
            again = ratio(noise(rng, count, 0), noise(rng, count, 0))
            settled[share] += again.is_significant or again.is_within(margin)
    assert unclear > 50
    assert settled[1.0] > 0.5 * unclear
    assert settled[0.1] < 0.2 * unclear


def test_outliers() -> None:
    assert outliers([100, 101, 99, 100, 300]) == [4]
    assert outliers([100, 104, 96, 101, 108]) == []
    assert outliers([100, 100, 100, 100, 101]) == []  # far in spreads, but not by enough to matter
    assert outliers([1, 9]) == []


def test_warnings() -> None:
    assert "first run took 3.0 times" in warnings("pp8", [300, 100, 101, 99, 100])[0]
    assert "1 run is an outlier of 5" in warnings("pp8", [100, 101, 99, 100, 300])[0]
    assert warnings("pp8", [100, 103, 98, 101, 99]) == []
    assert warnings("pp8", [100]) == []


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1,64,512", (1, 64, 512)),
        ("64-256+64", (64, 128, 192, 256)),
        ("1-16*2", (1, 2, 4, 8, 16)),
        ("3-5", (3, 4, 5)),
        ("8,1-8*2", (8, 1, 2, 4)),
        (" 1, 2 ", (1, 2)),
    ],
)
def test_lengths(text: str, want: tuple[int, ...]) -> None:
    assert parse(text) == want


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "abc", "1e9", "1,,2", "5-1", "1-9+0", "1-9*1", "1-9*0", "1.5", "1-1000000000", "٣", "1-2-3"]
)
def test_bad_lengths(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)
