"""Rows of a table picked by index: aten.embedding, aten.index on one dim, aten.index_select. Elements: aten.gather."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, Dims, ceil_div, prod, strides_of, wrap
from .copy import pad8
from .limits import Limits
from .plan import Plan, Step, Window, fold, need, row_parts, unsupported
from .spec import Args, Case, Packed, op

WG = 64


def rows_plan(
    table: Dims,
    index: Dims,
    limits: Limits,
    dim: int = 0,
    rename: tuple[tuple[str, str], ...] = (),
    *,
    half: bool = False,
) -> Plan:
    """Pick slices of dim `dim` of the table: the index's dims take the place of that dim. A `half` table is f16."""
    need(len(table) > 0, "the table has no rows")
    dim = wrap(dim, len(table))
    out = (*table[:dim], *index, *table[dim + 1 :])
    width, count = prod(table[dim + 1 :]), prod(out)
    if not count:
        return Plan((out,), (), "empty")
    need(table[dim] > 0, f"dim {dim} of {list(table)} is empty")
    wide = 4 if width % 4 == 0 and not half else 1
    grid = fold(ceil_div(count // wide, WG), limits, f"{count} elements")
    rows, row_nbytes = prod(table[: dim + 1]), width * (2 if half else 4)
    fixed = (("count", count // wide), ("width", width // wide), ("rows", table[dim]), ("picks", prod(index)))
    consts = (("WG", WG), ("HALF", int(half)), ("WIDE", wide))
    steps = []
    for first, held in row_parts(rows, row_nbytes, limits):
        params = (*fixed, ("first", first), ("held", held))
        windows = () if held == rows else (("table", Window(first * row_nbytes, held * row_nbytes)),)
        steps.append(Step("gather_rows", params, grid, consts, windows, rename, (8 * count, 0)))
    return Plan((out,), tuple(steps), "gather" if len(steps) == 1 else f"gather in {len(steps)} parts")


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    """An index outside the table picks its last row; models refuse such an input before it gets here."""
    return [t["table"].take(t["index"], 0, mode="clip")]


def make_index(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Indices from both ends of the dim; for an embedding also one that is out of range."""
    name = next(n for n in a.dims if n != "table")
    size = a["table"][int(name[2:]) if name != "index" else a.attrs.get("dim", 0)]
    embedding = "dim" not in a.attrs and name == "index"  # has no negative indices
    index = rng.integers(0 if embedding else -size, size, a[name]).astype(np.int32)
    if embedding and index.size > 1:
        index.flat[-1] = size
    return {name: index}


_INDEX = {"index": "int32"}


_FEWER = ({"index": (1, 1)}, {"index": (1, 7)})


def _halves(a: Args) -> bool:
    return a.dtypes.get("table") == "float16" and a["table"][-1] % 2 == 0


def pack(a: Args, t: Mapping[str, Array], limits: Limits) -> dict[str, Packed]:
    """An f16 table stays f16, because it is often the largest tensor of a file."""
    return {"table": Packed(t["table"].view(np.uint32) if _halves(a) else t["table"].astype(np.float32, copy=False))}


@op(
    "aten.embedding.default",
    "table!:table index:index/int _ _ _ -> out",
    reference=reference,
    make=make_index,
    pack=pack,
    cases=(
        Case({"table": (37, 24), "index": (1, 19)}, live=_FEWER, dtypes=_INDEX),
        Case({"table": (37, 24), "index": (1, 19)}, live=_FEWER, dtypes={**_INDEX, "table": "float16"}),
        Case({"table": (37, 5), "index": (1, 3)}, dtypes={**_INDEX, "table": "float16"}),
    ),
)
def embedding(a: Args, limits: Limits) -> Plan:
    need(len(a["table"]) == 2, f"the table has dims {list(a['table'])}, expected two")
    return rows_plan(a["table"], a["index"], limits, half=_halves(a))


def index_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return [t["table"][tuple(t[f"at{i}"] if on else slice(None) for i, on in enumerate(a.attrs["at"]))]]


@op(
    "aten.index.Tensor",
    "table/any at:activation[]/int -> out/table",
    reference=index_reference,
    make=make_index,
    cases=(
        Case({"table": (16,), "at0": (5,)}, {"at": (True,)}, dtypes={"at0": "int32"}),
        Case({"table": (11, 6), "at0": (3,)}, {"at": (True,)}, ({"at0": (1,)},), dtypes={"at0": "int32"}),
        Case({"table": (3, 11, 2), "at1": (2, 3)}, {"at": (False, True)}, ({"at1": (1, 3)},), dtypes={"at1": "int32"}),
    ),
)
def index(a: Args, limits: Limits) -> Plan:
    given = [i for i, on in enumerate(a.attrs["at"]) if on]
    unsupported(len(given) == 1, "an index on more than one dim has no kernel")
    name = f"at{given[0]}"
    return rows_plan(a["table"], a[name], limits, given[0], (("index", name),))


@op(
    "aten.index_select.default",
    "table/any dim:int index/int -> out/table",
    reference=lambda a, t: [t["table"].take(t["index"], a.int("dim"))],
    make=make_index,
    cases=(
        Case({"table": (11, 6), "index": (3,)}, {"dim": 0}, ({"index": (1,)},), dtypes=_INDEX),
        Case({"table": (2, 5, 44), "index": (9,)}, {"dim": 1}, ({"index": (1,), "table": (1, 5, 44)},), dtypes=_INDEX),
        Case({"table": (3, 5, 7), "index": (4,)}, {"dim": 1}, ({"index": (2,), "table": (2, 5, 7)},), dtypes=_INDEX),
        Case({"table": (3, 5, 7), "index": (9,)}, {"dim": -1}, dtypes=_INDEX),
    ),
)
def index_select(a: Args, limits: Limits) -> Plan:
    need(len(a["index"]) <= 1, f"the index has dims {list(a['index'])}, expected one")
    return rows_plan(a["table"], a["index"], limits, a.int("dim"))


def take_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    at = t["at"]
    along = wrap(a.int("dim"), at.ndim)
    within = t["x"][tuple(slice(None if i == along else n) for i, n in enumerate(at.shape))]
    return [np.take_along_axis(within, at, a.int("dim")) if at.ndim else t["x"]]


def make_places(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    size = a["x"][a.int("dim")] if a["x"] else 1
    return {"at": rng.integers(0, size, a["at"]).astype(np.int32)}


@op(
    "aten.gather.default",
    "x/any dim:int at/int _ -> out/x",
    reference=take_reference,
    make=make_places,
    cases=(
        Case(
            {"x": (3, 11, 7), "at": (3, 5, 7)},
            {"dim": 1},
            ({"at": (3, 1, 7)}, {"at": (2, 5, 3)}, {"x": (2, 11, 7), "at": (1, 4, 7)}),
            {"at": "int32"},
        ),
        Case({"x": (5, 13), "at": (4, 13)}, {"dim": -1}, ({"x": (5, 7)}, {"at": (1, 2)}), {"at": "int32"}),
        Case({"x": (), "at": ()}, {"dim": 0}, dtypes={"at": "int32"}),
    ),
)
def take(a: Args, limits: Limits) -> Plan:
    """x with the index in place of the coordinate along the dim; an index outside that dim reads its last element."""
    x, out, rank = a["x"], a["at"], len(a["x"])
    dim = wrap(a.int("dim"), rank)
    fits = len(out) == rank and all(n <= m for i, (n, m) in enumerate(zip(out, x, strict=True)) if i != dim)
    need(fits, f"{list(x)} has no place for each index of {list(out)} along dim {dim}")
    if not prod(out):
        return Plan((out,), (), "empty")
    size, strides = (x[dim], strides_of(x)) if rank else (1, ())
    need(size > 0, f"dim {dim} of {list(x)} is empty")
    step = Step(
        "gather",
        (
            ("count", prod(out)),
            ("rank", rank),
            ("size", size),
            ("step", strides[dim] if rank else 0),
            ("dims", pad8(out, 1)),
            ("strides", pad8(tuple(0 if i == dim else s for i, s in enumerate(strides)), 0)),
        ),
        fold(ceil_div(prod(out), WG), limits, f"{prod(out)} elements"),
        (("WG", WG),),
        work=(12 * prod(out), 0),
    )
    return Plan((out,), (step,), "lanes")
