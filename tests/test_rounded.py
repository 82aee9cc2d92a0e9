"""8-bit rows times 4-bit weights in integers: exact at the ends of both ranges, where a 16-bit sum is nearly full."""

from __future__ import annotations

import numpy as np
import pytest

from webgpu_run.formats.vkgraph import ValueList
from webgpu_run.gpu.device import Device
from webgpu_run.ops import q4_layout, q8
from webgpu_run.ops.limits import GPU, PLAIN, SOFTWARE, Profile
from webgpu_run.shapes import Array

from helpers.graphs import Builder, run, with_limits

K, N = 96, 36
ROWS = ("positive", "negative", "both", "one", "zero", "tiny", "mixed")


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


@pytest.mark.parametrize("profile", [SOFTWARE, PLAIN, GPU], ids=lambda p: p.name)
@pytest.mark.parametrize("fill", [0x00, 0xFF, 0xF0, 0x08, None], ids=str)
def test_exact(profile: Profile, fill: int | None, device: Device) -> None:
    """Against the same sums of integers on the host, for one row (which the linear rounds itself) and for several."""
    if profile.shuffle and not device.limits.subgroups:
        pytest.skip("no subgroups")
    rng = np.random.default_rng(0)
    w = rng.integers(0, 256, (N, K // 2)).astype(np.uint8) if fill is None else np.full((N, K // 2), fill, np.uint8)
    scales = np.ones((K // 32, N), np.float32)
    x = np.stack([row(kind, rng) for kind in ROWS])[None]
    size, zero = q8.qparams(x)
    steps = np.rint(q8.rounded(x, size, zero) / size[..., None]).astype(np.int64)
    want = (steps @ q4_layout.nibbles(w).astype(np.int64).T) * size[..., None].astype(np.float64)
    b = Builder()
    given = b.input(x.shape)
    no_bias = b.value(ValueList(()))
    args = (given, (b.constant(w),), (b.constant(scales),), 32, no_bias, None, 0.0, None, False, True)
    b.output(*b.call("wr.linear_q4gsw.1", *args))
    runner = b.runner(with_limits(device, profile=profile))
    for at in (slice(None), *(slice(i, i + 1) for i in range(len(ROWS)))):
        (got,) = run(runner, [x[:, at]])
        np.testing.assert_allclose(got, want[:, at], rtol=5e-7, atol=0)
