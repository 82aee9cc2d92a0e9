"""CPU kernels that move elements: views, copies, pads, constants, indexing and scattering."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..formats.pte import Tensor
from ..shapes import Array
from .cpu_table import Ints, Scalar, axes, fitting, kernel, within

kernel("view_copy.out executorch_prim::et_view.default")(lambda x, dims: x.reshape(dims))
kernel("unsqueeze_copy.out")(lambda x, dim: np.expand_dims(x, dim))
kernel("squeeze_copy.dim_out")(lambda x, dim: x.squeeze(dim) if x.ndim and x.shape[dim] == 1 else x)
kernel("squeeze_copy.dims_out")(lambda x, dims: x.squeeze(tuple({d for d in dims if x.ndim and x.shape[d] == 1})))
kernel("permute_copy.out")(lambda x, order: x.transpose(order))
kernel("transpose_copy.int_out")(lambda x, a, b: x.swapaxes(a, b) if x.ndim else x)
kernel("t_copy.out")(lambda x: x.T)
kernel("alias_copy.out detach_copy.out lift_fresh_copy.out et_copy::_h2d_copy.out et_copy::_d2h_copy.out")(lambda x: x)
kernel("clone.out")(lambda x, layout: x)
kernel("_to_copy.out dim_order_ops::_to_dim_order_copy.out dim_order_ops::_clone_dim_order.out")(
    lambda x, blocking, order: x
)
kernel("copy.out")(lambda x, source, blocking: np.broadcast_to(source, x.shape))
kernel("copy_", target=0)(lambda x, source, blocking: np.broadcast_to(source, x.shape))
kernel("executorch_prim::et_copy_index.tensor", target=0)(lambda x, row, i: np.concatenate([x[:i], row[None]]))
kernel("cat.out")(lambda xs, dim: np.concatenate([x for x in xs if x.shape != (0,)] or xs[:1], dim))
kernel("stack.out")(lambda xs, dim: np.stack(xs, dim))
kernel("flip.out")(lambda x, dims: np.flip(x, tuple(dims)) if x.ndim else x)
kernel("roll.out")(lambda x, by, dims: np.roll(x, by, axes(x, dims)) if dims else np.roll(x, by[0]))
kernel("diagonal_copy.out")(lambda x, offset, a, b: np.diagonal(x, offset, a, b))
kernel("tril.out")(lambda x, diagonal: np.tril(x, diagonal))
kernel("triu.out")(lambda x, diagonal: np.triu(x, diagonal))
kernel("view_as_real_copy.out")(lambda x: np.stack([x.real, x.imag], -1))
kernel("nonzero.out")(lambda x: np.argwhere(x))
kernel("masked_select.out")(lambda x, mask: np.extract(*np.broadcast_arrays(mask, x)))
kernel("repeat_interleave.Tensor_out")(lambda times, size: np.repeat(np.arange(len(times)), times))
kernel("split_copy.Tensor_out")(lambda x, size, dim: np.split(x, range(size, x.shape[dim], size), dim))
kernel("split_with_sizes_copy.out")(lambda x, sizes, dim: np.split(x, np.cumsum(sizes)[:-1], dim))
kernel("unbind_copy.int_out")(lambda x, dim: list(np.moveaxis(x, dim, 0)))

kernel("full.out")(lambda dims, value, *, out: np.full(fitting(dims, out), value, out.array_dtype))
kernel("full_like.out")(lambda x, value, layout, *, out: np.full(x.shape, value, out.array_dtype))
kernel("zeros.out")(lambda dims, *, out: np.zeros(fitting(dims, out), out.array_dtype))
kernel("ones.out")(lambda dims, *, out: np.ones(fitting(dims, out), out.array_dtype))
kernel("empty.out dim_order_ops::_empty_dim_order.out")(lambda dims, order, *, out: np.zeros(fitting(dims, out)))
kernel("zeros_like.out empty_like.out")(lambda x, layout: np.zeros_like(x))
kernel("ones_like.out")(lambda x, layout: np.ones_like(x))
kernel("scalar_tensor.out")(lambda value: np.asarray(value))
kernel("sym_size.int")(lambda x, dim: int(x.shape[dim]))
kernel("sym_numel")(lambda x: int(x.size))
kernel("_local_scalar_dense")(lambda x: x.item())


@kernel("arange.start_out")
def arange(start: Scalar, end: Scalar, step: Scalar, *, out: Tensor) -> Array:
    (count,) = fitting([math.ceil((end - start) / step)], out)
    return start + np.arange(count) * step


kernel("arange.out")(lambda end, *, out: arange(0, end, 1, out=out))


@kernel("expand_copy.out")
def expand_copy(x: Array, dims: Ints, implicit: bool) -> Array:
    pad = len(dims) - x.ndim
    return np.broadcast_to(x, [x.shape[i - pad] if d == -1 else d for i, d in enumerate(dims)])


@kernel("repeat.out")
def repeat(x: Array, times: Ints, *, out: Tensor) -> Array:
    if len(times) < x.ndim:
        raise ValueError(f"{len(times)} counts for {x.ndim} dims")
    dims = (1,) * (len(times) - x.ndim) + x.shape
    fitting([n * k for n, k in zip(dims, times, strict=True)], out)
    return np.tile(x, times)


@kernel("as_strided_copy.out")
def as_strided_copy(x: Array, dims: Ints, strides: Ints, offset: int | None, *, order: Ints) -> Array:
    """Strides count elements in memory, where the dims lie in the order that the file declares."""
    memory = x.transpose(order).reshape(-1)
    at = np.asarray(offset or 0)
    for n, stride in zip(dims, strides, strict=True):
        at = at[..., None] + np.arange(n) * stride
    return memory[within(at, memory.size)]


def _slice(x: Array, dim: int, start: int | None, end: int | None, step: int) -> tuple[slice, ...]:
    if step < 1:
        raise ValueError(f"a slice with step {step}")
    return (*(slice(None),) * (dim % x.ndim), slice(start, end, step))


kernel("slice_copy.Tensor_out")(lambda x, dim, start, end, step: x[_slice(x, dim, start, end, step)])


@kernel("slice_scatter.out")
def slice_scatter(x: Array, source: Array, dim: int, start: int | None, end: int | None, step: int) -> Array:
    result = x.copy()
    part = result[_slice(x, dim, start, end, step)]
    if part.shape != source.shape:
        raise ValueError(f"dims {list(source.shape)} into a slice of {list(part.shape)}")
    part[...] = source
    return result


@kernel("narrow_copy.out")
def narrow_copy(x: Array, dim: int, start: int, length: int) -> Array:
    start += x.shape[dim] if start < 0 else 0
    if not 0 <= start <= start + length <= x.shape[dim]:
        raise IndexError(f"{length} from {start} of a dim of {x.shape[dim]}")
    return x[_slice(x, dim, start, start + length, 1)]


kernel("select_copy.int_out")(lambda x, dim, index: x.take(index, dim))


@kernel("select_scatter.out")
def select_scatter(x: Array, source: Array, dim: int, index: int) -> Array:
    result = x.copy()
    np.moveaxis(result, dim, 0)[index] = source
    return result


@kernel("unfold_copy.out")
def unfold_copy(x: Array, dim: int, size: int, step: int) -> Array:
    if not x.ndim:
        return x[None][:size]
    windows = np.lib.stride_tricks.sliding_window_view(x, size, dim)
    return windows[_slice(x, dim, None, None, step)]


def _padded(x: Array, pads: Ints, mode: str, **value: Any) -> Array:
    """Pad the last dims: pairs of (before, after), the last dim first. Negative pads cut off."""
    pairs = [(0, 0)] * (x.ndim - len(pads) // 2) + [(pads[i], pads[i + 1]) for i in range(len(pads) - 2, -2, -2)]
    if any(n + a + b < 0 for n, (a, b) in zip(x.shape, pairs, strict=True)):
        raise ValueError(f"pads {list(pads)} of dims {list(x.shape)}")
    if mode == "reflect" and any(max(pair) >= n for n, pair in zip(x.shape, pairs, strict=True) if max(pair) > 0):
        raise ValueError(f"reflected pads {list(pads)} of dims {list(x.shape)}")
    cut = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, pairs, strict=True))
    grown = [(max(a, 0), max(b, 0)) for a, b in pairs]
    return np.pad(x[cut], grown, mode, **value)  # type: ignore[call-overload, no-any-return]


@kernel("constant_pad_nd.out")
def constant_pad_nd(x: Array, pads: Ints, value: Scalar, *, out: Tensor) -> Array:
    if any(n > most for n, most in zip(x.shape, out.dims, strict=True)) and min(pads, default=0) >= 0:
        raise ValueError(f"dims {list(x.shape)} are padded to at most {list(out.dims)}")
    return _padded(x, pads, "constant", constant_values=value)


for _rank in "123":
    kernel(f"reflection_pad{_rank}d.out")(lambda x, pads: _padded(x, pads, "reflect"))
    kernel(f"replication_pad{_rank}d.out")(lambda x, pads: _padded(x, pads, "edge"))


@kernel("pixel_shuffle.out")
def pixel_shuffle(x: Array, r: int) -> Array:
    *lead, c, h, w = x.shape
    parts = x.reshape(-1, c // (r * r), r, r, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(*lead, c // (r * r), h * r, w * r)


@kernel("pixel_unshuffle.out")
def pixel_unshuffle(x: Array, r: int) -> Array:
    *lead, c, h, w = x.shape
    parts = x.reshape(-1, c, h // r, r, w // r, r).transpose(0, 1, 3, 5, 2, 4)
    return parts.reshape(*lead, c * r * r, h // r, w // r)


kernel("index_select.out")(
    lambda x, dim, index: x.take(within(index, x.shape[dim] if x.ndim else 1), dim).reshape(
        x.shape if not x.ndim else (*x.shape[: dim % x.ndim], index.size, *x.shape[dim % x.ndim + 1 :])
    )
)
kernel("embedding.out")(lambda table, index, padding, scale, sparse: table[within(index, len(table))])


def _places(x: Array, at: Sequence[Array | None]) -> tuple[Any, ...]:
    """What to index x with. As in PyTorch, -1 is the last place of a dim, and bytes are a mask like booleans."""
    places: list[Any] = []
    dim = 0
    for index in at:
        if index is None:
            places.append(slice(None))
            dim += 1
        elif index.dtype in (np.bool_, np.uint8):
            places.append(index.astype(bool))
            dim += index.ndim
        elif dim < x.ndim:
            places.append(within(index, x.shape[dim], least=-x.shape[dim]))
            dim += 1
    if dim > x.ndim or len(places) < len(at):
        raise IndexError(f"{len(at)} indices for a tensor of {x.ndim} dims")
    return tuple(places)


kernel("index.Tensor_out")(lambda x, at: x[_places(x, at)])


def index_put(x: Array, at: Sequence[Array | None], values: Array, accumulate: bool) -> Array:
    result, places = x.copy(), _places(x, at)
    if accumulate:
        np.add.at(result, places, values)
    else:
        result[places] = values
    return result


kernel("index_put.out")(index_put)
kernel("index_put_", target=0)(index_put)


def _along(x: Array, dim: int, index: Array) -> tuple[Any, ...]:
    """What to index x with, so that the index replaces one dim and the other dims count from 0."""
    if index.ndim != x.ndim:
        raise IndexError(f"an index of {index.ndim} dims for a tensor of {x.ndim}")
    dim %= x.ndim
    if any(n > m for d, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)) if d != dim):
        raise IndexError(f"an index of {list(index.shape)} for a tensor of {list(x.shape)}")
    places: list[Any] = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    places[dim] = within(index, x.shape[dim])
    return tuple(places)


def part_of(source: Array, index: Array) -> Array:
    if source.ndim != index.ndim or any(n > m for n, m in zip(index.shape, source.shape, strict=True)):
        raise IndexError(f"an index of {list(index.shape)} for values of {list(source.shape)}")
    return source[tuple(slice(n) for n in index.shape)]


@kernel("gather.out")
def gather(x: Array, dim: int, index: Array, sparse: bool) -> Array:
    if not x.ndim or not index.ndim:
        return x.reshape(-1)[within(index, x.size)]
    return np.asarray(x[_along(x, dim, index)])


def scattered(x: Array, dim: int, index: Array, values: Any, combine: np.ufunc | None) -> Array:
    result = x.copy()
    places = _along(result.reshape(-1), 0, index.reshape(-1)) if not x.ndim else _along(x, dim, index)
    target = result.reshape(-1) if not x.ndim else result
    if combine is None:
        target[places] = values
    else:
        combine.at(target, places, values)
    return result


kernel("scatter.value_out")(lambda x, dim, index, value: scattered(x, dim, index, value, None))
kernel("scatter.src_out")(lambda x, dim, index, source: scattered(x, dim, index, part_of(source, index), None))
kernel("scatter_add.out")(lambda x, dim, index, source: scattered(x, dim, index, part_of(source, index), np.add))


@kernel("masked_scatter.out")
def masked_scatter(x: Array, mask: Array, source: Array) -> Array:
    result, mask = (a.copy() for a in np.broadcast_arrays(x, mask.astype(bool)))
    count = int(mask.sum())
    if count > source.size:
        raise ValueError(f"{count} places for {source.size} values")
    result[mask] = source.reshape(-1)[:count]
    return result
