"""Bitwise and, or, not: on the bits of integers; on booleans they are the logical operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..shapes import Array
from .expression import binary_plan, in_dtype, unary_plan
from .limits import Limits
from .plan import Plan
from .spec import Args, Case, op


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
        return [in_dtype(f(t["a"], t["b"]), a.dtypes["out"])]

    @op(
        f"aten.bitwise_{name}.Tensor",
        "a/int|bool b/int|bool -> out/int|bool",
        reference=reference,
        cases=_cases("a", "b"),
    )
    def plan(a: Args, limits: Limits) -> Plan:
        return binary_plan(a, f"a {sign} b", limits)


_pair("and", "&", np.bitwise_and)
_pair("or", "|", np.bitwise_or)


@op(
    "aten.bitwise_not.default",
    "x/int|bool -> out/x",
    reference=lambda a, t: [np.invert(t["x"])],
    cases=_cases("x"),
)
def bitwise_not(a: Args, limits: Limits) -> Plan:
    if a.dtypes.get("x") == "bool":
        return unary_plan(a, "x == BOTH_T(0)", limits, test=True)
    return unary_plan(a, "~x", limits)
