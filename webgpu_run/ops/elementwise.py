"""Elementwise ops of one or two tensors, and casts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..shapes import Array, prod
from .copy import copied
from .expression import binary_plan, extreme, in_dtype, numeric, unary_plan
from .limits import Limits
from .plan import Plan
from .spec import Args, Case, op

COMPARISONS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("eq", "{} == {}", np.equal),
    ("ne", "!({} == {})", np.not_equal),  # naga compiles `!=` so that it is false for NaN
    ("lt", "{} < {}", np.less),
    ("le", "{} <= {}", np.less_equal),
    ("gt", "{} > {}", np.greater),
    ("ge", "{} >= {}", np.greater_equal),
)
_CASES = (
    Case(
        {"a": (1, 29, 52), "b": (1, 29, 52)},
        {"alpha": 1},
        ({"a": (1, 1, 52), "b": (1, 1, 52)}, {"a": (1, 5, 52), "b": (1, 5, 52)}),
    ),
    Case({"a": (3, 1, 7), "b": (5, 1)}, {"alpha": 1}, ({"a": (2, 1, 7)}, {"b": (1, 1)})),
    Case({"a": (), "b": (5, 3)}, {"alpha": 1}),
    Case({"a": (4, 17), "b": (4, 17)}, {"alpha": 1}),
)
_UNARY_CASES = (
    Case({"x": (1, 29, 52)}, live=({"x": (1, 1, 52)}, {"x": (1, 7, 52)})),
    Case({"x": (5, 3)}),
)


def positive(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    return {"x": rng.uniform(0.1, 4, a["x"]).astype(np.float32)}


def unary(
    names: str,
    expr: str,
    f: Callable[[Array], Any],
    schema: str = "x -> out",
    *,
    make: Any = None,
    test: bool = False,
) -> None:
    """An op of x alone: a WGSL expression, and the same for numpy."""

    def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
        return [in_dtype(f(numeric(t["x"])), a.dtypes.get("out", "float32"))]

    @op(names, schema, reference=reference, make=make, cases=_UNARY_CASES)
    def plan(a: Args, limits: Limits) -> Plan:
        return unary_plan(a, expr, limits, test=test)


NUMBERS = "x/float|int -> out/x"
unary("aten.sigmoid.default", "1 / (1 + exp(-x))", lambda x: 1 / (1 + np.exp(-x)))
unary(  # beyond 15 some drivers compute inf / inf
    "aten.tanh.default", "tanh(select(x, sign(x) * BOTH_T(15), abs(x) > BOTH_T(15)))", np.tanh
)
_RELU = "select(x, BOTH_T(0), x < BOTH_T(0))"
unary("aten.relu.default", _RELU, lambda x: np.maximum(x, 0), NUMBERS)
unary(
    "aten.hardswish.default",
    "x * clamp(x + BOTH_T(3), BOTH_T(0), BOTH_T(6)) / BOTH_T(6)",
    lambda x: x * np.clip(x + 3, 0, 6) / 6,
)
unary(
    "aten.hardsigmoid.default",
    "select(clamp(x + BOTH_T(3), BOTH_T(0), BOTH_T(6)) / BOTH_T(6), x, !(x == x))",  # clamp alone may lose a NaN
    lambda x: np.clip(x + 3, 0, 6) / 6,
)
unary("aten.relu6.default", f"select({_RELU}, BOTH_T(6), x > BOTH_T(6))", lambda x: np.clip(x, 0, 6), NUMBERS)
unary("aten.log10.default", "log2(x) * 0.30102999566", np.log10, make=positive)
unary("aten.tan.default", "tan(x)", np.tan)
unary("aten.rsqrt.default", "inverseSqrt(x)", lambda x: 1 / np.sqrt(x), make=positive)
unary("aten.sqrt.default", "sqrt(x)", np.sqrt, make=positive)
unary("aten.log.default", "log(x)", np.log, make=positive)
unary("aten.logical_not.default", "x == BOTH_T(0)", lambda x: x == 0, "x/any -> out/any", test=True)
unary("aten.abs.default", "abs(x)", np.abs, NUMBERS)
unary("aten.neg.default", "-x", np.negative, NUMBERS)
unary("aten.exp.default", "exp(x)", np.exp)
unary("aten.sin.default", "sin(x)", np.sin)
unary("aten.cos.default", "cos(x)", np.cos)
unary("aten.floor.default", "floor(x)", np.floor)
unary("aten.ceil.default", "ceil(x)", np.ceil)
unary("aten.round.default", "round(x)", np.rint)
unary("aten.silu.default", "x / (1 + exp(-x))", lambda x: x / (1 + np.exp(-x)))


def binary(names: str, schema: str, expr: str, f: Callable[..., Any], *, test: bool = False) -> None:
    """An op of a and b, and of alpha if it has one, which is the number {0} of the expression."""

    def alpha(a: Args) -> float:
        number = a.num("alpha", 1.0)
        return int(number) if number.is_integer() else number

    def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
        return [in_dtype(f(numeric(t["a"]), numeric(t["b"]), alpha(a)), a.dtypes.get("out", "float32"))]

    @op(names, schema, reference=reference, cases=_CASES)
    def plan(a: Args, limits: Limits) -> Plan:
        return binary_plan(a, expr, limits, (alpha(a),) if "{0}" in expr else (), test=test)


ANY = "a/any b/any -> out/any"
binary("aten.add.Tensor", "a/any b/any alpha:num -> out/any", "a + b * {0}", lambda a, b, k: a + b * k)
binary(
    "aten.sub.Tensor",
    "a/float|int b/float|int alpha:num -> out/float|int",
    "a - b * {0}",
    lambda a, b, k: a - b * k,
)
binary("aten.mul.Tensor", ANY, "a * b", lambda a, b, k: a * b)
binary("aten.div.Tensor", "a/any b/any -> out", "a / b", lambda a, b, k: a / b)
binary("aten.minimum.default", ANY, extreme("min"), lambda a, b, k: np.minimum(a, b))
binary("aten.maximum.default", ANY, extreme("max"), lambda a, b, k: np.maximum(a, b))
for _name, _test, _f in COMPARISONS:
    binary(f"aten.{_name}.Tensor", ANY, _test.format("a", "b"), lambda a, b, k, f=_f: f(a, b), test=True)
for _name, _sign, _g in (("and", "&", np.logical_and), ("or", "|", np.logical_or)):
    binary(
        f"aten.logical_{_name}.default",
        ANY,
        f"(a != BOTH_T(0)) {_sign} (b != BOTH_T(0))",
        lambda a, b, k, f=_g: f(a, b),
        test=True,
    )


def cast_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return [in_dtype(numeric(t["x"]), a.dtypes.get("out", "float32"))]


@op(
    "dim_order_ops._to_dim_order_copy.default",
    "x/any _ _ _ _ _ _ -> out/any",
    alias="x",
    reference=cast_reference,
)
@op("aten._to_copy.default", "x/any _ _ _ _ _ _ -> out/any", alias="x", reference=cast_reference)
def to_copy(a: Args, limits: Limits) -> Plan:
    """A cast. It shares the memory of its input if both types are the same on the device and no value is narrowed."""
    if a.attrs.get("aliased") and prod(a["x"]):
        return copied(a, a["x"], limits)
    return unary_plan(a, "x", limits, route="cast")
