"""More for compare_with_torch.py: tensors made from numbers, picks by index, windows and other moves of elements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # registers the ops of quantized_decomposed
from torch_grids import ANY, NUM, RNG, Torch, Trial, aten, floats, named, of, pools, product, scalar, slices, unary

TYPES = {name: getattr(torch, name) for name in ("float32", "int32", "bool", "int8", "uint8")}

REDUCED = (None, (0,), (-1,), (0, 2), (1, -1))


def made(op: Any, *names: str) -> Torch:
    """The torch op with the numbers of these names and a dtype."""
    return lambda t, a: op(*(a[n] for n in names), dtype=TYPES[a["out"]])


def like(op: Any, *names: str) -> Torch:
    return lambda t, a: op(t["x"], *(a[n] for n in names), dtype=TYPES[a["out"]])


def sizes(**more: tuple[Any, ...]) -> list[Trial]:
    return [({}, g) for g in product(dims=((), (0,), (3, 5), (2, 1, 4)), out=tuple(TYPES), **more)]


def ranges() -> list[Trial]:
    whole = product(start=(0, 2, -3), end=(2, 9, 17), step=(1, 3), out=("int32", "float32"))
    back = product(start=(9, 4), end=(4, -3), step=(-1, -4), out=("int32",))
    real = product(start=(0.0, -0.5), end=(1.0, 2.7), step=(0.1, 0.25, 1), out=("float32",))
    return [({}, g) for g in (*whole, *back, *real)]


def gathers() -> list[Trial]:
    found: list[Trial] = []
    for dtype in ANY:
        for g in product(dim=(0, 1, -1)):
            size = (4, 6, 5)[g["dim"]]
            found.append(({"x": of(dtype, 4, 6, 5), "at": RNG.integers(0, size, (3, 2, 5))}, g))
    return [*found, ({"x": floats(), "at": RNG.integers(0, 1, ())}, {"dim": 0})]


def channels() -> list[Trial]:
    """int8 tensors with a scale for each index of one dim, and a zero point unless all of them are 0."""
    found: list[Trial] = []
    for axis in (0, 1, -1):
        n = (4, 6, 5)[axis]
        scales = RNG.uniform(0.01, 0.2, n).astype("float32")
        found += [
            (
                {"x": RNG.integers(-128, 128, (4, 6, 5)).astype("int8"), "scales": scales, **zeros},
                {**LIMITS, "axis": axis},
            )
            for zeros in ({}, {"zeros": RNG.integers(-9, 10, n).astype("int32")})
        ]
    return found


def dequantized(t: Mapping[str, torch.Tensor], a: Mapping[str, Any]) -> torch.Tensor:
    op = torch.ops.quantized_decomposed.dequantize_per_channel.default
    zeros = t["zeros"].long() if "zeros" in t else None
    return op(t["x"].to(torch.int8), t["scales"], zeros, a["axis"], a["low"], a["high"], torch.int8)


LIMITS = {"low": -128, "high": 127}
CREATED: Mapping[str, tuple[Torch, list[Trial]]] = {
    **{f"aten.{n}.default": (named(getattr(aten, n).default, "x"), unary()) for n in ("hardsigmoid", "log10", "tan")},
    "aten.relu6.default": (named(aten.relu6.default, "x"), unary(NUM)),
    "aten.hardshrink.default": (named(aten.hardshrink.default, "x", "value"), scalar(("float32",), value=(0.5, 0, 1))),
    "aten.full.default": (made(aten.full.default, "dims", "value"), sizes(value=(0, 3, 1, 2.5, -math.inf))),
    "aten.ones.default": (made(aten.ones.default, "dims"), sizes()),
    "aten.zeros.default": (made(aten.zeros.default, "dims"), sizes()),
    "aten.scalar_tensor.default": (
        made(aten.scalar_tensor.default, "value"),
        [
            ({}, g)
            for g in product(value=(0, 3, -2, 1.5, -math.inf), out=("float32", "int32"))
            if g["value"] != -math.inf
        ],
    ),
    "aten.full_like.default": (
        like(aten.full_like.default, "value"),
        [({"x": floats(3, 5)}, g) for g in product(value=(0, 1, 3), out=tuple(TYPES))],
    ),
    **{
        f"aten.{n}.default": (like(getattr(aten, n).default), [({"x": floats(3, 5)}, {"out": out}) for out in TYPES])
        for n in ("ones_like", "zeros_like")
    },
    "aten.arange.start_step": (made(aten.arange.start_step, "start", "end", "step"), ranges()),
    "quantized_decomposed.dequantize_per_channel.default": (dequantized, channels()),
    "aten.gather.default": (named(aten.gather.default, "x", "dim", "at"), gathers()),
    "aten.permute.default": (
        named(aten.permute.default, "x", "order"),
        [({"x": floats(3, 4, 5)}, {"order": o}) for o in ((0, 1, 2), (2, 0, 1), (-1, 1, 0))],
    ),
    "aten.t_copy.default": (named(aten.t_copy.default, "x"), [({"x": floats(*d)}, {}) for d in ((3, 5), (4,), ())]),
    **{
        f"aten.{n}.default": (lambda t, a: t["x"].clone(), [({"x": of(d, 3, 5)}, {}) for d in ANY])
        for n in ("copy", "clone", "alias_copy")
    },
    "aten.slice.Tensor": (named(aten.slice.Tensor, "x", "dim", "start", "end", "step"), slices()),
    "aten.select.int": (
        named(aten.select.int, "x", "dim", "index"),
        [({"x": floats(3, 4, 5)}, g) for g in product(dim=(0, 1, -1), index=(0, 2, -1, -3))],
    ),
    "aten.repeat_interleave.self_int": (
        named(aten.repeat_interleave.self_int, "x", "times", "dim"),
        [({"x": floats(3, 4, 5)}, g) for g in product(times=(1, 2, 3, 0), dim=(None, 0, 1, -1))],
    ),
    "aten.unfold_copy.default": (
        named(aten.unfold_copy.default, "x", "dim", "size", "step"),
        [({"x": floats(6, 9, 7)}, g) for g in product(dim=(0, 1, -1), size=(1, 2, 6), step=(1, 2, 4))],
    ),
    "aten.var.dim": (
        named(aten.var.dim, "x", "dims", "unbiased", "keep"),
        [({"x": floats(3, 5, 7)}, g) for g in product(dims=REDUCED, unbiased=(False, True), keep=(False, True))],
    ),
    "aten.var.correction": (
        lambda t, a: aten.var.correction(t["x"], a["dims"], correction=a["correction"], keepdim=a["keep"]),
        [({"x": floats(3, 5, 7)}, g) for g in product(dims=REDUCED, correction=(0, 1, 2, 3, 4), keep=(False, True))],
    ),
    "aten.max_pool2d.default": (
        named(aten.max_pool2d.default, "x", "kernel", "stride", "padding", "dilation", "ceil"),
        pools(dilation=((1,), (2, 1))),
    ),
}
