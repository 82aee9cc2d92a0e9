"""8-bit rows times 4-bit weights in integers: exact at the ends of both ranges, where a 16-bit sum is nearly full."""

from __future__ import annotations

import numpy as np
import pytest

from webgpu_run.formats.vkgraph import ValueList
from webgpu_run.gpu.device import Device, has_dot4
from webgpu_run.ops import q4_layout, q8
from webgpu_run.ops.limits import GPU, PLAIN, SOFTWARE
from webgpu_run.shapes import Array

from helpers.graphs import Builder, run, with_limits

K, N = 96, 36
ROWS = ("positive", "negative", "both", "one", "zero", "tiny", "mixed")


KINDS = {
    "software": {"profile": SOFTWARE},
    "software-plain": {"profile": PLAIN},
    "gpu": {"profile": GPU, "dot4": True},
    "gpu-float": {"profile": GPU, "dot4": False},
}


def planned_for(device: Device, kind: str) -> Device:
    if kind == "software" and not device.limits.subgroups:
        pytest.skip("no subgroups")
    return with_limits(device, **KINDS[kind])


def row(kind: str, rng: np.random.Generator) -> Array:
    """A row whose steps from the zero point reach 255, -255, both ends of the range, or nothing at all."""
    x = {
        "positive": np.full(K, 3.0),
        "negative": np.full(K, -3.0),
        "both": np.where(np.arange(K) % 2, 1.0, -1.0),
        "one": np.eye(1, K, 5)[0] * 1e4,
        "zero": np.zeros(K),
        "tiny": np.full(K, 1e-30),
    }.get(kind, rng.integers(-127, 128, K) / 128)
    return np.asarray(x, np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fill", [0x00, 0xFF, 0xF0, 0x08, None], ids=str)
def test_exact(kind: str, fill: int | None, device: Device) -> None:
    """Against the same sums of integers on the host: for one row, which the linear rounds, and for few and many."""
    other = planned_for(device, kind)
    rng = np.random.default_rng(0)
    w = rng.integers(0, 256, (N, K // 2)).astype(np.uint8) if fill is None else np.full((N, K // 2), fill, np.uint8)
    scales = np.ones((K // 32, N), np.float32)
    x = np.stack([row(name, rng) for name in ROWS * 3])[None]
    size, zero = q8.qparams(x)
    steps = np.rint(q8.rounded(x, size, zero) / size[..., None]).astype(np.int64)
    want = (steps @ q4_layout.nibbles(w).astype(np.int64).T) * size[..., None].astype(np.float64)
    b = Builder()
    given = b.input(x.shape)
    no_bias = b.value(ValueList(()))
    args = (given, (b.constant(w),), (b.constant(scales),), 32, no_bias, None, 0.0, None, False, True)
    b.output(*b.call("wr.linear_q4gsw.1", *args))
    runner = b.runner(other)
    for at in (slice(None), slice(len(ROWS)), *(slice(i, i + 1) for i in range(len(ROWS)))):
        (got,) = run(runner, [x[:, at]])
        np.testing.assert_allclose(got, want[:, at], rtol=5e-7, atol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("norm", [False, True], ids=["", "norm"])
@pytest.mark.parametrize("count", [1, 5, 37])
def test_nan_stays_nan(kind: str, norm: bool, count: int, device: Device) -> None:
    """Integers have no NaN, and min and max ignore it: a row that has one must not come out as numbers."""
    rng = np.random.default_rng(1)
    w, scales = rng.integers(0, 256, (N, K // 2)).astype(np.uint8), np.ones((K // 32, N), np.float32)
    x = rng.standard_normal((1, count, K)).astype(np.float32)
    b = Builder()
    given, weight = b.input(x.shape), b.constant(np.ones(K, np.float32)) if norm else None
    no_bias = b.value(ValueList(()))
    args = (given, (b.constant(w),), (b.constant(scales),), 32, no_bias, weight, 1e-5, None, False, True)
    b.output(*b.call("wr.linear_q4gsw.1", *args))
    runner = b.runner(planned_for(device, kind))
    (want,) = run(runner, [x])
    bad = count // 2
    x[0, bad, K // 3] = np.nan
    (got,) = run(runner, [x])
    assert np.isfinite(want).all()
    assert np.isnan(got[0, bad]).all()
    others = np.arange(count) != bad
    assert got[0, others].tobytes() == want[0, others].tobytes()


@pytest.mark.parametrize("count", [1, 5])
def test_nan_stays_nan_as_written(count: int, device: Device) -> None:
    """The same in the linear that fusion replaces, whose qparams come from another op."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1, count, K)).astype(np.float32)
    scale, zero = q8.qparams(x)
    b = Builder()
    given = [b.input(x.shape), b.input(scale.shape), b.input(zero.shape, "int8")]
    weight = [b.constant(rng.integers(0, 256, (N, K // 2)).astype(np.uint8))]
    weight += [b.constant(np.zeros((K // 32, N), np.int32)), b.constant(np.ones((K // 32, N), np.float32))]
    b.output(b.call("et_vk.linear_dq8ca_q4gsw.default", *given, *weight, 32, None, out=(1, count, N)))
    x[0, count // 2, 7] = np.nan
    (got,) = run(b.runner(device), [x, scale, zero.astype(np.int8)])
    assert np.isnan(got[0, count // 2]).all()
    assert np.isfinite(got[0, np.arange(count) != count // 2]).all()


def test_only_vulkan_multiplies_bytes(device: Device) -> None:
    assert [has_dot4(name) for name in ("Vulkan", "Metal", "D3D12", "OpenGL")] == [True, False, False, False]
    assert device.limits.dot4  # software adapters are Vulkan drivers
