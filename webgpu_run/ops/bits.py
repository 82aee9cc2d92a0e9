"""Bitwise and, or, not: on the bits of integers; on booleans they are the logical operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..shapes import Array, prod
from .elementwise import binary_step, unary_step, wgsl_type
from .limits import Limits
from .plan import Plan, unsupported
from .spec import Args, Case, op


def _check_integers(a: Args) -> None:
    kinds = {wgsl_type(a.dtypes.get(n, "float32")) for n in (*a.dims, "out")}
    unsupported(kinds == {"i32"}, "bits of floating-point numbers have no kernel")


def _cases(*names: str) -> tuple[Case, ...]:
    """Equal shapes and broadcast ones, of booleans and of integers."""
    wide = dict.fromkeys(names, (1, 29, 52))
    live = (dict.fromkeys(names, (1, 1, 52)), dict.fromkeys(names, (1, 5, 52)))
    odd = dict(zip(names, ((3, 1, 7), (5, 1)), strict=False))
    return tuple(
        Case(dims, {}, shapes, dict.fromkeys((*names, "out"), dtype))
        for dtype in ("bool", "int32")
        for dims, shapes in ((wide, live), (odd, ({"b": (1, 1)},) if "b" in odd else ()))
    )


def _pair(name: str, sign: str, f: Callable[..., Any]) -> None:
    def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
        return [f(t["a"], t["b"])]

    @op(f"aten.bitwise_{name}.Tensor", "a b -> out", reference=reference, cases=_cases("a", "b"))
    def plan(a: Args, limits: Limits) -> Plan:
        _check_integers(a)
        out, step, route = binary_step(a, f"a {sign} b", limits)
        return Plan((out,), (step,) if step else (), route)


_pair("and", "&", np.bitwise_and)
_pair("or", "|", np.bitwise_or)


@op(
    "aten.bitwise_not.default",
    "x -> out",
    reference=lambda a, t: [np.invert(t["x"])],
    cases=_cases("x"),
)
def bitwise_not(a: Args, limits: Limits) -> Plan:
    _check_integers(a)
    if not prod(a["x"]):
        return Plan((a["x"],), (), "empty")
    expr = "select(OUT_T(0), OUT_T(1), x == IN_T(0))" if a.dtypes.get("x") == "bool" else "~x"
    return Plan((a["x"],), (unary_step(a, expr, limits),), "vec4" if prod(a["x"]) % 4 == 0 else "scalar")
