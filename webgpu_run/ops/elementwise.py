"""Elementwise ops of one or two tensors, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..shapes import Array, broadcast, broadcast_strides, ceil_div, prod
from .copy import copied, pad8
from .limits import Limits
from .plan import Plan, Step, fold
from .spec import Args, Case, op

WG = 64
COMPARISONS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("eq", "==", np.equal),
    ("ne", "!=", np.not_equal),
    ("lt", "<", np.less),
    ("le", "<=", np.less_equal),
    ("gt", ">", np.greater),
    ("ge", ">=", np.greater_equal),
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


def wgsl_type(dtype: str) -> str:
    return "f32" if dtype.startswith("float") else "i32"


def unary_step(a: Args, expr: str, limits: Limits, scalars: tuple[float, float] = (0.0, 0.0)) -> Step:
    """One dispatch of a WGSL expression of `x` and the uniforms `params.a` and `params.b`."""
    x = a["x"]
    count = prod(x)
    vec4 = count % 4 == 0
    lanes = count // 4 if vec4 else count
    t_in, t_out = wgsl_type(a.dtypes.get("x", "float32")), wgsl_type(a.dtypes.get("out", "float32"))
    wide = (lambda t: f"vec4<{t}>") if vec4 else (lambda t: t)
    return Step(
        "unary",
        (("count", lanes), ("a", scalars[0]), ("b", scalars[1])),
        fold(ceil_div(lanes, WG), limits, f"{count} elements"),
        (("WG", WG), ("IN", wide(t_in)), ("OUT", wide(t_out)), ("EXPR", expr)),
        work=(8 * count, count),
    )


def positive(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    return {"x": rng.uniform(0.1, 4, a["x"]).astype(np.float32)}


def unary(names: str, expr: str, f: Callable[[Array], Array], schema: str = "x -> out", make: Any = None) -> None:
    def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
        return [f(t["x"].astype(np.float64) if t["x"].dtype.kind == "f" else t["x"])]

    @op(names, schema, reference=reference, make=make, cases=_UNARY_CASES)
    def plan(a: Args, limits: Limits) -> Plan:
        if not prod(a["x"]):
            return Plan((a["x"],), (), "empty")
        step = unary_step(a, expr, limits)
        return Plan(
            (a["x"],),
            (step,),
            "vec4" if dict(step.consts)["IN"] != wgsl_type(a.dtypes.get("x", "float32")) else "scalar",
        )


unary("aten.sigmoid.default", "1 / (1 + exp(-x))", lambda x: 1 / (1 + np.exp(-x)))
unary("aten.tanh.default", "tanh(clamp(x, OUT_T(-15), OUT_T(15)))", np.tanh)
unary("aten.relu.default", "max(x, OUT_T(0))", lambda x: np.maximum(x, 0))
unary(
    "aten.hardswish.default",
    "x * clamp(x + OUT_T(3), OUT_T(0), OUT_T(6)) / OUT_T(6)",
    lambda x: x * np.clip(x + 3, 0, 6) / 6,
)
unary("aten.rsqrt.default", "inverseSqrt(x)", lambda x: 1 / np.sqrt(x), make=positive)
unary("aten.sqrt.default", "sqrt(x)", np.sqrt, make=positive)
unary("aten.log.default", "log(x)", np.log, make=positive)
unary("aten.logical_not.default", "select(OUT_T(0), OUT_T(1), x == IN_T(0))", lambda x: x == 0)


def binary_step(a: Args, expr: str, limits: Limits, both: str = "") -> tuple[tuple[int, ...], Step | None, str]:
    """Output dims, step and route of a WGSL expression of `a` and `b`: vec4 if their shapes are equal, else strided.

    The expression sees a and b as `both`: by default f32 if one of them is a float, else i32.
    """
    out = broadcast(a["a"], a["b"])
    count = prod(out)
    t_a, t_b = wgsl_type(a.dtypes.get("a", "float32")), wgsl_type(a.dtypes.get("b", "float32"))
    both = both or ("f32" if "f32" in (t_a, t_b) else "i32")
    t_out = wgsl_type(a.dtypes.get("out", "float32"))
    params: tuple[tuple[str, int | float | tuple[int, ...]], ...] = (("alpha", a.num("alpha", 1.0)),)
    if not count:
        return out, None, "empty"
    if a["a"] == a["b"] and count % 4 == 0:
        name, lanes, route = "binary_vec4", count // 4, "vec4"
        types = tuple((k, f"vec4<{t}>") for k, t in (("A", t_a), ("B", t_b), ("BOTH", both), ("OUT", t_out)))
        params = (("count", lanes), *params)
    else:
        name, lanes, route = "binary", count, "broadcast"
        types = (("A", t_a), ("B", t_b), ("BOTH", both), ("OUT", t_out))
        params = (
            ("count", count),
            ("rank", len(out)),
            *params,
            ("dims", pad8(out, 1)),
            ("a_strides", pad8(broadcast_strides(a["a"], out), 0)),
            ("b_strides", pad8(broadcast_strides(a["b"], out), 0)),
        )
    grid = fold(ceil_div(lanes, WG), limits, f"{count} elements")
    return out, Step(name, params, grid, (("WG", WG), *types, ("EXPR", expr)), work=(12 * count, count)), route


def binary(names: str, expr: str, f: Callable[..., Any], schema: str = "a b -> out") -> None:
    def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
        x, y = (t[n].astype(np.float64) if t[n].dtype.kind == "f" else t[n] for n in "ab")
        return [np.asarray(f(x, y, a.num("alpha", 1.0)))]

    @op(names, schema, reference=reference, cases=_CASES)
    def plan(a: Args, limits: Limits) -> Plan:
        out, step, route = binary_step(a, expr, limits)
        return Plan((out,), (step,) if step else (), route)


binary("aten.add.Tensor", "a + b * BOTH_T(params.alpha)", lambda a, b, k: a + b * k, "a b alpha:num -> out")
binary("aten.sub.Tensor", "a - b * BOTH_T(params.alpha)", lambda a, b, k: a - b * k, "a b alpha:num -> out")
binary("aten.mul.Tensor", "a * b", lambda a, b, k: a * b)
binary("aten.div.Tensor", "OUT_T(a) / OUT_T(b)", lambda a, b, k: a / b)
binary("aten.minimum.default", "min(a, b)", lambda a, b, k: np.minimum(a, b))
binary("aten.maximum.default", "max(a, b)", lambda a, b, k: np.maximum(a, b))
for _name, _sign, _f in COMPARISONS:
    binary(f"aten.{_name}.Tensor", f"select(OUT_T(0), OUT_T(1), a {_sign} b)", lambda a, b, k, f=_f: f(a, b))
for _name, _sign, _g in (("and", "&", np.logical_and), ("or", "|", np.logical_or)):
    binary(
        f"aten.logical_{_name}.default",
        f"select(OUT_T(0), OUT_T(1), (a != BOTH_T(0)) {_sign} (b != BOTH_T(0)))",
        lambda a, b, k, f=_g: f(a, b),
    )


def cast_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return [t["x"].astype(a.dtypes.get("out", "float32"))]


@op(
    "dim_order_ops._to_dim_order_copy.default",
    "x _ _ _ _ _ _ -> out",
    alias="x",
    reference=cast_reference,
)
@op("aten._to_copy.default", "x _ _ _ _ _ _ -> out", alias="x", reference=cast_reference)
def to_copy(a: Args, limits: Limits) -> Plan:
    """A cast. It shares the memory of its input if both types are the same on the device and no value is narrowed."""
    if a.attrs.get("aliased") or not prod(a["x"]):
        return copied(a, a["x"], limits) if prod(a["x"]) else Plan((a["x"],), (), "empty")
    shift = "vec4<u32>(24u)" if prod(a["x"]) % 4 == 0 else "24u"
    expr = {
        "bool": "select(OUT_T(0), OUT_T(1), x != IN_T(0))",
        "int8": f"(OUT_T(x) << {shift}) >> {shift}",
        "uint8": "OUT_T(x) & OUT_T(255)",
    }
    step = unary_step(a, expr.get(a.dtypes.get("out", ""), "OUT_T(x)"), limits)
    return Plan((a["x"],), (step,), "cast")
