"""sdpa_with_kv_cache: write k and v into the caches at the live position, then causal attention over what they hold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..op import Args, Array, Bound, Case, Limits, Plan, Step, fold, need, op, unsupported
from ..shapes import Dims, ceil_div, prod

WG = 64
LANES = 32


def attention(q: Array, k: Array, v: Array, pos: int, scale: float, causal: bool = True) -> Array:
    """[S, Hq, D] over caches [C, Hkv, D] in float64; query i sees rows 0..pos+i."""
    s, heads, _ = q.shape
    k, v = (np.repeat(x[: pos + s].astype(np.float64), heads // x.shape[1], 1) for x in (k, v))
    scores = np.einsum("shd,chd->hsc", q.astype(np.float64), k) * scale
    if causal:
        scores = np.where(np.arange(pos + s)[None, None] <= pos + np.arange(s)[None, :, None], scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(np.einsum("hsc,chd->shd", p / p.sum(-1, keepdims=True), v))


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
    "q k v kc* vc* pos:slot _ mask? _ causal:bool scale:num? -> out",
    reference=reference,
    cases=(
        _case(13, 40, 6, 2, 16, 0, 1, 5),
        _case(13, 40, 6, 2, 16, 27, 1, 5),
        _case(3, 173, 9, 3, 64, 111, 1),
        _case(2, 17, 4, 4, 8, 3, 1),
        _case(5, 9, 2, 1, 128, 1, 1, 3),
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
        *attend_steps(a, q, k[2], limits),
    )
    return Plan((q,), steps, "online", (bound,))


def attend_steps(a: Args, q: Dims, kv_heads: int, limits: Limits) -> tuple[Step, ...]:
    """Attention of every query over the caches, which hold its own row already."""
    unsupported(limits.kv == "f32", f"a {limits.kv} KV cache has kernels only where caches are textures; try --kv f32")
    seq, heads, dim = q[1:]
    step = Step(
        "sdpa",
        (
            ("seq", seq),
            ("heads", heads),
            ("share", heads // kv_heads),
            ("row", kv_heads * dim),
            ("pos_slot", a.slots["pos"]),
            ("scale", a.num("scale", dim**-0.5)),
        ),
        fold(seq * heads, limits, f"{seq} queries of {heads} heads"),
        (("LANES", LANES), ("DIM", dim)),
        work=(4 * seq * kv_heads * dim * 4, 0),
    )
    return (step,)


@op("update_cache.default llama.update_cache.default", "x cache* pos:slot -> out")
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
