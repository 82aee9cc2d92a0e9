"""The choice of a token: the host's integer arithmetic agrees with softmax in float64, and the device with the host."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from webgpu_run.gpu.device import Device
from webgpu_run.llm.sampling import Sampler
from webgpu_run.ops.choice import FAR, MOST_RECENT, MOST_WORDS, NOTHING, STEPS, choose, lowered, weights
from webgpu_run.runtime.runner import Runner
from webgpu_run.shapes import Array

from helpers.graphs import Builder, run

SIZES = (1, 2, 7, 64, 509, 2048, 2050, 9001)


def picker(device: Device, count: int, rows: int = 1) -> Runner:
    """A graph that picks from [1, rows, count] as its second input says."""
    b = Builder()
    x, how = b.input((1, rows, count)), b.input((MOST_WORDS,), "int32")
    b.output(b.call("wr.pick", x, how, False, out=(1,), dtype="int32"))
    return b.runner(device)


def some_logits(rng: np.random.Generator, count: int) -> Array:
    """Rows as models give them, and as none does: ties, few candidates, all alike, huge, tiny, never, almost none."""
    row = rng.standard_normal(count) * rng.choice([0.0, 1e-7, 1e-3, 1.0, 4.0, 30.0, 1e30])
    row += rng.choice([0.0, -50.0, 1e4])
    kind = rng.integers(6)
    if kind == 0:
        row = row.round(1)
    if kind == 1:
        row[rng.random(count) < rng.choice([0.1, 0.5, 1.0])] = -np.inf
        row[rng.integers(count)] = 1.5
    if kind == 2:
        row = np.where(rng.random(count) < 0.5, 1.0, rng.choice([1.0, 0.999, -9.0, -30.0]))
    if kind == 3:
        row = row * 1e-42  # denormal
    if kind == 4:
        row[rng.integers(count)] += 25
    return row.astype(np.float32)


def some_sampler(rng: np.random.Generator, count: int) -> Sampler:
    return Sampler(
        float(rng.choice([1e-300, 1e-3, 0.3, 0.8, 1.0, 1.7, 30.0, 1e300])),
        int(rng.choice([0, 0, 2, 3, 40, 300, count - 1, count, count + 1, 2**40])) % 2**41 if count > 1 else 0,
        float(rng.choice([1.0, 1.0, 0.999999, 0.95, 0.5, 0.01, 0.0])),
        float(rng.choice([0.0, 0.0, 1e-9, 0.001, 0.05, 0.5, 1.0])),
        int(rng.integers(2**63)),
        float(rng.choice([1.0, 1.1, 1.3, 0.7, 100.0, 3.0])),
        int(rng.choice([1, 3, 64, 65, MOST_RECENT])),
    )


@pytest.mark.parametrize("count", SIZES)
def test_the_device_picks_what_the_host_picks(count: int, device: Device) -> None:
    rng = np.random.default_rng(count)
    runner, seen = picker(device, count, rows=3), set()
    for i in range(500):
        x = np.full((1, int(rng.integers(1, 4)), count), 1e9, np.float32)  # rows before the last have no say
        x[0, -1] = row = some_logits(rng, count)
        sampler = some_sampler(rng, count)
        words = sampler.words(i, rng.integers(count, size=int(rng.integers(1200))).tolist())
        if not sampler.greedy and i % 9 == 0:
            words[4] = rng.choice([0, 1, -1, -(2**31)])  # the first draw, and the last
        got = int(run(runner, [x, words])[0][0])
        assert got == choose(row, words), f"call {i}: {sampler}, words {words.view(np.uint32)}"
        seen.add(got)
    assert len(seen) > min(count, 100) / 2


def test_recent_tokens_are_lowered() -> None:
    """As llama.cpp defines it: a positive logit is divided by the penalty, any other is multiplied by it."""
    row = np.array([2.0, -2.0, 0.0, 3.0, -np.inf, 1.0], np.float32)
    sampler = Sampler(repeat_penalty=1.25, repeat_last_n=5)
    words = sampler.words(0, [5, 3, 0, 1, 1, 2, 4])  # 5 and 3 are not recent
    np.testing.assert_allclose(lowered(row, words), [1.6, -2.5, 0, 3, -np.inf, 1], rtol=1e-7)
    assert row[0] == 2
    assert sampler.pick(np.array([2.4, 2.0], np.float32), 0, [0]) == 1
    assert sampler.pick(np.array([2.4, 2.0], np.float32), 0, [0, 1, 1, 1, 1, 1]) == 0
    assert not Sampler(repeat_penalty=1.25, repeat_last_n=0).words(0, [5]).size


@pytest.mark.parametrize("count", [49152, 128256])
def test_the_device_picks_from_whole_vocabularies(count: int, device: Device) -> None:
    rng = np.random.default_rng(count)
    runner = picker(device, count)
    row = (rng.standard_normal(count) * 2.5).astype(np.float32)
    how = [(0.8, 40, 0.95), (1.0,), (1.3, 0, 0.9), (0.7, 0, 1.0, 0.05), (1.0, 70_000, 0.999), (2.0, 999, 0.5, 0.2), ()]
    for i, given in enumerate(how * 3):
        words = Sampler(*given).words(i)
        assert int(run(runner, [row[None, None], words])[0][0]) == choose(row, words), given


def test_what_is_not_finite_is_no_choice(device: Device) -> None:
    """NaN anywhere, infinity, or nothing but -infinity; one number among -infinities is the only choice."""
    runner = picker(device, 300)
    for bad, at in ((np.nan, 299), (-np.nan, 0), (np.inf, 150), (-np.inf, slice(None))):
        row = np.linspace(-3, 3, 300, dtype=np.float32)
        row[at] = bad
        for sampler in (Sampler(), Sampler(1.0), Sampler(0.8, 40, 0.9, 0.1)):
            words = sampler.words(0)
            assert int(run(runner, [row[None, None], words])[0][0]) == choose(row, words) == NOTHING
    row = np.full(300, -np.inf, np.float32)
    row[77] = -5
    for sampler in (Sampler(), Sampler(1.0), Sampler(0.8, 40, 0.9, 0.1)):
        words = sampler.words(0)
        assert int(run(runner, [row[None, None], words])[0][0]) == choose(row, words) == 77


# -- the host alone ----------------------------------------------------------------------------------------------------


def test_weights() -> None:
    """Powers of two to 1e-5 and a rounding; never more for what is further away."""
    t = np.concatenate([np.arange(STEPS + 9), np.arange(STEPS + 9, FAR, 97)]).astype(np.uint32)
    made, true = weights(t).astype(np.float64), 2.0 ** (31 - t.astype(np.float64) / STEPS)
    assert (np.abs(made - true) <= 1e-5 * true + 0.5).all()
    assert (np.diff(made) <= 0).all()


def softmax(logits: Array, sampler: Sampler) -> Array:
    """Each id's probability in float64, by the filters' definitions."""
    scaled = logits.astype(np.float64) / sampler.temp
    order = np.argsort(-scaled, kind="stable")[: sampler.top_k or None]
    p = np.exp(scaled[order] - scaled[order[0]])
    p /= p.sum()
    keep = (np.cumsum(p) - p < sampler.top_p) & (p >= sampler.min_p * p[0])
    out = np.zeros(len(logits))
    out[order[keep]] = p[keep] / p[keep].sum()
    return out


@pytest.mark.parametrize("count", [4, 2048, 49152, 151936])
def test_probabilities_are_those_of_softmax(count: int) -> None:
    rng = np.random.default_rng(count)
    for temp, spread, (top_k, min_p) in itertools.product(
        (0.2, 0.8, 1.0, 2.5), (0.5, 3.0, 8.0), ((0, 0.0), (40, 0.0), (0, 0.01))
    ):
        logits = (rng.standard_normal(count) * spread).astype(np.float32)
        sampler = Sampler(temp, top_k, 1.0, min_p)
        made, want = np.zeros(count), softmax(logits, sampler)
        ids, p = sampler.candidates(logits)
        made[ids] = p
        assert np.abs(made - want).sum() / 2 < 1e-4, f"total variation at {sampler}, spread {spread}"


def test_filters() -> None:
    logits = np.log(np.asarray([0.5, 0.3, 0.15, 0.05], np.float32))
    kept = lambda **how: Sampler(temp=1, **how).candidates(logits)[0].tolist()  # noqa: E731
    assert kept() == [0, 1, 2, 3]
    assert kept(top_k=2) == [0, 1]
    assert kept(top_p=0.7) == [0, 1]
    assert kept(top_p=0.0001) == kept(top_p=0) == [0]
    assert kept(min_p=0.25) == [0, 1, 2]
    assert kept(top_k=3, top_p=0.9, min_p=0.5) == [0, 1]
    assert kept(top_k=99) == [0, 1, 2, 3]
    rng = np.random.default_rng(1)
    for _ in range(300):
        row = (rng.permutation(200) * 0.03).astype(np.float32)
        sampler = some_sampler(rng, 200)
        if 0.1 < sampler.temp < 10 and sampler.top_p in (0.01, 0.5, 0.95, 1.0):
            want = np.flatnonzero(softmax(row, sampler))
            assert set(sampler.candidates(row)[0].tolist()) == set(want.tolist()), sampler


def test_ties_go_to_the_lower_id() -> None:
    logits = np.asarray([1, 2, 2, 2, 1], np.float32)
    assert Sampler().pick(logits, 0) == 1
    assert Sampler(1.0, top_k=2).candidates(logits)[0].tolist() == [1, 2]
    assert Sampler(1.0).candidates(logits)[0].tolist() == [1, 2, 3, 0, 4]


def test_draws_follow_the_probabilities() -> None:
    logits = np.log(np.asarray([0.5, 0.3, 0.15, 0.05], np.float32))
    for temp in (1.0, 0.5):
        drawn = np.bincount([Sampler(temp, seed=3).pick(logits, i) for i in range(4000)], minlength=4) / 4000
        np.testing.assert_allclose(drawn, softmax(logits, Sampler(temp)), atol=0.03)
    assert Sampler(temp=0).pick(logits[::-1], 0) == 3
    assert Sampler(temp=1, top_k=1).greedy
    ends = Sampler(1.0).words(0)
    for draw, want in ((0, 0), (-1, 3)):
        ends[4] = draw
        assert choose(logits, ends) == want
