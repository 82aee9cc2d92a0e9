"""Elementwise ops of one tensor and up to two numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..shapes import Array
from .elementwise import COMPARISONS
from .expression import in_dtype, numeric, unary_plan
from .limits import Limits
from .plan import Plan, unsupported
from .spec import Args, Case, op

_DIMS: tuple[Mapping[str, tuple[int, ...]], ...] = ({"x": (1, 29, 52)}, {"x": (5, 3)})
_LIVE = ({"x": (1, 1, 52)}, {"x": (1, 7, 52)})


def cases(attrs: Mapping[str, Any], out: str = "float32") -> tuple[Case, ...]:
    return tuple(Case(dims, attrs, _LIVE if i == 0 else (), {"out": out}, tol=2e-5) for i, dims in enumerate(_DIMS))


def value(a: Args) -> tuple[float, ...]:
    return (a.num("value"),)


def scalar(
    names: str,
    schema: str,
    expr: str,
    f: Callable[..., Any],
    example: Mapping[str, Any],
    *,
    numbers: Callable[[Args], tuple[float, ...]] = value,
    out: str = "float32",
    test: bool = False,
) -> None:
    """An op whose kernel is one expression of x and the numbers {0} and {1}; `f` is the same for numpy."""

    def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
        x = numeric(t["x"])
        given = [int(n) if x.dtype.kind == "i" and float(n).is_integer() else np.float32(n) for n in numbers(a)]
        return [in_dtype(f(x, *given), a.dtypes.get("out", "float32"))]

    @op(names, schema, reference=reference, cases=cases(example, out))
    def plan(a: Args, limits: Limits) -> Plan:
        _check_range(a, test)
        return unary_plan(a, expr, limits, numbers(a), test=test)


def _check_range(a: Args, test: bool) -> None:
    """PyTorch wraps a number before it compares bytes with it; we refuse such a number."""
    dtype = a.dtypes.get("x" if test else "out", "float32")
    for name in (("value",) if test else ("low", "high")) if dtype in ("int8", "uint8") else ():
        number = a.attrs.get(name)
        inside = number is None or np.iinfo(dtype).min <= number <= np.iinfo(dtype).max
        unsupported(inside, f"{name} is {number}, which is out of the range of {dtype}")


for _name, _test, _f in COMPARISONS:
    scalar(
        f"aten.{_name}.Scalar",
        "x/any value:num -> out/any",
        _test.format("x", "{0}"),
        lambda x, v, f=_f: f(x, v),
        {"value": 0.25},
        out="bool",
        test=True,
    )
for _name, _sign, _k in (("add", "+", 1), ("sub", "-", -1)):
    scalar(
        f"aten.{_name}.Scalar",
        "x/any value:num alpha:num -> out/float|int",
        f"x {_sign} {{0}}",
        lambda x, v, sign=_k: x + sign * v,
        {"value": 1.5, "alpha": 2},
        numbers=lambda a: (a.num("value") * a.num("alpha", 1.0),),
    )
scalar("aten.mul.Scalar", "x/any value:num -> out/any", "x * {0}", lambda x, v: x * v, {"value": 0.42})
scalar("aten.div.Scalar", "x/any value:num -> out", "x / {0}", lambda x, v: x / v, {"value": 3})


def _bounds(a: Args) -> tuple[float, float]:
    """Without a bound, the largest or smallest value that there is."""
    is_float = any(a.dtypes.get(n, "float32").startswith("float") for n in ("x", "out"))
    most = math.inf if is_float else 2**31 - 1
    return a.num("low", -most - (not is_float)), a.num("high", most)


_AT_LEAST = "select(x, {0}, x < {0})"  # unlike clamp, it keeps a NaN
scalar(
    "aten.hardtanh.default aten.clamp.default",
    "x/float|int low?:num high?:num -> out/float|int",
    f"select({_AT_LEAST}, {{1}}, {_AT_LEAST} > {{1}})",
    lambda x, low, high: np.minimum(np.maximum(x, low), high),
    {"low": -0.5, "high": 0.75},
    numbers=_bounds,
)
scalar(
    "aten.hardshrink.default",
    "x value:num -> out",
    "select(x, BOTH_T(0), (x >= -{0}) & (x <= {0}))",
    lambda x, v: np.where((x >= -v) & (x <= v), 0, x),
    {"value": 0.5},
)
scalar(
    "aten.leaky_relu.default",
    "x value:num -> out",
    "select(x * {0}, x, x > BOTH_T(0))",
    lambda x, v: np.where(x > 0, x, x * v),
    {"value": 0.01},
)


_POWERS = {2: "x * x", 0.5: "sqrt(x)", -0.5: "inverseSqrt(x)"}  # as PyTorch computes them


def power_expr(x: str, exponent: str, infinity: str, nan: str) -> str:
    """x to a power as C and PyTorch define it; WGSL's pow is undefined unless x is positive.

    Zero to a negative power is infinite. A negative number to a fractional power is NaN, to an odd one negative.
    """
    whole = f"({exponent} == trunc({exponent}))"
    odd = f"({whole} & (abs({exponent} % BOTH_T(2)) == BOTH_T(1)))"
    zero = f"select(BOTH_T(0), {infinity}, {exponent} < BOTH_T(0))"
    size = f"select(pow(abs({x}), {exponent}), {zero}, {x} == BOTH_T(0))"
    negative = f"(({x} < BOTH_T(0)) | (BOTH_T(1) / {x} < BOTH_T(0)))"  # or a negative zero
    signed = f"({size} * select(BOTH_T(1), BOTH_T(-1), {negative} & {odd}))"
    fraction = f"(({x} < BOTH_T(0)) & (abs({x}) < {infinity}) & !{whole})"
    real = f"select({signed}, {nan}, {fraction} | !({x} == {x}) | !({exponent} == {exponent}))"
    one = f"({x} == BOTH_T(1)) | (({x} == BOTH_T(-1)) & (abs({exponent}) == {infinity}))"
    return f"select({real}, BOTH_T(1), ({exponent} == BOTH_T(0)) | {one})"


def power_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    x = t["x"].astype(np.float64)
    with np.errstate(all="ignore"):
        if abs(a.num("value")) == 0.5:
            x = np.sqrt(x)
        return [1 / x if a.num("value") == -0.5 else x if a.num("value") == 0.5 else np.power(x, a.num("value"))]


def make_signs(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Numbers of both signs, and zero."""
    x = rng.standard_normal(a["x"]).astype(np.float32)
    x.reshape(-1)[:1] = 0
    return {"x": x}


@op(
    "aten.pow.Tensor_Scalar",
    "x value:num -> out",
    reference=power_reference,
    make=make_signs,
    cases=tuple(case for n in (3, 2, -1, -2, 0, 0.5, -1.5) for case in cases({"value": n})[: 2 if n == 3 else 1]),
)
def power(a: Args, limits: Limits) -> Plan:
    exponent = float(np.float32(a.num("value")))
    unsupported(math.isfinite(exponent), f"exponent {exponent} has no kernel")
    if exponent in _POWERS:
        return unary_plan(a, _POWERS[exponent], limits)
    literal = f"BOTH_T({exponent!r})"
    return unary_plan(a, power_expr("x", literal, "{0}", "{1}"), limits, (math.inf, math.nan))


def _gelu(kind: str | None) -> str:
    if kind == "tanh":
        return "0.5 * x * (1 + tanh(clamp(0.7978845608 * (x + 0.044715 * x * x * x), BOTH_T(-15), BOTH_T(15))))"
    z = "abs(x) * 0.70710678"
    t = f"(1 / (1 + 0.3275911 * {z}))"  # erf to 1.5e-7, Abramowitz and Stegun 7.1.26
    poly = "1.061405429"
    for factor in ("-1.453152027", "1.421413741", "-0.284496736", "0.254829592", "0"):
        poly = f"({factor} + {t} * {poly})"
    return f"0.5 * x * (1 + sign(x) * (1 - {poly} * exp(-0.5 * x * x)))"


def gelu_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    x = t["x"].astype(np.float64)
    if a.attrs["approximate"] == "tanh":
        return [0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))]
    return [0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))]


@op(
    "aten.gelu.default",
    "x approximate:str -> out",
    reference=gelu_reference,
    cases=(*cases({"approximate": "none"}), *cases({"approximate": "tanh"})),
)
def gelu(a: Args, limits: Limits) -> Plan:
    kind = a.attrs.get("approximate")
    unsupported(kind in ("none", "tanh"), f"gelu of kind {kind!r} has no kernel")
    return unary_plan(a, _gelu(kind), limits)
