"""webgpu-bench compare --live: two sides that run alternately."""

from __future__ import annotations

import json
import math
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from webgpu_run.bench.live import MIN_ROUNDS, MORE, Side, verdict
from webgpu_run.bench.paired import PROCESSES, Paired, is_settled
from webgpu_run.errors import FormatError, UsageError

from helpers.command import HERE, Result, execute
from helpers.result_fields import documented

MODEL = HERE / "fixtures" / "tiny_dyn.pte"


def live(*args: str | Path) -> Result:
    return execute(sys.executable, "-m", "webgpu_run.cli.bench", "compare", "--live", *args)


def noisy(rng: np.random.Generator, count: int, factor: float = 1.0) -> tuple[list[float], list[float]]:
    """Speeds of two sides on a machine that is slower for a while, with interruptions that hit single calls."""
    drift = np.repeat(rng.uniform(0.5, 1.0, count), 5)[:count]
    a, b = (drift * 100 / (1 + rng.exponential(0.1, count)) * rng.normal(1, 0.03, count) for _ in range(2))
    return list(a), list(b * factor)


def settled(rng: np.random.Generator, factor: float, margin: float = 0.05) -> Paired:
    """Looks at pairs as `measure` does, until there are enough of them."""
    a, b = noisy(rng, 4000, factor)
    look = MIN_ROUNDS
    while not is_settled(a[:look], b[:look], margin):
        look = math.ceil(MORE * look)
        assert look <= len(a)
    return Paired.of(a[:look], b[:look])


def test_pairs_of_the_same_are_the_same() -> None:
    rng = np.random.default_rng(0)
    told = [verdict(settled(rng, 1.0), 0.05, None) for _ in range(300)]
    assert told.count("same") == 300


def test_pairs_show_a_difference() -> None:
    rng = np.random.default_rng(1)
    for factor, name in ((0.95, "slower"), (1.05, "faster"), (0.9, "slower"), (1.1, "faster")):
        told = [verdict(settled(rng, factor), 0.05, None) for _ in range(100)]
        assert told.count(name) >= 97
    assert verdict(settled(rng, 0.9), 0.05, 0.05) == "regression"


def test_looking_often_claims_no_difference() -> None:
    """At the edge: sides that differ by as much as two processes do are rarely called different."""
    rng = np.random.default_rng(3)
    told = [verdict(settled(rng, 1 + PROCESSES), 0.05, None) for _ in range(300)]
    assert told.count("faster") <= 9
    assert "slower" not in told


def test_interval_of_pairs() -> None:
    """It encloses the true ratio in 99% of all cases, also where neighbouring pairs are alike."""
    rng = np.random.default_rng(4)
    missed = {0.0: 0, 0.6: 0}
    for memory in missed:
        for _ in range(1000):
            noise = rng.standard_t(2, 200)
            for i in range(1, len(noise)):
                noise[i] = memory * noise[i - 1] + math.sqrt(1 - memory**2) * noise[i]
            pairs = Paired.of(np.full(200, 5.0).tolist(), (5 * np.exp(0.05 * noise)).tolist())
            assert pairs.low is not None
            assert pairs.high is not None
            missed[memory] += not pairs.low <= 0 <= pairs.high
    assert missed[0.0] <= 20
    assert missed[0.6] <= 40


def test_speeds_and_their_ratio() -> None:
    pairs = Paired.of([1.0, 2.0, 4.0], [2.0, 4.0, 8.0])
    assert pairs.ratio == pytest.approx(2)
    assert (pairs.a, pairs.b) == (pytest.approx(2), pytest.approx(4))
    assert pairs.interval is None
    assert not pairs.is_beyond(0.0)
    assert not pairs.is_within(9.0)
    assert pairs.rounds(0.05) is None
    wide = Paired.of([1.0] * 40, [1e-5, 1e5, 1e5, 1e-5, 1e5] * 8)
    assert wide.interval is None
    assert (wide.rounds(0.05) or 0) > 1000


def test_narrow_intervals_settle_it() -> None:
    """Rounds end by the width of the interval alone, so the verdict must be clear wherever the interval lies."""
    rng = np.random.default_rng(2)
    narrow = 0
    for factor in np.linspace(0.9, 1.1, 201):
        pairs = Paired.of(*noisy(rng, 1500, float(factor)))
        if pairs.is_narrow(0.05):
            narrow += 1
            assert verdict(pairs, 0.05, None) != "unclear"
    assert narrow > 150


def test_words_of_a_side(tmp_path: Path) -> None:
    side = Side.of(f"HEAD~1 {MODEL} --kv f16 --chunk 8 --no-fuse --device cpu", None)
    assert (side.version, side.model, side.chunk) == ("HEAD~1", str(MODEL), 8)
    assert side.settings == {"kv": "f16", "fuse": False, "device": "cpu"}
    assert Side.of(".", "other.pte").model == "other.pte"
    for words in ("--kv", "--chunk many", "--warp 9", "HEAD HEAD~1"):
        with pytest.raises(UsageError):
            Side.of(words, None)
    with pytest.raises(FormatError, match="no such file"):
        Side.of("missing.pte", None)


def test_a_slower_setting_and_the_same_revision(tmp_path: Path) -> None:
    """64 calls for a prompt are slower than one; an archive of HEAD runs; all formats have the rows."""
    out = tmp_path / "rows.jsonl"
    result = live(
        ".", "HEAD --chunk 1", "-m", MODEL, "-p", "64", "-n", "4", "-r", "30", "--fail-over", "10%", "--out", out
    )
    assert result.code == 1
    prefill, decode = (json.loads(line) for line in out.read_text().splitlines())
    assert prefill["verdict"] == "regression"
    shared = {"schema", "kind", "test", "unit", "model", "device"}
    assert {*prefill} == shared | documented("comparison")
    assert prefill["ratio"] == pytest.approx(prefill["b"] / prefill["a"])
    assert prefill["live"] == [".", "HEAD --chunk 1"]
    assert (prefill["test"], decode["test"]) == ("pp64", "tg4")
    assert len(prefill["samples_a"]) == len(prefill["samples_b"]) == prefill["rounds"] == 30
    assert "regression" in result.out
    assert "99% interval" in result.out


def test_a_side_that_fails(tmp_path: Path) -> None:
    """The process of a side runs what is in its wheel."""
    wheel = tmp_path / "other.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("webgpu_run/__init__.py", "raise RuntimeError('this is the wheel')")
    result = live(".", wheel, "-m", MODEL)
    assert (result.code, result.out) == (6, "")
    assert result.err.count("\n") == 1
    assert "B failed: RuntimeError: this is the wheel" in result.err
    assert "neither a model, a wheel nor a revision" in live("no-such-revision", ".").err
    assert live(".", ".", "-p", "none", "-n", "0").code == 2
    assert live(".", ".", "--fail-over", "1%").code == 2
    files = execute(sys.executable, "-m", "webgpu_run.cli.bench", "compare", "a.json", "b.json", "-r", "3")
    assert files.code == 2
    assert "--live" in files.err
