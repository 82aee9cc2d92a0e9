"""CPU kernels that resample pictures: to another size, and at given places."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..formats.pte import Tensor
from ..shapes import Array
from .cpu_table import Ints, fitting, kernel

# (inputs, outputs, align_corners, scale) of a dim: a matrix [outputs, inputs], or the index of the input of each output
Weights = Callable[[int, int, bool, float | None], Array]


def _positions(n: int, count: int, align: bool, scale: float | None) -> tuple[Array, float]:
    """Where the centres of `count` outputs lie among n inputs, and the inputs per output."""
    if align:
        ratio = (n - 1) / (count - 1) if count > 1 else 0.0
        return np.arange(count) * ratio, ratio
    ratio = 1 / scale if scale else n / count
    return (np.arange(count) + 0.5) * ratio - 0.5, ratio


def _cubic(x: Array, a: float = -0.75) -> Array:
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    return np.where(x <= 1, near, np.where(x < 2, (((x - 5) * x + 8) * x - 4) * a, 0))


def _linear_weights(n: int, count: int, align: bool, scale: float | None) -> Array:
    """A matrix [count, n] that interpolates linearly."""
    at = np.maximum(_positions(n, count, align, scale)[0], 0)
    low = np.minimum(at.astype(np.int64), n - 1)
    weights, rows = np.zeros((count, n)), np.arange(count)
    np.add.at(weights, (rows, low), 1 - (at - low))
    np.add.at(weights, (rows, np.minimum(low + 1, n - 1)), at - low)
    return weights


def _cubic_weights(n: int, count: int, align: bool, scale: float | None) -> Array:
    at = _positions(n, count, align, scale)[0]
    low, weights, rows = np.floor(at).astype(np.int64), np.zeros((count, n)), np.arange(count)
    for tap in range(-1, 3):
        np.add.at(weights, (rows, np.clip(low + tap, 0, n - 1)), _cubic(at - low - tap))
    return weights


def _smooth_weights(n: int, count: int, align: bool, scale: float | None) -> Array:
    """Linear interpolation that averages over all inputs of an output, for smaller pictures."""
    ratio = _positions(n, count, align, scale)[1]
    centre, reach = (np.arange(count) + 0.5) * ratio, max(ratio, 1.0)
    first = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + reach + 0.5).astype(np.int64), n)
    at = np.arange(n)
    weights = np.maximum(1 - np.abs((at + 0.5 - centre[:, None]) / reach), 0)
    weights *= (at >= first[:, None]) & (at < last[:, None])
    result: Array = weights / weights.sum(1, keepdims=True)
    return result


def _nearest(n: int, count: int, align: bool, scale: float | None) -> Array:
    """The input of each output. PyTorch computes it in float32."""
    ratio = np.float32(1 / scale if scale else n / count)
    return np.minimum((np.arange(count, dtype=np.float32) * ratio).astype(np.int64), n - 1)


def _resized(
    x: Array, size: Ints | None, align: bool, scales: Sequence[float | None] | None,
    weigh: Weights, out: Tensor,
) -> Array:  # fmt: skip
    """The last dims, resampled one after the other. `size` or `scales` gives the new dims."""
    if size is None:
        assert scales is not None
        size = [int(n * (s or 1)) for n, s in zip(x.shape[2:], scales, strict=True)]
    fitting([*x.shape[:2], *size], out)
    result = x
    for i, count in enumerate(size):
        weights = weigh(x.shape[2 + i], count, align, scales[i] if scales else None)
        if weights.ndim == 1:
            result = result.take(weights, 2 + i)
        else:
            result = np.moveaxis(np.tensordot(result.astype(np.float64), weights, (2 + i, 1)), -1, 2 + i)
    return result


def _register(kind: str, rank: int, weigh: Weights) -> None:
    """Register a kind of upsampling. Only `nearest` has no align_corners; there is a scale per dim."""
    if weigh is _nearest and rank == 1:
        kernel(f"{kind}.out")(lambda x, size, w, *, out: _resized(x, size, False, (w,), weigh, out))
    elif weigh is _nearest:
        kernel(f"{kind}.out")(lambda x, size, h, w, *, out: _resized(x, size, False, (h, w), weigh, out))
    elif rank == 1:
        kernel(f"{kind}.out")(lambda x, size, align, w, *, out: _resized(x, size, align, (w,), weigh, out))
    else:
        kernel(f"{kind}.out")(lambda x, size, align, h, w, *, out: _resized(x, size, align, (h, w), weigh, out))


_register("upsample_nearest1d", 1, _nearest)
_register("upsample_nearest2d", 2, _nearest)
_register("upsample_linear1d", 1, _linear_weights)
_register("upsample_bilinear2d", 2, _linear_weights)
_register("upsample_bicubic2d", 2, _cubic_weights)
_register("_upsample_bilinear2d_aa", 2, _smooth_weights)
kernel("upsample_nearest2d.vec_out")(lambda x, size, scales, *, out: _resized(x, size, False, scales, _nearest, out))
kernel("upsample_bilinear2d.vec_out")(
    lambda x, size, align, scales, *, out: _resized(x, size, align, scales, _linear_weights, out)
)


def _mirrored(at: Array, low: float, high: float) -> Array:
    """Places reflected at the borders until they are inside."""
    if low == high:
        return np.zeros_like(at)
    span = high - low
    folds, rest = np.divmod(np.abs(at - low), span)
    return np.where(folds % 2 == 0, rest + low, span - rest + low)


def _place(at: Array, n: int, padding: int, align: bool) -> Array:
    """Places of a dim from -1 .. 1 to elements, with the padding mode applied: 0 zeros, 1 border, 2 reflection."""
    at = (at + 1) / 2 * (n - 1) if align else ((at + 1) * n - 1) / 2
    return _bounded(at, n, padding, align)


def _bounded(at: Array, n: int, padding: int, align: bool) -> Array:
    if padding == 2:
        at = _mirrored(at, 0, n - 1) if align else _mirrored(at, -0.5, n - 0.5)
    return np.clip(at, 0, n - 1) if padding else at


@kernel("grid_sampler_2d.out")
def grid_sampler(x: Array, grid: Array, mode: int, padding: int, align: bool) -> Array:
    """Samples at the places (x, y) of a grid; mode 0 is bilinear, 1 nearest, 2 bicubic."""
    n, c, h, w = x.shape
    wide = x.astype(np.float64)

    def pixels(row: Array, column: Array) -> Array:
        if mode == 2:
            row, column = _bounded(row, h, padding, align), _bounded(column, w, padding, align)
        inside = (row >= 0) & (row < h) & (column >= 0) & (column < w)
        rows, columns = (np.where(inside, v, 0).astype(np.int64) for v in (row, column))
        values = wide[np.arange(n)[:, None, None], :, rows, columns]
        return np.moveaxis(np.where(inside[..., None], values, 0), -1, 1)

    places = grid.astype(np.float64)
    bound = 0 if mode == 2 else padding
    column, row = _place(places[..., 0], w, bound, align), _place(places[..., 1], h, bound, align)
    if mode == 1:
        return pixels(np.rint(row), np.rint(column))
    top, left = np.floor(row), np.floor(column)
    taps = range(-1, 3) if mode == 2 else range(2)
    result = np.zeros((n, c, *grid.shape[1:3]))
    for i in taps:
        for j in taps:
            weights = [_cubic(v) if mode == 2 else 1 - np.abs(v) for v in (row - top - i, column - left - j)]
            result += pixels(top + i, left + j) * (weights[0] * weights[1])[:, None]
    return result
