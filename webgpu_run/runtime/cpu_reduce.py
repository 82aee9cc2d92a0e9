"""CPU kernels that combine elements: reductions, sorting, matrix products and norms. Floats are summed in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..formats.pte import Tensor
from ..shapes import Array, prod
from .cpu_table import Ints, axes, kernel, widened


def _wide(x: Array, out: Tensor) -> Array:
    """The elements in the dtype in which they are summed."""
    return x.astype(np.float64 if out.array_dtype.startswith("float") else out.dtype)


kernel("amax.out")(lambda x, dims, keep: np.max(x, axes(x, dims), keepdims=keep))
kernel("amin.out")(lambda x, dims, keep: np.min(x, axes(x, dims), keepdims=keep))
kernel("max.unary_out")(lambda x: np.max(x))
kernel("min.unary_out")(lambda x: np.min(x))
kernel("any.out any.dims_out")(lambda x, dims, keep: np.any(x, axes(x, dims), keepdims=keep))
kernel("all.out all.dims_out")(lambda x, dims, keep: np.all(x, axes(x, dims), keepdims=keep))
kernel("any.all_out")(lambda x: np.any(x))
kernel("all.all_out")(lambda x: np.all(x))
kernel("sum.IntList_out")(lambda x, dims, keep, dtype, *, out: np.sum(_wide(x, out), axes(x, dims), keepdims=keep))
kernel("mean.out")(lambda x, dims, keep, dtype: _mean(x, axes(x, dims), keep))
kernel("mean.dtype_out")(lambda x, dtype: _mean(x, None))
kernel("prod.int_out")(lambda x, dim, keep, dtype, *, out: np.prod(_wide(x, out), axes(x, dim), keepdims=keep))
kernel("prod.out")(lambda x, dtype, *, out: np.prod(_wide(x, out)))
kernel("cumsum.out")(lambda x, dim, dtype, *, out: np.cumsum(_wide(x, out), dim) if x.ndim else x)
kernel("cumprod.out")(lambda x, dim, dtype, *, out: np.cumprod(_wide(x, out), dim) if x.ndim else x)
kernel("var.correction_out")(lambda x, dims, correction, keep: variance(x, dims, correction, keep))
kernel("var.out")(lambda x, dims, unbiased, keep: variance(x, dims, int(unbiased), keep))
kernel("std.correction_out")(lambda x, dims, correction, keep: np.sqrt(variance(x, dims, correction, keep)))


def _mean(x: Array, over: tuple[int, ...] | None, keep: bool = False) -> Any:
    """NaN for no elements, without numpy's warning."""
    total = np.sum(x, over, np.float64, keepdims=keep)
    return total / np.float64(x.size / total.size if total.size else 1)


def variance(x: Array, dims: Ints | None, correction: float | None, keep: bool) -> Any:
    over = axes(x, dims)
    squares = np.square(x - _mean(x, over, keep=True)).sum(over, keepdims=keep)
    count = x.size / squares.size if squares.size else 1
    return squares / np.float64(max(count - (1 if correction is None else correction), 0))


@kernel("var_mean.correction_out", outs=2)
def var_mean(x: Array, dims: Ints | None, correction: float | None, keep: bool) -> tuple[Any, Any]:
    return variance(x, dims, correction, keep), _mean(x, axes(x, dims), keep)


def _best(f: Callable[..., Any]) -> Callable[..., Any]:
    """argmax or argmin. Without a dim, it counts over all elements."""
    return lambda x, dim, keep: f(x, dim, keepdims=bool(keep)) if x.ndim else np.int64(0)


def _best_of(f: Callable[..., Any]) -> Callable[..., Any]:
    """The best value of a dim, and where it is."""

    def best(x: Array, dim: int, keep: bool) -> tuple[Array, Array]:
        if not x.ndim:
            return x, np.zeros((), np.int64)
        at = f(x, dim, keepdims=True)
        value = np.take_along_axis(x, at, dim)
        return (value, at) if keep else (value.squeeze(dim), at.squeeze(dim))

    return best


kernel("argmax.out")(_best(np.argmax))
kernel("argmin.out")(_best(np.argmin))
kernel("max.dim_max", outs=2)(_best_of(np.argmax))
kernel("min.dim_min", outs=2)(_best_of(np.argmin))


def sort(x: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    """Stable in both directions. NaN is the largest value, as in PyTorch."""
    if not x.ndim:
        return x, np.zeros((), np.int64)
    if descending:
        order = x.shape[dim] - 1 - np.flip(np.argsort(np.flip(x, dim), dim, kind="stable"), dim)
    else:
        order = np.argsort(x, dim, kind="stable")
    return np.take_along_axis(x, order, dim), order


kernel("sort.values", outs=2)(sort)
kernel("sort.values_stable", outs=2)(lambda x, stable, dim, descending: sort(x, dim, descending))


@kernel("topk.values", outs=2)
def topk(x: Array, k: int, dim: int, largest: bool, is_sorted: bool) -> tuple[Array, Array]:
    if not 0 <= k <= (x.shape[dim] if x.ndim else 1):
        raise ValueError(f"k is {k}, the dim has {x.shape[dim] if x.ndim else 1}")
    values, at = sort(x, dim, largest)
    return (values.take(range(k), dim), at.take(range(k), dim)) if x.ndim else (values, at)


@kernel("_softmax.out")
def softmax(x: Array, dim: int, half: bool) -> Any:
    return np.exp(log_softmax(x, dim, half))


@kernel("_log_softmax.out")
def log_softmax(x: Array, dim: int, half: bool) -> Any:
    if not x.size or not x.ndim:
        return np.zeros_like(x)
    wide = x.astype(np.float64)
    wide = wide - wide.max(dim, keepdims=True)
    return wide - np.log(np.exp(wide).sum(dim, keepdims=True))


@kernel("logsumexp.out")
def logsumexp(x: Array, dims: Ints, keep: bool) -> Any:
    wide = x.astype(np.float64)
    top = wide.max(axes(x, dims), keepdims=True)
    result = np.log(np.exp(wide - top).sum(axes(x, dims), keepdims=True)) + top
    return result if keep else result.squeeze(axes(x, dims))


kernel("mm.out bmm.out")(lambda a, b: widened(a) @ widened(b))


@kernel("addmm.out baddbmm.out")
def addmm(c: Array, a: Array, b: Array, beta: float, alpha: float) -> Array:
    product: Array = widened(a) @ widened(b)
    product = product if alpha == 1 else product * product.dtype.type(alpha)
    return product if beta == 0 else product + widened(c) * product.dtype.type(beta)


@kernel("linear.out")
def linear(x: Array, w: Array, b: Array | None) -> Array:
    product: Array = widened(x) @ widened(w).T
    return product if b is None else product + widened(b)


@kernel("_cdist_forward.out")
def cdist(a: Array, b: Array, p: float, mode: int | None) -> Any:
    return _length(a[..., :, None, :].astype(np.float64) - b[..., None, :, :], p)


@kernel("_pdist_forward.out")
def pdist(x: Array, p: float) -> Any:
    first, second = np.triu_indices(len(x), 1)
    return _length(x[first].astype(np.float64) - x[second], p)


def _length(x: Array, p: float) -> Any:
    size = np.abs(x)
    if p == 0:
        return np.count_nonzero(size, -1)
    return size.max(-1, initial=0) if np.isinf(p) else (size**p).sum(-1) ** (1 / p)


def _affine(x: Array, weight: Array | None, bias: Array | None, dims: tuple[int, ...]) -> Array:
    x = x if weight is None else x * weight.reshape(dims)
    return x if bias is None else x + bias.reshape(dims)


@kernel("native_layer_norm.out", outs=3)
def layer_norm(x: Array, dims: Ints, weight: Array | None, bias: Array | None, eps: float) -> tuple[Array, ...]:
    over = tuple(range(x.ndim - len(dims), x.ndim))
    mean, rstd = _moments(x, over, eps)
    return _affine((x - mean) * rstd, weight, bias, tuple(dims)), mean, rstd


@kernel("native_group_norm.out", outs=3)
def group_norm(
    x: Array, weight: Array | None, bias: Array | None, n: int, c: int, hw: int, groups: int, eps: float
) -> tuple[Array, ...]:
    if prod(x.shape) != n * c * hw or x.shape[:2] != (n, c):
        raise ValueError(f"dims {list(x.shape)} for {n} x {c} x {hw}")
    parts = x.reshape(n, groups, (c // groups) * hw)
    mean, rstd = _moments(parts, (2,), eps)
    normed = ((parts - mean) * rstd).reshape(x.shape)
    channels = (1, c, *(1,) * (x.ndim - 2))
    return _affine(normed, weight, bias, channels), mean[..., 0], rstd[..., 0]


def _moments(x: Array, over: tuple[int, ...], eps: float) -> tuple[Any, Any]:
    """The mean and 1 / standard deviation over some dims, which are kept."""
    mean = np.mean(x, over, np.float64, keepdims=True)
    return mean, 1 / np.sqrt(np.var(x, over, np.float64, keepdims=True) + eps)


@kernel("_native_batch_norm_legit_no_training.out", outs=3)
def batch_norm(
    x: Array, weight: Array | None, bias: Array | None, mean: Array, var: Array, momentum: float, eps: float
) -> tuple[Array, ...]:
    channels = (1, -1, *(1,) * (x.ndim - 2))
    wide = (x - mean.reshape(channels).astype(np.float64)) / np.sqrt(var.reshape(channels).astype(np.float64) + eps)
    return _affine(wide, weight, bias, (1, x.shape[1], *channels[2:])), np.zeros(0), np.zeros(0)


@kernel("_native_batch_norm_legit.out", outs=3)
def batch_norm_legit(
    x: Array, weight: Array | None, bias: Array | None, mean: Array, var: Array, training: bool, momentum: float,
    eps: float,
) -> tuple[Array, ...]:  # fmt: skip
    if training:
        raise ValueError("a batch norm that trains would change its statistics")
    return tuple(batch_norm(x, weight, bias, mean, var, momentum, eps))


@kernel("_native_batch_norm_legit.no_stats_out", outs=3)
def batch_norm_of_batch(
    x: Array, weight: Array | None, bias: Array | None, training: bool, momentum: float, eps: float
) -> tuple[Array, ...]:
    mean, rstd = _moments(x, (0, *range(2, x.ndim)), eps)
    channels = (1, x.shape[1], *(1,) * (x.ndim - 2))
    return _affine((x - mean) * rstd, weight, bias, channels), mean.reshape(-1), rstd.reshape(-1)
