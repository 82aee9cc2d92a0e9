"""Dispatches of one WGSL expression per element: what all elementwise ops share.

An expression is written in terms of `x`, or of `a` and `b`. All of it is computed in one type, BOTH_T: f32 if an
argument or the output is a float, else i32. Numbers that the host sets are written {0} and {1}; they reach the kernel
in that type too, so that no digit of an integer is lost. In the vec4 form every type is a vector of four.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..shapes import Array, broadcast, broadcast_strides, ceil_div, prod
from .copy import pad8
from .limits import Limits
from .plan import Plan, Step, fold
from .spec import Args

WG = 64
INT32 = range(-(2**31), 2**31)
Params = tuple[tuple[str, int | float | tuple[int, ...]], ...]
Consts = tuple[tuple[str, str | int], ...]


def wgsl_type(dtype: str) -> str:
    return "f32" if dtype.startswith("float") else "i32"


def unary_plan(
    a: Args, expr: str, limits: Limits, numbers: tuple[float, ...] = (), *, test: bool = False, route: str = ""
) -> Plan:
    """The plan of an expression of x; with `test` it is a condition, and the output 1 or 0."""
    if not prod(a["x"]):
        return Plan((a["x"],), (), "empty")
    step = unary_step(a, expr, limits, numbers, test=test)
    return Plan((a["x"],), (step,), route or ("vec4" if prod(a["x"]) % 4 == 0 else "scalar"))


def unary_step(
    a: Args, expr: str, limits: Limits, numbers: tuple[float, ...] = (), *, test: bool = False, both: str = ""
) -> Step:
    count = prod(a["x"])
    vec4 = count % 4 == 0
    lanes = count // 4 if vec4 else count
    both = both or _computed_in(a, ("x",), numbers, test)
    return Step(
        "unary",
        (("count", lanes), *_uniforms(both, numbers)),
        fold(ceil_div(lanes, WG), limits, f"{count} elements"),
        (("WG", WG), *_types(a, ("x",), both, vec4), ("EXPR", _stored(a, expr, both, numbers, test, vec4))),
        work=(8 * count, count),
    )


def binary_plan(
    a: Args, expr: str, limits: Limits, numbers: tuple[float, ...] = (), *, test: bool = False, both: str = ""
) -> Plan:
    """The plan of an expression of a and b: vec4 if their shapes are equal, else each is read through its strides."""
    out = broadcast(a["a"], a["b"])
    count = prod(out)
    if not count:
        return Plan((out,), (), "empty")
    vec4 = a["a"] == a["b"] and count % 4 == 0
    lanes = count // 4 if vec4 else count
    both = both or _computed_in(a, ("a", "b"), numbers, test)
    params: Params = (("count", lanes), *_uniforms(both, numbers))
    if not vec4:
        params += (
            ("rank", len(out)),
            ("dims", pad8(out, 1)),
            ("a_strides", pad8(broadcast_strides(a["a"], out), 0)),
            ("b_strides", pad8(broadcast_strides(a["b"], out), 0)),
        )
    step = Step(
        "binary_vec4" if vec4 else "binary",
        params,
        fold(ceil_div(lanes, WG), limits, f"{count} elements"),
        (("WG", WG), *_types(a, ("a", "b"), both, vec4), ("EXPR", _stored(a, expr, both, numbers, test, vec4))),
        work=(12 * count, count),
    )
    return Plan((out,), (step,), "vec4" if vec4 else "broadcast")


def _computed_in(a: Args, names: tuple[str, ...], numbers: tuple[float, ...], test: bool) -> str:
    """The type of an expression. A condition does not depend on the type of its output."""
    dtypes = [a.dtypes.get(n, "float32") for n in (names if test else (*names, "out"))]
    whole = all(math.isfinite(n) and n == int(n) and int(n) in INT32 for n in numbers)
    return "i32" if whole and not any(d.startswith("float") for d in dtypes) else "f32"


def _uniforms(both: str, numbers: tuple[float, ...]) -> Params:
    first, second = (*numbers, 0, 0)[:2]
    if both == "i32":
        return (("first", 0.0), ("second", 0.0), ("int_first", int(first)), ("int_second", int(second)))
    return (("first", float(first)), ("second", float(second)), ("int_first", 0), ("int_second", 0))


def _types(a: Args, names: tuple[str, ...], both: str, vec4: bool) -> Consts:
    types = {n.upper(): wgsl_type(a.dtypes.get(n, "float32")) for n in (*names, "out")} | {"BOTH": both, "BITS": "u32"}
    return tuple((name, f"vec4<{t}>" if vec4 else t) for name, t in types.items())


def _stored(a: Args, expr: str, both: str, numbers: tuple[float, ...], test: bool, vec4: bool) -> str:
    """The expression with its numbers, brought into the range of the output's dtype as PyTorch does: integers wrap."""
    prefix = "int_" if both == "i32" else ""
    text = expr.format(*(f"BOTH_T(params.{prefix}{name})" for name in ("first", "second")[: len(numbers)]))
    shift = "vec4<u32>(24u)" if vec4 else "24u"
    if test:
        return f"select(OUT_T(0), OUT_T(1), {text})"
    return {
        "bool": f"select(OUT_T(0), OUT_T(1), ({text}) != BOTH_T(0))",
        "int8": f"(OUT_T({text}) << {shift}) >> {shift}",
        "uint8": f"OUT_T({text}) & OUT_T(255)",
    }.get(a.dtypes.get("out", "float32"), text)


def extreme(name: str) -> str:
    """WGSL's min and max may return the other operand of a NaN; PyTorch returns NaN.

    naga compiles `a != a` to false, so NaN is found as `!(a == a)`.
    """
    return f"select({name}(a, b), a + b, !(a == a) | !(b == b))"


def numeric(x: Array) -> Array:
    """Data as references compute with it: float64, or int64."""
    return x.astype(np.float64 if x.dtype.kind == "f" else np.int64)


def in_dtype(value: Any, dtype: str) -> Array:
    """The result of a reference as a tensor of the dtype holds it: integers wrap, floats stay in float64."""
    result: Array = np.asarray(value)
    if dtype == "bool":
        result = result != 0
    elif dtype.startswith("float"):
        result = result.astype(np.float64)
    else:
        result = (np.trunc(result) if result.dtype.kind == "f" else result).astype(np.int64).astype(dtype)
    return np.asarray(result)
