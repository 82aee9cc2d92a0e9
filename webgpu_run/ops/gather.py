"""Rows of a table picked by index: aten.embedding and aten.index on dim 0."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..op import Args, Array, Case, Limits, Plan, Step, fold, need, op, unsupported
from ..shapes import Dims, ceil_div, prod

WG = 64


def rows_plan(table: Dims, index: Dims, limits: Limits, rename: tuple[tuple[str, str], ...] = ()) -> Plan:
    need(len(table) > 0, "the table has no rows")
    out = (*index, *table[1:])
    width, count = prod(table[1:]), prod(out)
    if not count:
        return Plan((out,), (), "empty")
    step = Step(
        "gather_rows",
        (("count", count), ("width", width), ("rows", table[0])),
        fold(ceil_div(count, WG), limits, f"{count} elements"),
        (("WG", WG),),
        rename=rename,
        work=(8 * count, 0),
    )
    return Plan((out,), (step,), "gather")


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return [t["table"][t["index"]]]


def make_index(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    name = "index" if "index" in a else "at0"
    return {name: rng.integers(0, a["table"][0], a[name]).astype(np.int32)}


@op(
    "aten.embedding.default",
    "table index _ _ _ -> out",
    reference=reference,
    make=make_index,
    cases=(
        Case({"table": (37, 24), "index": (1, 19)}, live=({"index": (1, 1)}, {"index": (1, 7)}), dtypes={"index": "int32"}),
    ),
)
def embedding(a: Args, limits: Limits) -> Plan:
    need(len(a["table"]) == 2, f"the table has dims {list(a['table'])}, expected two")
    return rows_plan(a["table"], a["index"], limits)


@op(
    "aten.index.Tensor",
    "table at:tensors -> out",
    reference=lambda a, t: [t["table"][t["at0"]]],
    make=make_index,
    cases=(Case({"table": (16,), "at0": (5,)}, {"at": (True,)}, dtypes={"at0": "int32"}), Case({"table": (11, 6), "at0": (3,)}, {"at": (True,)}, dtypes={"at0": "int32"})),
)
def index(a: Args, limits: Limits) -> Plan:
    unsupported(a.attrs["at"] == (True,), "only an index on the first dim has a kernel")
    return rows_plan(a["table"], a["at0"], limits, (("index", "at0"),))


@op(
    "aten.index_select.default",
    "table dim:int index -> out",
    reference=reference,
    make=make_index,
    cases=(Case({"table": (11, 6), "index": (3,)}, {"dim": 0}, dtypes={"index": "int32"}),),
)
def index_select(a: Args, limits: Limits) -> Plan:
    unsupported(a.int("dim") in (0, -len(a["table"])), "only dim 0 has a kernel")
    return rows_plan(a["table"], a["index"], limits)
