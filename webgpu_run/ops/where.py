"""aten.where: each element from a or b, as the condition says; all three are broadcast."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, broadcast, broadcast_strides, ceil_div, prod
from .copy import pad8
from .limits import Limits
from .plan import Plan, Step, fold
from .spec import Args, Case, op

WG = 64


def make(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    return {"cond": rng.random(a["cond"]) < 0.5}


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return [np.where(t["cond"], t["a"], t["b"])]


_COND = {"cond": "bool"}


@op(
    "aten.where.self",
    "cond/bool|int a/any b/any -> out/a|b",
    reference=reference,
    make=make,
    cases=(
        Case({"cond": (3, 1, 7), "a": (), "b": (5, 7)}, live=({"b": (1, 7)},), dtypes=_COND),
        Case({"cond": (1, 13), "a": (4, 13), "b": (4, 1)}, live=({"a": (1, 13), "b": (1, 1)},), dtypes=_COND),
    ),
)
def where(a: Args, limits: Limits) -> Plan:
    names = ("cond", "a", "b")
    out = broadcast(broadcast(a["cond"], a["a"]), a["b"])
    count = prod(out)
    if not count:
        return Plan((out,), (), "empty")
    strides = tuple((f"{n}_strides", pad8(broadcast_strides(a[n], out), 0)) for n in names)
    step = Step(
        "where",
        (("count", count), ("rank", len(out)), ("dims", pad8(out, 1)), *strides),
        fold(ceil_div(count, WG), limits, f"{count} elements"),
        (("WG", WG),),
        work=(16 * count, 0),
    )
    return Plan((out,), (step,), "broadcast")
