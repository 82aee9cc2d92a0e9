"""Elementwise ops of one tensor and up to two numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..shapes import Array, prod
from .elementwise import COMPARISONS, unary_step
from .limits import Limits
from .plan import Plan, unsupported
from .spec import Args, Case, op

LARGEST = 3.4028234e38
_DIMS: tuple[Mapping[str, tuple[int, ...]], ...] = ({"x": (1, 29, 52)}, {"x": (5, 3)})
_LIVE = ({"x": (1, 1, 52)}, {"x": (1, 7, 52)})


def cases(attrs: Mapping[str, Any], out: str = "float32") -> tuple[Case, ...]:
    return tuple(Case(dims, attrs, _LIVE if i == 0 else (), {"out": out}, tol=2e-5) for i, dims in enumerate(_DIMS))


def scalar(
    names: str,
    schema: str,
    expr: str | Callable[[Args], str],
    f: Callable[..., Any],
    example: Mapping[str, Any],
    *,
    numbers: Callable[[Args], tuple[float, float]] = lambda a: (a.num("value"), a.num("alpha", 1.0)),
    out: str = "float32",
) -> None:
    """An op whose kernel is one expression of x, `params.a` and `params.b`; `f` is its float64 reference."""

    def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
        x = t["x"].astype(np.float64) if t["x"].dtype.kind == "f" else t["x"]
        return [np.asarray(f(x, *numbers(a)))]

    @op(names, schema, reference=reference, cases=cases(example, out))
    def plan(a: Args, limits: Limits) -> Plan:
        if not prod(a["x"]):
            return Plan((a["x"],), (), "empty")
        text = expr if isinstance(expr, str) else expr(a)
        return Plan(
            (a["x"],), (unary_step(a, text, limits, numbers(a)),), "vec4" if prod(a["x"]) % 4 == 0 else "scalar"
        )


def _limits(a: Args) -> tuple[float, float]:
    return a.num("low", -LARGEST), a.num("high", LARGEST)


for _name, _sign, _f in COMPARISONS:
    scalar(
        f"aten.{_name}.Scalar",
        "x value:num -> out",
        f"select(OUT_T(0), OUT_T(1), x {_sign} IN_T(params.a))",
        lambda x, v, k, f=_f: f(x, np.float32(v)),
        {"value": 0.25},
        out="bool",
    )
for _name, _sign, _k in (("add", "+", 1), ("sub", "-", -1)):
    scalar(
        f"aten.{_name}.Scalar",
        "x value:num alpha:num -> out",
        f"OUT_T(x) {_sign} OUT_T(params.a * params.b)",
        lambda x, v, k, sign=_k: x + sign * v * k,
        {"value": 1.5, "alpha": 2},
    )
scalar("aten.mul.Scalar", "x value:num -> out", "OUT_T(x) * OUT_T(params.a)", lambda x, v, k: x * v, {"value": 0.42})
scalar("aten.div.Scalar", "x value:num -> out", "OUT_T(x) / OUT_T(params.a)", lambda x, v, k: x / v, {"value": 3})
scalar(
    "aten.hardtanh.default aten.clamp.default",
    "x low?:num high?:num -> out",
    "clamp(OUT_T(x), OUT_T(params.a), OUT_T(params.b))",
    lambda x, low, high: np.clip(x, low, high),
    {"low": -0.5, "high": 0.75},
    numbers=_limits,
)
scalar(
    "aten.full_like.default",
    "x value:num _ _ _ _ _ -> out",
    "OUT_T(params.a)",
    lambda x, v, k: np.full(x.shape, np.float32(v)),
    {"value": 0.5},
)
scalar(
    "aten.leaky_relu.default",
    "x value:num -> out",
    "select(x * params.a, x, x > IN_T(0))",
    lambda x, v, k: np.where(x > 0, x, x * v),
    {"value": 0.01},
)
scalar("aten.abs.default", "x -> out", "abs(x)", lambda x, *_: np.abs(x), {})
scalar("aten.neg.default", "x -> out", "-x", lambda x, *_: -x, {})
scalar("aten.exp.default", "x -> out", "exp(x)", lambda x, *_: np.exp(x), {})
scalar("aten.sin.default", "x -> out", "sin(x)", lambda x, *_: np.sin(x), {})
scalar("aten.cos.default", "x -> out", "cos(x)", lambda x, *_: np.cos(x), {})
scalar("aten.floor.default", "x -> out", "floor(x)", lambda x, *_: np.floor(x), {})
scalar("aten.ceil.default", "x -> out", "ceil(x)", lambda x, *_: np.ceil(x), {})
scalar("aten.round.default", "x -> out", "round(x)", lambda x, *_: np.rint(x), {})
scalar("aten.silu.default", "x -> out", "x / (1 + exp(-x))", lambda x, *_: x / (1 + np.exp(-x)), {})


def _power(a: Args) -> str:
    """WGSL's pow is undefined for negative bases, so the sign is computed apart for whole exponents."""
    exponent = a.num("value")
    if exponent == 2:
        return "x * x"
    if exponent != int(exponent):
        return "pow(x, OUT_T(params.a))"
    sign = " * sign(x)" if exponent % 2 else ""
    return f"pow(abs(x), OUT_T(params.a)){sign}" if exponent else "OUT_T(1)"


scalar("aten.pow.Tensor_Scalar", "x value:num -> out", _power, lambda x, v, k: np.power(x, v), {"value": 3})


def _gelu(a: Args) -> str:
    kind = a.attrs.get("approximate")
    unsupported(kind in ("none", "tanh"), f"gelu of kind {kind!r} has no kernel")
    if kind == "tanh":
        return "0.5 * x * (1 + tanh(clamp(0.7978845608 * (x + 0.044715 * x * x * x), OUT_T(-15), OUT_T(15))))"
    z = "abs(x) * 0.70710678"
    t = f"(1 / (1 + 0.3275911 * {z}))"  # erf to 1.5e-7, Abramowitz and Stegun 7.1.26
    poly = "1.061405429"
    for factor in ("-1.453152027", "1.421413741", "-0.284496736", "0.254829592", "0"):
        poly = f"({factor} + {t} * {poly})"
    return f"0.5 * x * (1 + sign(x) * (1 - {poly} * exp(-0.5 * x * x)))"


def gelu_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    from math import erf

    x = t["x"].astype(np.float64)
    if a.attrs["approximate"] == "tanh":
        return [0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))]
    return [0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))]


@op(
    "aten.gelu.default",
    "x approximate:str -> out",
    reference=gelu_reference,
    cases=(*cases({"approximate": "none"}), *cases({"approximate": "tanh"})),
)
def gelu(a: Args, limits: Limits) -> Plan:
    text = _gelu(a)
    route = "empty" if not prod(a["x"]) else "vec4" if prod(a["x"]) % 4 == 0 else "scalar"
    return Plan((a["x"],), (unary_step(a, text, limits),) if prod(a["x"]) else (), route)
