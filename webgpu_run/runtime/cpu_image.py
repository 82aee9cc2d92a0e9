"""CPU kernels of convolutional networks: convolutions and pools. They work for any number of spatial dims."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..formats.pte import Tensor
from ..shapes import Array, ceil_div
from .cpu_table import Ints, fitting, kernel, widened


def _each(values: Ints, rank: int) -> list[int]:
    """One number per spatial dim. The exporter writes one number for all of them, or all."""
    return [values[i % len(values)] for i in range(rank)]


@kernel("convolution.out")
def convolution(
    x: Array, w: Array, bias: Array | None, stride: Ints, padding: Ints, dilation: Ints, transposed: bool,
    out_padding: Ints, groups: int,
) -> Array:  # fmt: skip
    rank = w.ndim - 2
    x, w = widened(x), widened(w)
    steps, pads, gaps = (_each(v, rank) for v in (stride, padding, dilation))
    if x.ndim == rank + 1:
        one: Array = convolution(x[None], w, bias, stride, padding, dilation, transposed, out_padding, groups)[0]
        return one
    if transposed:  # the input with zeros between its elements, convolved with the mirrored kernel
        spread = np.zeros((*x.shape[:2], *((n - 1) * s + 1 for n, s in zip(x.shape[2:], steps, strict=True))), x.dtype)
        spread[(slice(None), slice(None), *(slice(None, None, s) for s in steps))] = x
        parts = [np.flip(part, tuple(range(2, w.ndim))).swapaxes(0, 1) for part in np.split(w, groups, 0)]
        extra = _each(out_padding, rank) if out_padding else [0] * rank
        edges = [
            (g * (k - 1) - p, g * (k - 1) - p + e) for g, k, p, e in zip(gaps, w.shape[2:], pads, extra, strict=True)
        ]
        x, w, steps = spread, np.concatenate(parts), [1] * rank
    else:
        edges = [(p, p) for p in pads]
    cut = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape[2:], edges, strict=True))
    grown = [(0, 0), (0, 0), *((max(a, 0), max(b, 0)) for a, b in edges)]
    padded = np.pad(x[(slice(None), slice(None), *cut)], grown)
    spans = [(k - 1) * g + 1 for k, g in zip(w.shape[2:], gaps, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, spans, tuple(range(2, 2 + rank)))
    strided = (*(slice(None, None, s) for s in steps), *(slice(None, None, g) for g in gaps))
    windows = windows[(slice(None), slice(None), *strided)]
    sums = []
    for part, weights in zip(np.split(windows, groups, 1), np.split(w, groups, 0), strict=True):
        over = [1, *range(2 + rank, 2 + 2 * rank)]
        sums.append(np.moveaxis(np.tensordot(part, weights, (over, [1, *range(2, 2 + rank)])), -1, 1))
    result: Array = np.concatenate(sums, 1)
    return result if bias is None else result + widened(bias).reshape(1, -1, *(1,) * rank)


def _pooled(n: int, k: int, step: int, pad: int, gap: int, ceil_mode: bool) -> int:
    """The number of windows along a dim. With `ceil_mode`, the last may hang over, but must start inside."""
    room = n + 2 * pad - gap * (k - 1) - 1
    count = (ceil_div(room, step) if ceil_mode else room // step) + 1
    return count - 1 if ceil_mode and (count - 1) * step >= n + pad else count


def _taps(
    x: Array, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool, fill: Any
) -> Iterator[Array]:
    """For each place in the window, the elements that all windows have there."""
    rank = len(kernel_size)
    steps, pads, gaps = _each(stride or kernel_size, rank), _each(padding, rank), _each(dilation, rank)
    spatial = x.shape[-rank:]
    shape = list(zip(spatial, kernel_size, steps, pads, gaps, strict=True))
    counts = [_pooled(*dim, ceil_mode) for dim in shape]
    if min(counts) < 1:
        raise ValueError(f"a window of {list(kernel_size)} over {list(spatial)}")
    ends = [max((c - 1) * s + g * (k - 1) + 1 - n - p, 0) for c, (n, k, s, p, g) in zip(counts, shape, strict=True)]
    edges = [(0, 0)] * (x.ndim - rank) + list(zip(pads, ends, strict=True))
    padded = np.pad(x, edges, constant_values=fill)
    for tap in itertools.product(*(range(k) for k in kernel_size)):
        starts = [t * g for t, g in zip(tap, gaps, strict=True)]
        at = [slice(a, a + (c - 1) * s + 1, s) for a, c, s in zip(starts, counts, steps, strict=True)]
        yield padded[(*(slice(None),) * (x.ndim - rank), *at)]


def max_pool(
    x: Array, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[Array, Array]:
    """The largest value of each window, and its place in the flattened spatial dims. NaN is the largest."""
    rank = len(kernel_size := _each(kernel_size, x.ndim - 2 if x.ndim > len(kernel_size) + 1 else x.ndim - 1))
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    spatial = x.shape[-rank:]
    places = np.arange(math.prod(spatial)).reshape(spatial)
    values: Array | None = None
    for value, at in zip(
        _taps(x, kernel_size, stride, padding, dilation, ceil_mode, least),
        _taps(places, kernel_size, stride, padding, dilation, ceil_mode, -1),
        strict=True,
    ):
        if values is None:
            values, best = value.copy(), np.broadcast_to(at, value.shape).copy()
            continue
        wins = (at >= 0) & ((value > values) | (best < 0) | (np.isnan(value) & ~np.isnan(values)))
        values, best = np.where(wins, value, values), np.where(wins, at, best)
    assert values is not None
    return values, best


kernel("max_pool2d_with_indices.out max_pool3d_with_indices.out", outs=2)(max_pool)


@kernel("max_pool2d_with_indices_backward.grad_input")
def max_pool_backward(
    grad: Array, x: Array, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool, at: Array
) -> Array:
    lead = math.prod(x.shape[:-2])
    result = np.zeros((lead, x.shape[-2] * x.shape[-1]), np.float64)
    np.add.at(result, (np.arange(lead)[:, None], at.reshape(lead, -1)), grad.reshape(lead, -1))
    return result.reshape(x.shape)


def avg_pool(
    x: Array, kernel_size: Ints, stride: Ints, padding: Ints, ceil_mode: bool, with_pad: bool, divisor: int | None
) -> Array:
    rank = len(kernel_size)
    steps, pads = _each(stride or kernel_size, rank), _each(padding, rank)
    spatial = x.shape[-rank:]
    sums = sum(_taps(x.astype(np.float64), kernel_size, stride, padding, [1], ceil_mode, 0))
    assert not isinstance(sums, int)
    counts = np.ones((), np.int64)
    for n, k, step, pad, count in zip(spatial, kernel_size, steps, pads, sums.shape[-rank:], strict=True):
        start = np.arange(count) * step - pad
        end = np.minimum(start + k, n + pad)
        size = end - start if with_pad else np.minimum(end, n) - np.maximum(start, 0)
        counts = counts[..., None] * size
    return sums / (divisor or counts)


kernel("avg_pool2d.out avg_pool3d.out")(avg_pool)
kernel("avg_pool1d.out")(
    lambda x, size, stride, padding, ceil_mode, with_pad: avg_pool(x, size, stride, padding, ceil_mode, with_pad, None)
)


@kernel("_adaptive_avg_pool2d.out _adaptive_avg_pool3d.out adaptive_avg_pool1d.out")
def adaptive_avg_pool(x: Array, dims: Ints, *, out: Tensor) -> Array:
    fitting([*x.shape[: x.ndim - len(dims)], *dims], out)
    result = x.astype(np.float64)
    for i, count in enumerate(dims):
        axis = x.ndim - len(dims) + i
        n = x.shape[axis]
        means = [
            result.take(range(k * n // count, ceil_div((k + 1) * n, count)), axis).mean(axis) for k in range(count)
        ]
        result = np.stack(means, axis)
    return result


@kernel("convolution_backward.out", outs=3)
def convolution_backward(
    grad: Array, x: Array, w: Array, bias_sizes: Ints | None, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, out_padding: Ints, groups: int, mask: tuple[bool, ...],
) -> tuple[Array, ...]:  # fmt: skip
    """Gradients by input, weight and bias: for each element of the kernel, the products of the pairs that it joins."""
    rank = w.ndim - 2
    steps, pads, gaps = (_each(v, rank) for v in (stride, padding, dilation))
    small, large = (x, grad) if transposed else (grad, x)  # every element of the kernel joins all of `small`
    edges = [(p, max(p, (n - 1) * s + g * (k - 1) + 1 - m - p)) for p, n, s, g, k, m in
             zip(pads, small.shape[2:], steps, gaps, w.shape[2:], large.shape[2:], strict=True)]  # fmt: skip
    padded = np.pad(large.astype(np.float64), [(0, 0), (0, 0), *edges])
    moved = np.zeros(padded.shape)  # the gradient by `large`, if that is the input
    by_small, by_weight = np.zeros(small.shape), np.zeros(w.shape)
    for tap in itertools.product(*(range(k) for k in w.shape[2:])):
        at: tuple[Any, ...] = (slice(None), slice(None), *(slice(t * g, t * g + (n - 1) * s + 1, s) for t, g, n, s in
                               zip(tap, gaps, small.shape[2:], steps, strict=True)))  # fmt: skip
        for k in range(groups):
            mine, theirs, rows = (_group(c, groups, k) for c in (small.shape[1], large.shape[1], w.shape[0]))
            place: tuple[Any, ...] = (rows, slice(None), *tap)
            part, weights = padded[at][:, theirs], w[place]
            over = (0, *range(2, w.ndim))
            by_weight[place] = np.tensordot(small[:, mine], part, (over, over))
            by_small[:, mine] += np.moveaxis(np.tensordot(weights, part, (1, 1)), 0, 1)
            moved[at][:, theirs] += np.moveaxis(np.tensordot(weights, small[:, mine], (0, 1)), 0, 1)
    inner = (slice(None), slice(None), *(slice(a, a + n) for (a, _), n in zip(edges, large.shape[2:], strict=True)))
    by_bias = grad.sum((0, *range(2, grad.ndim)), np.float64)
    results = (by_small if transposed else moved[inner], by_weight, by_bias)
    return tuple(r if wanted else np.zeros(0) for r, wanted in zip(results, mask, strict=True))


def _group(channels: int, groups: int, k: int) -> slice:
    return slice(k * channels // groups, (k + 1) * channels // groups)
