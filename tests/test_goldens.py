"""Real files: the logits of every call equal the eager model's, also when the calls come in another order."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

from webgpu_run.errors import ShapeError, UsageError
from webgpu_run.gpu.device import Device
from webgpu_run.ops.limits import GPU, PLAIN, Limits, Profile
from webgpu_run.runtime.model import Model
from webgpu_run.runtime.open import load
from webgpu_run.shapes import Array

from helpers.graphs import with_limits

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = ("tiny_dyn", "tiny_static", "tiny_tied", "tiny_fp32emb", "tiny_fp32", "tiny_full", "tiny_short")


class Golden:
    """The recorded calls of a fixture, split where the position starts again at 0."""

    def __init__(self, name: str) -> None:
        record = np.load(FIXTURES / f"{name}.npz")
        self.calls = [
            (record[f"tokens_{i}"], np.array([record[f"pos_{i}"]], np.int64), record[f"logits_{i}"])
            for i in range(int(record["n_calls"]))
        ]
        starts = [i for i, (_, pos, _) in enumerate(self.calls) if pos[0] == 0]
        self.sessions = [self.calls[a:b] for a, b in itertools.pairwise([*starts, len(self.calls)])]


def close(out: Array, want: Array, limit: float = 1e-3) -> None:
    """Within a part of the logits' range, the same best token in every row."""
    want = want.reshape(out.shape)
    worst = float(np.abs(out - want).max() / (want.max() - want.min()))
    assert worst <= limit, f"off by {worst:.2e} of the range"
    assert np.array_equal(out.argmax(-1), want.argmax(-1))


@pytest.mark.parametrize(
    ("name", "fuse"),
    [*((name, True) for name in NAMES), *((name, False) for name in ("tiny_dyn", "tiny_static", "tiny_full"))],
)
def test_every_call(name: str, fuse: bool, device: Device) -> None:
    model = load(FIXTURES / f"{name}.pte", device=device, fuse=fuse)
    for tokens, pos, want in Golden(name).calls:
        (out,) = model.run([tokens, pos])
        close(out, want)


@pytest.mark.parametrize("profile", [GPU, PLAIN], ids=lambda p: p.name)
@pytest.mark.parametrize("name", ["tiny_dyn", "tiny_short", "tiny_8da4w", "tiny_qwen25", "tiny_qwen3"])
def test_every_call_of_other_profiles(name: str, profile: Profile, device: Device) -> None:
    """The kernels of a GPU, and of a software adapter without subgroups, in the memory that every WebGPU device has."""
    limits = Limits(profile=profile, software=profile is PLAIN)
    least = {f.name: getattr(limits, f.name) for f in dataclasses.fields(limits) if "align" not in f.name}
    model = load(FIXTURES / f"{name}.pte", device=with_limits(device, **least))
    for tokens, pos, want in Golden(name).calls:
        (out,) = model.run([tokens, pos])
        close(out, want, 2e-2 if name == "tiny_8da4w" else 1e-3)  # where rounding to 8 bits falls may differ


def shapes(model: Model, golden: Golden, order: tuple[int, ...]) -> dict[tuple[int, int], bytes]:
    return {
        (i, k): model.run([tokens, pos])[0].tobytes()
        for i in order
        for k, (tokens, pos, _) in enumerate(golden.sessions[i])
    }


@pytest.mark.parametrize("name", ["tiny_short", "tiny_fp32"])
def test_sessions_in_every_order(name: str, device: Device) -> None:
    """Whatever ran before, a call gives the bits it gave the first time."""
    golden = Golden(name)
    model = load(FIXTURES / f"{name}.pte", device=device)
    count = len(golden.sessions)
    first = shapes(model, golden, tuple(range(count)))
    for order in [tuple(range(count))[::-1], *list(itertools.permutations(range(count)))[1::37]]:
        assert shapes(model, golden, order) == first, order


@pytest.mark.parametrize("name", ["tiny_dyn"])
def test_lengths_in_every_order(name: str, device: Device) -> None:
    """Prefills of max, 1, 9, 64, 5, 64, ...: each the bits of a model that has only ever seen that length."""
    model = load(FIXTURES / f"{name}.pte", device=device)
    most = Golden(name).calls[11][0].shape[1]
    rng = np.random.default_rng(3)
    tokens = rng.integers(0, 300, (1, most))
    start = np.zeros(1, np.int64)
    want: dict[int, bytes] = {}
    for n in (most, 1, 9, 64, 5):
        want[n] = load(FIXTURES / f"{name}.pte", device=device).run([tokens[:, :n], start])[0].tobytes()
    for n in (most, 1, 9, 64, 5, 64, most, 5, 9, 1, 64, 9, most):
        assert model.run([tokens[:, :n], start])[0].tobytes() == want[n], n


def test_chunked_is_one_prefill(device: Device) -> None:
    """A prompt in pieces of any size ends in the logits of the whole, within rounding."""
    model = load(FIXTURES / "tiny_short.pte", device=device)
    tokens = np.random.default_rng(4).integers(0, 500, (1, 31))
    (whole,) = model.run([tokens, np.zeros(1, np.int64)])
    for sizes in ((31,), (30, 1), (1, 30), (7, 1, 16, 7), (1,) * 31):
        model.reset()
        at = 0
        for n in sizes:
            (out,) = model.run([tokens[:, at : at + n], np.array([at])])
            at += n
        close(out, whole)


def test_reset_empties_the_caches(device: Device) -> None:
    model = load(FIXTURES / "tiny_full.pte", device=device)
    tokens = np.random.default_rng(4).integers(0, 200, (1, 9))
    late = np.array([5], np.int64)
    model.reset()
    before = model.run([tokens[:, :1], late])[0].tobytes()
    model.run([tokens, np.zeros(1, np.int64)])
    assert model.run([tokens[:, :1], late])[0].tobytes() != before
    model.reset()
    assert model.run([tokens[:, :1], late])[0].tobytes() == before


def test_ids_past_a_table_are_refused(device: Device) -> None:
    """A kernel would take the last row for them, and the answer would look like one."""
    for name in ("tiny_dyn", "tiny_fp32emb", "tiny_static"):
        model = load(FIXTURES / f"{name}.pte", device=device)
        rows = model.outputs[0].dims[-1]
        for bad in (rows, -1, 2**40):
            with pytest.raises(ShapeError, match=f"input 0 has {bad}, the table that it picks from has {rows} rows"):
                model.run([np.array([[bad]]), np.array([0])])
        assert np.isfinite(model.run([np.array([[rows - 1]]), np.array([0])])[0]).all()


def test_a_cache_of_no_known_form_is_refused(device: Device) -> None:
    with pytest.raises(UsageError, match="kv is 'f8', expected auto, f32 or f16"):
        load(FIXTURES / "tiny_dyn.pte", device=device, kv="f8")
