"""CPU kernels of quantized models, in the namespace `quantized_decomposed`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..formats.pte import Tensor
from ..shapes import Array
from .cpu_table import kernel, widened, within


def _scaled(rows: Array, scales: Array, zeros: Array | None, index: Array) -> Array:
    """Dequantized rows. There is one scale and zero point per row, or per group of a row."""
    scales = scales.reshape(len(scales), -1)
    groups = rows.astype(np.float32).reshape(*index.shape, scales.shape[1], -1)
    if zeros is not None:
        groups = groups - zeros.reshape(scales.shape)[index][..., None]
    return (groups * scales[index][..., None]).reshape(*index.shape, -1)


def _embedding(names: str, unpack: Callable[[Array], Array]) -> None:
    def rows(w: Array, scales: Array, zeros: Array | None, low: int, high: int, index: Array) -> Array:
        return _scaled(unpack(w[within(index, len(w))]), scales, zeros, index)

    def typed(w: Any, scales: Any, zeros: Any, low: int, high: int, index: Any, dtype: int | None) -> Array:
        return rows(w, scales, zeros, low, high, index)

    kernel(f"quantized_decomposed::{names}.out")(rows)
    kernel(f"quantized_decomposed::{names}.dtype_out")(typed)


def _nibbles(rows: Array) -> Array:
    """The high nibble is the even column."""
    return np.stack([rows >> 4, rows & 15], -1).astype(np.int8) - np.int8(8)


def _crumbs(rows: Array) -> Array:
    """Four columns of 2 bits per byte, the lowest first."""
    return np.stack([rows >> shift & 3 for shift in (0, 2, 4, 6)], -1).astype(np.int8) - np.int8(2)


_embedding("embedding_byte", lambda rows: rows)
_embedding("embedding_4bit", _nibbles)
_embedding("embedding_2bit", _crumbs)


def _quantized(x: Array, scale: Any, zero: Any, low: int, high: int) -> Array:
    inverse = np.float32(1) / np.asarray(scale, np.float32)
    result: Array = np.clip(np.rint(x.astype(np.float32) * inverse) + zero, low, high)
    return result


def _dequantized(x: Array, scale: Any, zero: Any) -> Array:
    return (x.astype(np.float32) - np.asarray(zero, np.float32)) * np.asarray(scale, np.float32)


def _channels(x: Array, values: Array | None, axis: int) -> Array | int:
    return 0 if values is None else values.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)])


def _tokens(x: Array, values: Array) -> Array:
    return values.reshape(*x.shape[:-1], 1)


_NAME = "quantized_decomposed::"
kernel(f"{_NAME}quantize_per_tensor.out {_NAME}quantize_per_tensor.Tensor_out")(
    lambda x, scale, zero, low, high, dtype: _quantized(x, scale, zero, low, high)
)
kernel(f"{_NAME}dequantize_per_tensor.out {_NAME}dequantize_per_tensor.Tensor_out")(
    lambda x, scale, zero, low, high, dtype, to: _dequantized(x, scale, zero)
)
kernel(f"{_NAME}quantize_per_channel.out")(
    lambda x, scales, zeros, axis, low, high, dtype: _quantized(
        x, _channels(x, scales, axis), _channels(x, zeros, axis), low, high
    )
)
kernel(f"{_NAME}dequantize_per_channel.out")(
    lambda x, scales, zeros, axis, low, high, dtype, to: _dequantized(
        x, _channels(x, scales, axis), _channels(x, zeros, axis)
    )
)
kernel(f"{_NAME}quantize_per_token.out")(
    lambda x, scales, zeros, low, high, dtype: _quantized(x, _tokens(x, scales), _tokens(x, zeros), low, high)
)
kernel(f"{_NAME}dequantize_per_token.out")(
    lambda x, scales, zeros, low, high, dtype, to: _dequantized(x, _tokens(x, scales), _tokens(x, zeros))
)


def _parameters(low: Array, high: Array, least: int, most: int, eps: float) -> tuple[Array, Array]:
    """Scale and zero point for values from `low` to `high`. Zero is always exact."""
    low, high = np.minimum(low, 0).astype(np.float32), np.maximum(high, 0).astype(np.float32)
    scale = np.maximum((high - low) / np.float32(most - least), np.float32(eps))
    zero = np.clip(least - np.rint(low / scale), least, most)
    return scale, zero


@kernel(f"{_NAME}choose_qparams.Tensor_out", outs=2)
def choose_qparams(x: Array, least: int, most: int, eps: float, dtype: int, *, out: Tensor) -> tuple[Array, Array]:
    scale, zero = _parameters(x.min(), x.max(), least, most, eps)
    return scale.reshape(out.dims), zero.reshape(out.dims)


@kernel(f"{_NAME}choose_qparams_per_token_asymmetric.out", outs=2)
def choose_qparams_per_token(x: Array, dtype: int) -> tuple[Array, Array]:
    """Of two possible zero points, the one with the smaller error at the ends of the range."""
    low, high = np.minimum(x.min(-1, keepdims=True), 0), np.maximum(x.max(-1, keepdims=True), 0)
    low, high = low.astype(np.float32), high.astype(np.float32)
    scale = np.maximum((high - low) / np.float32(255), np.finfo(np.float32).eps)
    down, up = low / scale, high / scale
    zero = np.where(-128 + down + (127 + up) > 0, -128 - down, 127 - up)
    return scale, np.rint(np.clip(zero, -128, 127))


@kernel(f"{_NAME}add.out")
def add(
    a: Array, a_scale: float, a_zero: int, a_low: int, a_high: int,
    b: Array, b_scale: float, b_zero: int, b_low: int, b_high: int,
    scale: float, zero: int, low: int, high: int,
) -> Array:  # fmt: skip
    return _quantized(_dequantized(a, a_scale, a_zero) + _dequantized(b, b_scale, b_zero), scale, zero, low, high)


@kernel(f"{_NAME}mixed_mm.out")
def mixed_mm(x: Array, w: Array, scales: Array, zeros: Array | None) -> Array:
    return widened(x) @ _dequantized(w, scales.reshape(-1, 1), 0)


@kernel(f"{_NAME}mixed_linear.out")
def mixed_linear(x: Array, w: Array, scales: Array, zeros: Array | None, dtype: int | None) -> Array:
    if zeros is not None:
        raise ValueError("zero points are not supported")
    groups = w.reshape(len(w), 1 if scales.ndim == 1 else scales.shape[1], -1)
    rows = _dequantized(groups, scales.reshape(len(w), -1, 1), 0).reshape(w.shape)
    return widened(x) @ rows.T
