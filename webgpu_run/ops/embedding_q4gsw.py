"""et_vk.embedding_q4gsw: rows of a 4-bit table; a table that is tied to a linear is the same texture."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, ceil_div, prod
from . import linear_q4gsw, q4_layout
from .limits import Limits
from .plan import Plan, Step, fold, need
from .spec import Args, Case, Packed, op
from .wgsl import Consts

WG = 64


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    w = t["w"] if a.attrs["linear"] else q4_layout.swap_nibbles(t["w"])
    v, d = w.shape[0], w.shape[1] * 2
    table = q4_layout.nibbles(w).astype(np.float64) * np.repeat(
        t["scales"].astype(np.float64).reshape(v, -1), a.int("group"), 1
    )
    return [table.take(t["index"], 0, mode="clip").reshape((*a["index"], d))]


def pack(a: Args, t: Mapping[str, Array], limits: Limits) -> dict[str, Packed]:
    """The table as a linear stores its weight. Tables with the even k in the high nibble are converted."""
    w, group = t["w"], a.int("group")
    if not a.attrs["linear"]:
        w = q4_layout.swap_nibbles(w)
    scales = t["scales"].astype(np.float32).reshape(w.shape[0], -1)
    if q4_layout.fits(w.shape[1] * 2, group, (w.shape[0],), limits):
        return {"w": q4_layout.texels([(w, scales.T)], group, limits)}
    return {"w": Packed(np.ascontiguousarray(w).view(np.uint32)), "scales": Packed(scales)}


def make(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Random rows, and one index past the table, which must give its last row."""
    index = rng.integers(0, a["w"][0], a["index"]).astype(np.int32)
    if index.size > 1:
        index.flat[-1] = a["w"][0]
    return {**linear_q4gsw.make(a, rng), "index": index}


def _case(v: int, d: int, group: int, linear: bool) -> Case:
    return Case(
        {"w": (v, d // 2), "scales": (v, d // group), "index": (1, 13)},
        {"group": group, "linear": linear},
        ({"index": (1, 1)}, {"index": (1, 4)}),
        {"w": "uint8", "index": "int32"},
    )


@op(
    "et_vk.embedding_q4gsw.default",
    "w!:table/q4 scales!:scales group:int index:index/int linear:bool -> out",
    reference=reference,
    pack=pack,
    make=make,
    cases=(
        _case(37, 64, 32, True),
        _case(37, 64, 32, False),
        _case(11, 96, 32, True),
        _case(190, 64, 32, True),
        _case(13, 128, 64, True),
        _case(7, 64, 16, False),
    ),
)
def embedding_q4gsw(a: Args, limits: Limits) -> Plan:
    vocab, half = a["w"]
    dim, group = 2 * half, a.int("group")
    need(group > 0 and dim % group == 0, f"rows of {dim} are not a multiple of the group size {group}")
    need(dim % 32 == 0, f"rows of {dim} are not a multiple of 32")
    need(
        prod(a["scales"]) == vocab * dim // group,
        f"scales have dims {list(a['scales'])} for {vocab} rows of {dim // group} groups",
    )
    out = (*a["index"], dim)
    count = prod(a["index"])
    if not count:
        return Plan((out,), (), "empty")
    work = (count * dim * 9 // 2, count * dim)
    if q4_layout.fits(dim, group, (vocab,), limits):
        blocks = count * dim // 32
        where = q4_layout.layout(dim, group, (vocab,), limits)
        consts: Consts = (("WG", limits.profile.lanes), *where.consts().items())
        grid = fold(ceil_div(blocks, limits.profile.lanes), limits)
        return Plan(
            (out,),
            (Step("embedding_q4gsw_strips", (("count", blocks), ("vocab", vocab)), grid, consts, work=work),),
            "strips",
        )
    lanes = count * dim // 8
    params = (("words", lanes), ("dim", dim), ("group", group), ("vocab", vocab))
    return Plan(
        (out,), (Step("embedding_q4gsw", params, fold(ceil_div(lanes, WG), limits), (("WG", WG),), work=work),), "plain"
    )
