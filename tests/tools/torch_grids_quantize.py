"""Calls of quantization with scales that are tensors, for `compare_with_torch.py`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torchao.quantization.quant_primitives  # noqa: F401 (registers the ops)
from torch.ao.quantization.fx import _decomposed  # noqa: F401
from torch_grids import Torch, Trial

OPS = torch.ops.quantized_decomposed
RANGES = ((-128, 127), (-100, 50), (0, 120))
SHAPES: Sequence[tuple[int, ...]] = ((3, 7, 5), (4, 6), (2, 3, 2, 5))


def trials(scales: Callable[[tuple[int, ...], int], tuple[int, ...]], *, has_axis: bool = False) -> list[Trial]:
    """Every shape with every range, and with every axis if there is one; floats are quantized, integers dequantized."""
    made: list[Trial] = []
    rng = np.random.default_rng(5)
    for shape, (low, high) in itertools.product(SHAPES, RANGES):
        for axis in range(-len(shape), len(shape)) if has_axis else (0,):
            of = scales(shape, axis)
            tensors = {
                "scales": rng.uniform(0.03, 0.2, of).astype(np.float32),
                "zeros": rng.integers(-5, 6, of).astype(np.int32),
            }
            made.append((tensors, {"low": low, "high": high, "shape": shape} | ({"axis": axis} if has_axis else {})))
    return made


def with_x(made: list[Trial], dtype: str) -> list[Trial]:
    rng = np.random.default_rng(6)
    filled = []
    for tensors, attrs in made:
        attrs = dict(attrs)
        shape = attrs.pop("shape")
        x = rng.integers(-128, 128, shape) if dtype == "int8" else 9 * rng.standard_normal(shape)
        filled.append(({"x": np.asarray(x, dtype), **tensors}, attrs))
    return filled


def tensor_op(op: Any, *, axis: bool = False, back: bool = False) -> Torch:
    """Scales in f64 and zero points in i64, as `choose_qparams` gives them."""

    def call(t: Mapping[str, torch.Tensor], a: Mapping[str, Any]) -> Any:
        x = t["x"].to(torch.int8) if back else t["x"]
        along = (a["axis"],) if axis else ()
        scales = t["scales"] if axis else t["scales"].double()
        return op(x, scales, t["zeros"].long(), *along, a["low"], a["high"], torch.int8)

    return call


def token(shape: tuple[int, ...], _: int) -> tuple[int, ...]:
    return (*shape[:-1], 1)


def whole(shape: tuple[int, ...], _: int) -> tuple[int, ...]:
    return ()


def channel(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (shape[axis],)


def blocks(*, zeros: bool) -> list[Trial]:
    """Rows, groups of a row, several rows, and everything, with and without a range."""
    made: list[Trial] = []
    rng = np.random.default_rng(7)
    for shape, block in (
        ((6, 20), (1, 20)),
        ((6, 20), (1, 5)),
        ((6, 20), (3, 20)),
        ((4, 3, 7), (1, 3, 7)),
        ((4, 6), (4, 6)),
    ):
        of = [n // b for n, b in zip(shape, block, strict=True)]
        given = {"zeros": rng.integers(-5, 6, of).astype(np.int32)} if zeros else {}
        scales = rng.uniform(0.03, 0.2, of).astype(np.float32)
        made += [
            ({"scales": scales, **given}, {"block": block, "low": low, "high": high, "shape": shape})
            for low, high in RANGES
        ]
    return made


def affine(t: Mapping[str, torch.Tensor], a: Mapping[str, Any]) -> Any:
    op = torch.ops.torchao.quantize_affine.default
    return op(t["x"], a["block"], t["scales"], t.get("zeros"), torch.int8, a["low"], a["high"])


def affine_back(t: Mapping[str, torch.Tensor], a: Mapping[str, Any]) -> Any:
    op = torch.ops.torchao.dequantize_affine.default
    return op(t["x"], a["block"], t["scales"], t.get("zeros"), torch.int8, -128, 127)


_ROWS = [({"x": t["x"]}, {}) for t, _ in with_x(trials(token), "float32")]
_ALL = [({"x": t["x"]}, {**a, "eps": e}) for t, a in with_x(trials(whole), "float32") for e in (1e-6, 0.5)]

QUANTIZED: Mapping[str, tuple[Torch, list[Trial]]] = {
    "torchao.quantize_affine.default": (affine, with_x(blocks(zeros=True), "float32")),  # it fails without zeros
    "torchao.dequantize_affine.default": (affine_back, with_x(blocks(zeros=True) + blocks(zeros=False), "int8")),
    "quantized_decomposed.quantize_per_token.default": (
        tensor_op(OPS.quantize_per_token.default),
        with_x(trials(token), "float32"),
    ),
    "quantized_decomposed.dequantize_per_token.default": (
        lambda t, a: OPS.dequantize_per_token.default(
            t["x"].to(torch.int8), t["scales"], t["zeros"], a["low"], a["high"], torch.int8, torch.float32
        ),
        with_x(trials(token), "int8"),
    ),
    "quantized_decomposed.quantize_per_tensor.tensor": (
        tensor_op(OPS.quantize_per_tensor.tensor),
        with_x(trials(whole), "float32"),
    ),
    "quantized_decomposed.dequantize_per_tensor.tensor": (
        tensor_op(OPS.dequantize_per_tensor.tensor, back=True),
        with_x(trials(whole), "int8"),
    ),
    "quantized_decomposed.quantize_per_channel.default": (
        tensor_op(OPS.quantize_per_channel.default, axis=True),
        with_x(trials(channel, has_axis=True), "float32"),
    ),
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default": (
        lambda t, a: OPS.choose_qparams_per_token_asymmetric.default(t["x"], torch.int8),
        _ROWS,
    ),
    "quantized_decomposed.choose_qparams.tensor": (
        lambda t, a: OPS.choose_qparams.tensor(t["x"], a["low"], a["high"], a["eps"], torch.int8),
        _ALL,
    ),
}
