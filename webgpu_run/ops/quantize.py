"""Quantize a tensor with one scale and zero point, and dequantize it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array
from .expression import unary_plan
from .limits import Limits
from .plan import Plan, need
from .spec import Args, Case, op

_ATTRS = {"scale": 0.05, "zero": 3, "low": -128, "high": 127}
_LIVE = ({"x": (1, 5)}, {"x": (3, 5)})


def quantize_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    steps = np.rint(t["x"].astype(np.float32) * np.float32(1 / a.num("scale"))) + a.int("zero")
    return [np.clip(steps, a.int("low"), a.int("high")).astype(np.int32)]


def make_wide(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Some numbers are beyond either end of the quantized range."""
    return {"x": (rng.standard_normal(a["x"]) * 5).astype(np.float32)}


@op(
    "quantized_decomposed.quantize_per_tensor.default",
    "x scale:num zero:int low:int high:int _ -> out/int",
    reference=quantize_reference,
    make=make_wide,
    cases=(
        Case({"x": (4, 8)}, _ATTRS, ({"x": (2, 8)},), {"out": "int8"}),
        Case({"x": (7, 5)}, _ATTRS, _LIVE, {"out": "int8"}),
    ),
)
def quantize(a: Args, limits: Limits) -> Plan:
    need(a.num("scale") > 0, f"scale {a.num('scale')}")
    low, high = f"BOTH_T({float(a.int('low'))})", f"BOTH_T({float(a.int('high'))})"
    expr = f"clamp(round(x * {{0}}) + {{1}}, {low}, {high})"
    return unary_plan(a, expr, limits, (1 / a.num("scale"), a.int("zero")), route="lanes")


def make_steps(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    return {"x": rng.integers(-128, 128, a["x"]).astype(np.int8)}


@op(
    "quantized_decomposed.dequantize_per_tensor.default",
    "x/int scale:num zero:int low:int high:int _ _ -> out",
    reference=lambda a, t: [(t["x"].astype(np.float64) - a.int("zero")) * a.num("scale")],
    make=make_steps,
    cases=(
        Case({"x": (4, 8)}, _ATTRS, ({"x": (2, 8)},), {"x": "int8"}),
        Case({"x": (7, 5)}, _ATTRS, _LIVE, {"x": "int8"}),
    ),
)
def dequantize(a: Args, limits: Limits) -> Plan:
    return unary_plan(a, "(x - {1}) * {0}", limits, (a.num("scale"), a.int("zero")), route="lanes")
