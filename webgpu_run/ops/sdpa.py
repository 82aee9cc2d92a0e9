"""sdpa_with_kv_cache: write k and v into the caches at the live position, then causal attention over what they hold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, Dims, ceil_div, prod
from .limits import Limits
from .plan import Bound, Idle, Plan, Step, fold, need, unsupported
from .sdpa_shares import part_resources, shares
from .spec import Args, Case, Resource, op

WG = 64


def attention(q: Array, k: Array, v: Array, pos: int, scale: float, causal: bool = True) -> Array:
    """[S, Hq, D] over caches [C, Hkv, D] in float64; query i sees rows 0..pos+i, and no other row enters a sum."""
    s, heads, _ = q.shape
    k, v = (np.repeat(x[: pos + s].astype(np.float64), heads // x.shape[1], 1) for x in (k, v))
    scores = np.einsum("shd,chd->hsc", q.astype(np.float64), k) * scale
    if causal:
        scores = np.where(np.arange(pos + s)[None, None] <= pos + np.arange(s)[None, :, None], scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    seen = [pos + i + 1 if causal else pos + s for i in range(s)]
    return np.stack([np.einsum("hc,chd->hd", p[:, i, :n], v[:n]) for i, n in enumerate(seen)])


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    pos, s = int(a.attrs.get("pos") or 0), a["q"][1]
    kc, vc = t["kc"][0].copy(), t["vc"][0].copy()
    kc[pos : pos + s], vc[pos : pos + s] = t["k"][0], t["v"][0]
    return [
        attention(t["q"][0], kc, vc, pos, a.num("scale", a["q"][3] ** -0.5), bool(a.attrs.get("causal", True)))[None]
    ]


def update_step(rows: int, pos_slot: int, row: int, limits: Limits, rename: tuple[tuple[str, str], ...]) -> Step:
    """Copy `rows` rows of `row` elements into a cache at the live position."""
    count = rows * row
    return Step(
        "update_cache",
        (("count", count), ("row", row), ("pos_slot", pos_slot)),
        fold(ceil_div(count, WG), limits),
        (("WG", WG),),
        rename=rename,
        work=(8 * count, 0),
    )


def resources(a: Args, limits: Limits) -> dict[str, Resource]:
    return part_resources(a["q"], a["kc"], limits)


def _sized(s: int, q: int, kv: int, d: int) -> dict[str, Dims]:
    return {"q": (1, s, q, d), "k": (1, s, kv, d), "v": (1, s, kv, d)}


def _case(s: int, c: int, q: int, kv: int, d: int, pos: int, *live: int) -> Case:
    dims = _sized(s, q, kv, d) | {"kc": (1, c, kv, d), "vc": (1, c, kv, d)}
    return Case(dims, {"pos": pos, "causal": True, "scale": None}, tuple(_sized(n, q, kv, d) for n in live))


def check(a: Args, q_name: str, k_name: str) -> Bound:
    """Every shape agrees, and the bound that keeps the live position inside the cache."""
    q, k, cache = a[q_name], a[k_name], a["kc"]
    unsupported("mask" not in a, "an attention mask has no kernel")
    unsupported(bool(a.attrs.get("causal", True)), "attention that is not causal has no kernel")
    for name in (q_name, k_name, "v", "kc", "vc"):
        need(
            len(a[name]) == 4 and a[name][0] == 1,
            f"{name} has dims {list(a[name])}, expected [1, rows, heads, head_dim]",
        )
    need(k == a["v"] and cache == a["vc"], f"k {list(k)}, v {list(a['v'])} or their caches differ")
    need(k[2:] == cache[2:] and q[3] == k[3], f"q {list(q)}, k {list(k)} and the cache {list(cache)} do not fit")
    need(q[1] == k[1], f"q has {q[1]} rows, k has {k[1]}")
    need(k[2] > 0 and q[2] % k[2] == 0, f"{q[2]} query heads can't share {k[2]} key heads")
    need(q[1] <= cache[1], f"{q[1]} rows, the cache holds {cache[1]}")
    return Bound("pos", cache[1] - q[1], f"the KV cache holds {cache[1]} positions, {q[1]} more are asked for")


@op(
    "sdpa_with_kv_cache.default",
    "q k v kc*:cache<-k vc*:cache<-v pos:slot _ mask?:mask _dropout causal:bool scale?:num -> out",
    reference=reference,
    resources=resources,
    cases=(
        _case(13, 40, 6, 2, 16, 0, 1, 5),
        _case(13, 40, 6, 2, 16, 27, 1, 5),
        _case(3, 173, 9, 3, 64, 111, 1),
        _case(2, 17, 4, 4, 8, 3, 1),
        _case(5, 9, 2, 1, 128, 1, 1, 3),
        _case(37, 170, 6, 2, 80, 133, 1, 11),
    ),
)
def sdpa(a: Args, limits: Limits) -> Plan:
    bound = check(a, "q", "k")
    q, k = a["q"], a["k"]
    seq = q[1]
    if not prod(q):
        return Plan((q,), (), "empty", (bound,))
    slot, row = a.slots["pos"], prod(k[2:])
    steps = (
        update_step(seq, slot, row, limits, (("x", "k"), ("cache", "kc"))),
        update_step(seq, slot, row, limits, (("x", "v"), ("cache", "vc"))),
        *attend_steps(a, q, limits),
    )
    return Plan((q,), steps, route_of("online", steps), (bound,))


def route_of(name: str, steps: tuple[Step, ...]) -> str:
    """The name of a route over caches that are buffers, from its dispatches."""
    kernels = {step.kernel for step in steps}
    return name + "+tiles" * ("sdpa_tiled" in kernels) + "+split" * ("sdpa_reduce" in kernels)


def cell_consts(dim: int, limits: Limits) -> tuple[tuple[str, int | str], ...]:
    """The widest cell that divides a row of `dim` elements, and how a cell of a cache is read."""
    width = 4 if dim % 4 == 0 else 2 if limits.kv == "f16" else 1
    vector = f"vec{width}<f32>" if width > 1 else "f32"
    cell = {("f16", 4): "vec2<u32>", ("f16", 2): "u32"}.get((limits.kv, width), vector)
    read = {"vec2<u32>": "vec4(unpack2x16float(cell.x), unpack2x16float(cell.y))", "u32": "unpack2x16float(cell)"}.get(
        cell, "cell"
    )
    product = "dot(a, b)" if width > 1 else "a * b"
    return ("WIDTH", width), ("V", vector), ("CELL", cell), ("WIDE", read), ("DOT", product)


def attend_steps(a: Args, q: Dims, limits: Limits) -> tuple[Step, ...]:
    """Attention of every query over the caches, which already hold the rows of this call."""
    seq, heads, dim = q[1:]
    kv = a["kc"][2]
    way = shares(q, a["kc"], limits)
    whole = way.splits == 1
    cells = cell_consts(dim, limits)
    step = Step(
        way.kernel,
        (
            ("seq", seq),
            ("splits", way.splits),
            ("pos_slot", a.slots["pos"]),
            ("scale", a.num("scale", dim**-0.5)),
        ),
        (*fold(way.items, limits, f"{seq} queries of {heads} heads")[:2], way.splits),
        (
            *(("HEADS", heads), ("KV_HEADS", kv), ("D", dim), *way.consts, ("WHOLE", int(whole)), ("SPAN", way.span)),
            *(cell for cell in cells if way.kernel != "sdpa_tiled" or cell[0] in ("CELL", "WIDE")),
        ),
        work=(4 * seq * kv * dim * 4, 0),
    )
    if whole:
        return (step,)
    width, vector = cells[:2]
    count = seq * heads * dim // int(width[1])
    join = Step(
        "sdpa_reduce",
        (("cells", count), ("splits", way.splits), ("pos_slot", a.slots["pos"])),
        fold(ceil_div(count, WG), limits),
        (
            *(("WG", WG), ("HEADS", heads), ("CELLS", dim // int(width[1]))),
            *(("TILE", way.tile), ("SPAN", way.span), vector),
        ),
        work=(seq * heads * (way.splits + 1) * dim * 4, 0),
        idle=Idle("pos", max(0, way.span - seq + 1)),
    )
    return step, join


@op("update_cache.default llama.update_cache.default", "x cache*:cache<-x pos:slot -> out")
def update_cache(a: Args, limits: Limits) -> Plan:
    x, cache = a["x"], a["cache"]
    need(
        len(x) == len(cache) == 4 and x[0] == 1 and x[2:] == cache[2:],
        f"{list(x)} does not fit the cache {list(cache)}",
    )
    need(x[1] <= cache[1], f"{x[1]} rows, the cache holds {cache[1]}")
    bound = Bound("pos", cache[1] - x[1], f"the cache holds {cache[1]} positions, {x[1]} more are asked for")
    steps = (update_step(x[1], a.slots["pos"], prod(x[2:]), limits, ()),) if prod(x) else ()
    return Plan((a.max_dims.get("out", (1,)),), steps, "rows", (bound,))
