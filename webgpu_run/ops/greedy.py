"""wr.greedy: the id of the largest logit of the last row, so that decoding reads four bytes, not the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..op import Args, Array, Case, Limits, Plan, Resource, Step, fold, need, op
from ..shapes import ceil_div, prod, rows_of

WG = 64
PARTS = 64


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return [np.asarray([t["x"].reshape(-1, a["x"][-1])[-1].argmax()], np.int32)]


def resources(a: Args, limits: Limits) -> dict[str, Resource]:
    return {"best": Resource(PARTS * 8)}


@op(
    "wr.greedy",
    "x -> out",
    reference=reference,
    resources=resources,
    cases=(
        Case({"x": (1, 5, 509)}, live=({"x": (1, 1, 509)}, {"x": (1, 3, 509)}), dtypes={"out": "int32"}),
        Case({"x": (1, 7)}, dtypes={"out": "int32"}),
        Case({"x": (1, 9000)}, dtypes={"out": "int32"}),
    ),
)
def greedy(a: Args, limits: Limits) -> Plan:
    x = a["x"]
    need(prod(x) > 0, f"x has dims {list(x)}: nothing to choose from")
    count = x[-1]
    chunk = ceil_div(count, min(PARTS, ceil_div(count, WG)))
    parts = ceil_div(count, chunk)
    steps = (
        Step(
            "greedy_parts",
            (("base", (rows_of(x) - 1) * count), ("count", count), ("chunk", chunk)),
            fold(parts, limits),
            (("WG", WG),),
            work=(4 * count, 0),
        ),
        Step("greedy_best", (("parts", parts),), (1, 1, 1), work=(8 * parts, 0)),
    )
    return Plan(((1,),), steps, "two-pass")
