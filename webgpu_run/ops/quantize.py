"""Quantize a tensor with one scale and zero point, and dequantize it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, prod
from .elementwise import unary_step
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
    "x scale:num zero:int low:int high:int _ -> out",
    reference=quantize_reference,
    make=make_wide,
    cases=(
        Case({"x": (4, 8)}, _ATTRS, ({"x": (2, 8)},), {"out": "int8"}),
        Case({"x": (7, 5)}, _ATTRS, _LIVE, {"out": "int8"}),
    ),
)
def quantize(a: Args, limits: Limits) -> Plan:
    need(a.num("scale") > 0, f"scale {a.num('scale')}")
    if not prod(a["x"]):
        return Plan((a["x"],), (), "empty")
    low, high = f"IN_T({float(a.int('low'))})", f"IN_T({float(a.int('high'))})"
    expr = f"clamp(round(x * params.a) + params.b, {low}, {high})"
    return Plan((a["x"],), (unary_step(a, expr, limits, (1 / a.num("scale"), a.int("zero"))),), "lanes")


def make_steps(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    return {"x": rng.integers(-128, 128, a["x"]).astype(np.int8)}


@op(
    "quantized_decomposed.dequantize_per_tensor.default",
    "x scale:num zero:int low:int high:int _ _ -> out",
    reference=lambda a, t: [(t["x"].astype(np.float64) - a.int("zero")) * a.num("scale")],
    make=make_steps,
    cases=(
        Case({"x": (4, 8)}, _ATTRS, ({"x": (2, 8)},), {"x": "int8"}),
        Case({"x": (7, 5)}, _ATTRS, _LIVE, {"x": "int8"}),
    ),
)
def dequantize(a: Args, limits: Limits) -> Plan:
    if not prod(a["x"]):
        return Plan((a["x"],), (), "empty")
    expr = "(OUT_T(x) - params.b) * params.a"
    return Plan((a["x"],), (unary_step(a, expr, limits, (a.num("scale"), a.int("zero"))),), "lanes")
