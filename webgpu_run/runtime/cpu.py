"""Numpy kernels for the operators that exporters leave outside the delegates, by their registered names.

A kernel takes its inputs in the order of the schema, and `out`, the declaration of the tensor that it fills. It returns
the value, which the interpreter casts and stores. Nothing is written in place, so a call that fails changes nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..formats.pte import Tensor
from ..shapes import Array

Ints = Sequence[int]


@dataclass(frozen=True, slots=True)
class CpuKernel:
    """A function, and the layout of its calls: `inputs` arguments, then the output, which most calls have twice."""

    f: Callable[..., Any]
    inputs: int
    target: int | None = None  # the input that is overwritten, if there is no separate output

    def output(self, args: Sequence[int]) -> int | None:
        """The id of the value that a call fills; None if the call has another number of arguments."""
        if self.target is not None:
            return args[self.target] if len(args) in (self.inputs, self.inputs + 1) else None
        return args[self.inputs] if len(args) in (self.inputs + 1, self.inputs + 2) else None


KERNELS: dict[str, CpuKernel] = {}


def kernel(names: str, target: int | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under each of the names. A name without a namespace belongs to aten."""

    def add(f: Callable[..., Any]) -> Callable[..., Any]:
        count = sum(p.kind == p.POSITIONAL_OR_KEYWORD for p in inspect.signature(f).parameters.values())
        for name in names.split():
            KERNELS[name if "::" in name else f"aten::{name}"] = CpuKernel(f, count, target)
        return f

    return add


def _elementwise() -> None:
    unary: Mapping[str, Callable[[Any], Any]] = {
        "abs": np.abs,
        "bitwise_not": np.invert,
        "ceil": np.ceil,
        "cos": np.cos,
        "exp": np.exp,
        "floor": np.floor,
        "isinf": np.isinf,
        "isnan": np.isnan,
        "log": np.log,
        "logical_not": np.logical_not,
        "neg": np.negative,
        "reciprocal": lambda x: 1 / x,
        "relu": lambda x: np.maximum(x, 0),
        "round": np.round,
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "sin": np.sin,
        "sqrt": np.sqrt,
        "tanh": np.tanh,
    }
    for name, f in unary.items():
        kernel(f"{name}.out")(lambda x, *, out, f=f: f(x))
    compare: Sequence[tuple[str, Callable[[Any, Any], Any]]] = (
        ("eq", np.equal),
        ("ne", np.not_equal),
        ("lt", np.less),
        ("le", np.less_equal),
        ("gt", np.greater),
        ("ge", np.greater_equal),
    )
    for name, g in compare:
        kernel(f"{name}.Tensor_out {name}.Scalar_out executorch_prim::{name}.Scalar")(lambda a, b, *, out, g=g: g(a, b))
    binary: Mapping[str, Callable[[Any, Any], Any]] = {
        "mul.out mul.Scalar_out executorch_prim::mul.Scalar": lambda a, b: a * b,
        "div.out div.Scalar_out executorch_prim::truediv.Scalar": lambda a, b: np.true_divide(a, b),
        "floor_divide.out executorch_prim::floordiv.Scalar": lambda a, b: a // b,
        "remainder.Tensor_out remainder.Scalar_out executorch_prim::mod.Scalar": lambda a, b: a % b,
        "pow.Tensor_Tensor_out pow.Tensor_Scalar_out pow.Scalar_out": lambda a, b: np.power(a, b),
        "minimum.out": np.minimum,
        "maximum.out": np.maximum,
        "logical_and.out": np.logical_and,
        "logical_or.out": np.logical_or,
        "bitwise_and.Tensor_out": np.bitwise_and,
        "bitwise_or.Tensor_out": np.bitwise_or,
        "executorch_prim::add.Scalar": lambda a, b: a + b,
        "executorch_prim::sub.Scalar": lambda a, b: a - b,
    }
    for names, h in binary.items():
        kernel(names)(lambda a, b, *, out, h=h: h(a, b))
    kernel("add.out add.Scalar_out")(lambda a, b, alpha, *, out: a + alpha * b)
    kernel("sub.out sub.Scalar_out")(lambda a, b, alpha, *, out: a - alpha * b)
    kernel("where.self_out")(lambda c, a, b, *, out: np.where(c, a, b))
    kernel("masked_fill.Scalar_out")(lambda x, mask, value, *, out: np.where(mask, x.dtype.type(value), x))
    kernel("clamp.out")(lambda x, low, high, *, out: np.clip(x, low, high))


_elementwise()


def _axes(dims: Ints | int | None) -> tuple[int, ...] | None:
    return None if dims is None or dims == () else (dims,) if isinstance(dims, int) else tuple(dims)


kernel("any.out")(lambda x, dim, keep, *, out: np.any(x, dim, keepdims=keep))
kernel("any.all_out")(lambda x, *, out: np.any(x))
kernel("amax.out")(lambda x, dims, keep, *, out: np.max(x, _axes(dims), keepdims=keep))
kernel("amin.out")(lambda x, dims, keep, *, out: np.min(x, _axes(dims), keepdims=keep))
kernel("sum.IntList_out")(lambda x, dims, keep, dtype, *, out: np.sum(x, _axes(dims), out.dtype, keepdims=keep))
kernel("mean.out")(lambda x, dims, keep, dtype, *, out: np.mean(x, _axes(dims), out.dtype, keepdims=keep))
kernel("cumsum.out")(lambda x, dim, dtype, *, out: np.cumsum(x, dim, out.dtype))
kernel("argmax.out")(lambda x, dim, keep, *, out: np.argmax(x, dim, keepdims=bool(keep)))
kernel("argmin.out")(lambda x, dim, keep, *, out: np.argmin(x, dim, keepdims=bool(keep)))


@kernel("_softmax.out")
def softmax(x: Array, dim: int, half: bool, *, out: Tensor) -> Array:
    e = np.exp(x - x.max(dim, keepdims=True))
    result: Array = e / e.sum(dim, keepdims=True)
    return result


kernel("mm.out bmm.out")(lambda a, b, *, out: a @ b)
kernel("addmm.out")(lambda c, a, b, beta, alpha, *, out: beta * c + alpha * (a @ b))
kernel("linear.out")(lambda x, w, b, *, out: x @ w.T if b is None else x @ w.T + b)

kernel("view_copy.out executorch_prim::et_view.default")(lambda x, dims, *, out: x.reshape(dims))
kernel("unsqueeze_copy.out")(lambda x, dim, *, out: np.expand_dims(x, dim))
kernel("squeeze_copy.dim_out")(lambda x, dim, *, out: x.squeeze(dim) if x.ndim and x.shape[dim] == 1 else x)
kernel("squeeze_copy.dims_out")(lambda x, dims, *, out: x.squeeze(tuple({d for d in dims if x.shape[d] == 1})))
kernel("permute_copy.out")(lambda x, order, *, out: x.transpose(order))
kernel("transpose_copy.int_out")(lambda x, a, b, *, out: x.swapaxes(a, b))
kernel("t_copy.out")(lambda x, *, out: x.T)
kernel("clone.out dim_order_ops::_clone_dim_order.out")(lambda x, order, *, out: x)
kernel("alias_copy.out detach_copy.out")(lambda x, *, out: x)
kernel("_to_copy.out dim_order_ops::_to_dim_order_copy.out")(lambda x, blocking, order, *, out: x)
kernel("copy.out")(lambda x, source, blocking, *, out: np.broadcast_to(source, x.shape))
kernel("copy_", target=0)(lambda x, source, blocking, *, out: np.broadcast_to(source, x.shape))
kernel("cat.out")(lambda xs, dim, *, out: np.concatenate([x for x in xs if x.shape != (0,)], dim))
kernel("stack.out")(lambda xs, dim, *, out: np.stack(xs, dim))
kernel("repeat.out")(lambda x, times, *, out: np.tile(x, times))
kernel("flip.out")(lambda x, dims, *, out: np.flip(x, _axes(dims)))
kernel("full.out")(lambda dims, value, *, out: np.full(dims, value, out.dtype))
kernel("full_like.out")(lambda x, value, order, *, out: np.full(x.shape, value, out.dtype))
kernel("zeros.out")(lambda dims, *, out: np.zeros(dims, out.dtype))
kernel("ones.out")(lambda dims, *, out: np.ones(dims, out.dtype))
kernel("empty.out")(lambda dims, order, *, out: np.zeros(dims, out.dtype))
kernel("scalar_tensor.out")(lambda value, *, out: np.asarray(value, out.dtype))
kernel("arange.out")(lambda end, *, out: np.arange(end))
kernel("arange.start_out")(lambda start, end, step, *, out: np.arange(start, end, step))
kernel("tril.out")(lambda x, diagonal, *, out: np.tril(x, diagonal))
kernel("triu.out")(lambda x, diagonal, *, out: np.triu(x, diagonal))
kernel("sym_size.int")(lambda x, dim, *, out: int(x.shape[dim]))
kernel("sym_numel")(lambda x, *, out: int(x.size))
kernel("_local_scalar_dense")(lambda x, *, out: x.item())


@kernel("expand_copy.out")
def expand_copy(x: Array, dims: Ints, implicit: bool, *, out: Tensor) -> Array:
    pad = len(dims) - x.ndim
    return np.broadcast_to(x, [x.shape[i - pad] if d == -1 else d for i, d in enumerate(dims)])


@kernel("slice_copy.Tensor_out")
def slice_copy(x: Array, dim: int, start: int | None, end: int | None, step: int, *, out: Tensor) -> Array:
    picked = range(x.shape[dim])[slice(start, end, step)]
    return x.take(np.asarray(picked, np.intp), dim)


kernel("select_copy.int_out")(lambda x, dim, index, *, out: x.take(index, dim))
kernel("index_select.out")(lambda x, dim, index, *, out: x.take(_within(index, x.shape[dim]), dim))
kernel("gather.out")(
    lambda x, dim, index, sparse, *, out: np.take_along_axis(x, _within(index, x.shape[dim]), dim),
)
kernel("embedding.out")(lambda table, index, padding, scale, sparse, *, out: _picked(table, index))


def _within(index: Array, size: int, *, least: int = 0) -> Array:
    """The index, if all of it is in a dim of this size; IndexError names the first value that is not."""
    outside = index[(index < least) | (index >= size)]
    if outside.size:
        raise IndexError(f"index {outside.flat[0]} is out of range of a dim of {size}")
    return index


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
            places.append(_within(index, x.shape[dim], least=-x.shape[dim]))
            dim += 1
    if dim > x.ndim or len(places) < len(at):
        raise IndexError(f"{len(at)} indices for a tensor of {x.ndim} dims")
    return tuple(places)


kernel("index.Tensor_out")(lambda x, at, *, out: x[_places(x, at)])


def index_put(x: Array, at: Sequence[Array | None], values: Array, accumulate: bool, *, out: Tensor) -> Array:
    result, places = x.copy(), _places(x, at)
    if accumulate:
        np.add.at(result, places, values)
    else:
        result[places] = values
    return result


kernel("index_put.out")(index_put)
kernel("index_put_", target=0)(index_put)


def _picked(w: Array, index: Array) -> Array:
    rows: Array = w[_within(index, len(w))]
    return rows


def _scaled(rows: Array, scales: Array, zeros: Array | None, index: Array) -> Array:
    """Dequantized rows. There is one scale and zero point per row, or per group of a row."""
    scales = scales.reshape(len(scales), -1)
    groups = rows.astype(np.float32).reshape(*index.shape, scales.shape[1], -1)
    if zeros is not None:
        groups = groups - zeros.reshape(scales.shape)[index][..., None]
    return (groups * scales[index][..., None]).reshape(*index.shape, -1)


def _embedding(names: str, unpack: Callable[[Array], Array]) -> None:
    def rows(w: Array, scales: Array, zeros: Array | None, low: int, high: int, index: Array, *, out: Tensor) -> Array:
        return _scaled(unpack(_picked(w, index)), scales, zeros, index)

    def typed(w: Any, scales: Any, zeros: Any, low: int, high: int, index: Any, dtype: int, *, out: Tensor) -> Array:
        return rows(w, scales, zeros, low, high, index, out=out)

    kernel(f"quantized_decomposed::{names}.out")(rows)
    kernel(f"quantized_decomposed::{names}.dtype_out")(typed)


_embedding("embedding_byte", lambda rows: rows)
# the high nibble is the even column
_embedding("embedding_4bit", lambda rows: np.stack([rows >> 4, rows & 15], -1).astype(np.int8) - np.int8(8))


@kernel("quantized_decomposed::quantize_per_tensor.out")
def quantize(x: Array, scale: float, zero: int, low: int, high: int, dtype: int, *, out: Tensor) -> Array:
    quantized: Array = np.clip(np.rint(x * np.float32(1 / scale)) + zero, low, high)
    return quantized


@kernel("quantized_decomposed::dequantize_per_tensor.out")
def dequantize(x: Array, scale: float, zero: int, low: int, high: int, dtype: int, to: Any, *, out: Tensor) -> Array:
    return (x.astype(np.float32) - zero) * np.float32(scale)


@kernel("convolution.out")
def convolution(
    x: Array, w: Array, bias: Array | None, stride: Ints, padding: Ints, dilation: Ints, transposed: bool,
    out_padding: Ints, groups: int, *, out: Tensor,
) -> Array:  # fmt: skip
    if transposed:
        raise ValueError("a transposed convolution has no kernel")
    rank = x.ndim - 2
    pads = [padding[i % len(padding)] for i in range(rank)]
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in pads)])
    spans = [(k - 1) * dilation[i % len(dilation)] + 1 for i, k in enumerate(w.shape[2:])]
    windows = np.lib.stride_tricks.sliding_window_view(padded, spans, tuple(range(2, x.ndim)))
    every = tuple(slice(None, None, stride[i % len(stride)]) for i in range(rank))
    taps = tuple(slice(None, None, dilation[i % len(dilation)]) for i in range(rank))
    windows = windows[(slice(None), slice(None), *every, *taps)]
    parts = []
    for part, kernels in zip(np.split(windows, groups, 1), np.split(w, groups, 0), strict=True):
        axes = [1, *range(2 + rank, 2 + 2 * rank)]
        parts.append(np.moveaxis(np.tensordot(part, kernels, (axes, [1, *range(2, 2 + rank)])), -1, 1))
    result: Array = np.concatenate(parts, 1)
    return result if bias is None else result + bias.reshape(1, -1, *(1,) * rank)
