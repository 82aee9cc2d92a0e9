"""aten._softmax and _log_softmax over any dim: one workgroup per row, which may be strided."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, prod, wrap
from .limits import Limits
from .plan import Plan, Step, fold, need
from .spec import Args, Case, op


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    x = t["x"].astype(np.float64)
    e = np.exp(x - x.max(a.int("dim"), keepdims=True))
    return [e / e.sum(a.int("dim"), keepdims=True)]


def log_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    x = t["x"].astype(np.float64)
    x = x - x.max(a.int("dim"), keepdims=True)
    return [x - np.log(np.exp(x).sum(a.int("dim"), keepdims=True))]


def softmax_plan(a: Args, limits: Limits, log: bool) -> Plan:
    x = a["x"]
    dim = wrap(a.int("dim"), len(x))
    size, inner = x[dim] if x else 1, prod(x[dim + 1 :])
    need(size > 0, f"x has dims {list(x)}: nothing to sum over")
    rows = prod(x) // size
    if not rows:
        return Plan((x,), (), "empty")
    step = Step(
        "softmax",
        (("rows", rows), ("size", size), ("inner", inner)),
        fold(rows, limits, f"{rows} rows"),
        (("WG", limits.profile.row_lanes), ("LOG", int(log))),
        work=(8 * prod(x), 4 * prod(x)),
    )
    return Plan((x,), (step,), "rows" if inner == 1 else "strided")


_CASES = (
    Case({"x": (1, 4, 9, 128)}, {"dim": -1}, ({"x": (1, 4, 1, 128)}, {"x": (1, 4, 3, 17)})),
    Case({"x": (3, 67, 5)}, {"dim": 1}, ({"x": (2, 1, 5)},)),
    Case({"x": (200,)}, {"dim": 0}),
)


@op("aten._softmax.default", "x dim:int _ -> out", reference=reference, cases=_CASES)
def softmax(a: Args, limits: Limits) -> Plan:
    return softmax_plan(a, limits, log=False)


@op("aten._log_softmax.default", "x dim:int _ -> out", reference=log_reference, cases=_CASES)
def log_softmax(a: Args, limits: Limits) -> Plan:
    return softmax_plan(a, limits, log=True)
