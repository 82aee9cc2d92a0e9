"""Quantize a tensor with one scale and zero point, and dequantize it; dequantize with one for each channel."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, ceil_div, prod, wrap
from .expression import WG, unary_plan
from .limits import Limits
from .plan import Plan, Step, fold, need
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


def channels_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    axis = wrap(a.int("axis"), len(a["x"]))
    per = {
        k: np.moveaxis(t[k].astype(np.float64).reshape(-1, *(1,) * (len(a["x"]) - 1)), 0, axis) for k in t if k != "x"
    }
    return [(t["x"].astype(np.float64) - per.get("zeros", 0)) * per["scales"]]


def make_channels(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    zeros = {"zeros": rng.integers(-5, 6, a["zeros"]).astype(np.int32)} if "zeros" in a else {}
    return {**make_steps(a, rng), "scales": rng.uniform(0.01, 0.2, a["scales"]).astype(np.float32), **zeros}


_CHANNELS = {"x": "int8", "zeros": "int32"}


@op(
    "quantized_decomposed.dequantize_per_channel.default",
    "x/int scales zeros?/int axis:int low:int high:int _ _ -> out",
    reference=channels_reference,
    make=make_channels,
    cases=(
        Case({"x": (6, 5), "scales": (6,), "zeros": (6,)}, {"axis": 0, "low": -128, "high": 127}, (), _CHANNELS),
        Case(
            {"x": (4, 3, 2, 5), "scales": (3,), "zeros": (3,)},
            {"axis": -3, "low": -128, "high": 127},
            ({"x": (1, 3, 2, 5)}, {"x": (2, 3, 1, 4)}),
            _CHANNELS,
        ),
        Case({"x": (7, 9), "scales": (9,)}, {"axis": 1, "low": -128, "high": 127}, ({"x": (2, 9)},), {"x": "int8"}),
    ),
)
def dequantize_channels(a: Args, limits: Limits) -> Plan:
    """Each index of one dim has its own scale and zero point. Most often x is a weight that no pattern recognized."""
    x = a["x"]
    axis = wrap(a.int("axis"), len(x))
    for name in ("scales", "zeros"):
        need(name not in a or a[name] == x[axis : axis + 1], f"{name} does not have {x[axis]} elements")
    if not prod(x):
        return Plan((x,), (), "empty")
    step = Step(
        "dequantize_channels",
        (("count", prod(x)), ("channel", prod(x[axis + 1 :])), ("channels", x[axis])),
        fold(ceil_div(prod(x), WG), limits, f"{prod(x)} elements"),
        (("WG", WG), ("ZEROS", int("zeros" in a))),
        rename=() if "zeros" in a else (("zeros", "x"),),
        work=(8 * prod(x), 2 * prod(x)),
    )
    return Plan((x,), (step,), "lanes")
