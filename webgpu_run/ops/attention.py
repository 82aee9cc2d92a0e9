"""wr.attention: rotary embedding of queries and keys, cache write and causal attention, as fusion makes it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..op import Args, Array, Bound, Case, Limits, Plan, Resource, Step, fold, need, op
from ..shapes import Dims, ceil_div, prod
from . import rope, sdpa

WG = 64


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    pos, s = int(a.attrs.get("pos") or 0), a["xq"][1]
    if a.attrs["halves"]:
        q, k = rope.reference_hf(a, t)
    else:
        start = pos if a.attrs["absolute"] else 0
        q, k = (rope.interleaved(t[n], t["cos"][start : start + s], t["sin"][start : start + s]) for n in ("xq", "xk"))
    kc, vc = (t[n][0].astype(np.float64) for n in ("kc", "vc"))
    kc[pos : pos + s], vc[pos : pos + s] = k[0], t["v"][0]
    return [sdpa.attention(q[0], kc, vc, pos, a.num("scale", q.shape[3] ** -0.5))[None]]


def _sized(s: int, q: int, kv: int, d: int) -> dict[str, Dims]:
    return {"xq": (1, s, q, d), "xk": (1, s, kv, d), "v": (1, s, kv, d)}


def _case(s: int, c: int, q: int, kv: int, d: int, pos: int, *live: int, halves: bool = False, absolute: bool = True) -> Case:
    table = (c if absolute else s, d if halves else d // 2)
    dims = _sized(s, q, kv, d) | {"kc": (1, c, kv, d), "vc": (1, c, kv, d), "cos": table, "sin": table}
    attrs = {"pos": pos, "causal": True, "scale": None, "absolute": absolute, "halves": halves}
    return Case(dims, attrs, tuple(_sized(n, q, kv, d) for n in live))


def resources(a: Args, limits: Limits) -> dict[str, Resource]:
    return {"q": Resource(prod(a["xq"]) * 4)}


@op(
    "wr.attention",
    "xq xk v kc* vc* pos:slot cos sin absolute:bool halves:bool mask? _ causal:bool scale:num? -> out",
    reference=reference,
    resources=resources,
    cases=(
        _case(13, 40, 6, 2, 16, 0, 1, 5),
        _case(13, 40, 6, 2, 16, 27, 1, 5, halves=True),
        _case(3, 173, 9, 3, 64, 111, 1),
        _case(5, 17, 4, 4, 8, 3, 1, absolute=False),
    ),
)
def attention(a: Args, limits: Limits) -> Plan:
    bound = sdpa.check(a, "xq", "xk")
    q, k = a["xq"], a["xk"]
    seq, heads, dim = q[1:]
    absolute, halves = bool(a.attrs["absolute"]), bool(a.attrs["halves"])
    need(a["cos"] == a["sin"] and len(a["cos"]) == 2, f"cos {list(a['cos'])} and sin {list(a['sin'])} are not two like tables")
    rows, width = a["cos"]
    need(dim % 2 == 0, f"head_dim {dim} is odd")
    if halves:
        need(width % 2 == 0 and width <= dim, f"the tables are {width} wide, head_dim is {dim}")
    else:
        need(width == dim // 2, f"the tables are {width} wide, half of head_dim is {dim // 2}")
    need(seq <= rows, f"{seq} positions, the frequency tables cover {rows}")
    bounds = (bound, Bound("pos", rows - seq, f"{seq} positions in frequency tables of {rows} rows")) if absolute else (bound,)
    if not prod(q):
        return Plan((q,), (), "empty", bounds)
    pairs = (prod(q) // 2, prod(k) // 2)
    turn = Step(
        "rope_cache",
        (
            ("pairs_q", pairs[0]),
            ("pairs_k", pairs[1]),
            ("heads_q", heads),
            ("heads_k", k[2]),
            ("half_dim", dim // 2),
            ("width", width),
            ("pos_slot", a.slots["pos"]),
        ),
        fold(ceil_div(pairs[0] + 2 * pairs[1], WG), limits, "rope"),
        (("WG", WG), ("ABSOLUTE", int(absolute)), ("HALVES", int(halves))),
        work=(8 * (pairs[0] + 2 * pairs[1]) * 2, 6 * (pairs[0] + pairs[1])),
    )
    return Plan((q,), (turn, *sdpa.attend_steps(a, q, k[2], limits)), "fused", bounds)
