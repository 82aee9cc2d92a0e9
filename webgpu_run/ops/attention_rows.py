"""wr.attention_rows: attention of a batch, where every row is a token of some sequence at some position.

`rows` has four integers per row: the sequence, the position, the sequence that holds a beginning which the text shares
with others, and the length of that beginning, a multiple of 8 (0 if there is none). All rows are written into the
caches first, so several rows of a call may belong to one sequence. `pos` is the largest position.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, Dims, ceil_div, prod
from . import attention, rope, sdpa
from .limits import Limits
from .plan import Bound, Plan, Step, fold, need, unsupported
from .spec import Args, Case, Resource, op
from .wgsl import Consts

WG = 64
MAX_CELLS = 4  # of the result per invocation of sdpa_batch.wgsl


def _turned(a: Args, t: Mapping[str, Array], name: str) -> Array:
    """The rows of xq or xk, each rotated for its own position."""
    x, out = t[name].astype(np.float64), []
    for i, pos in enumerate(t["rows"][:, 1]):
        cos, sin = (t[n][pos : pos + 1] for n in ("cos", "sin"))
        row = {"xq": x[:, i : i + 1], "xk": x[:, i : i + 1], "cos": cos, "sin": sin}
        out.append(rope.reference_hf(a, row)[0] if a.attrs["halves"] else rope.interleaved(row["xq"], cos, sin))
    return np.concatenate(out, 1)


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    q, k = (
        _turned(Args(a.dims, {**a.attrs, "pos": 0}), t, "xq")[0],
        _turned(Args(a.dims, {**a.attrs, "pos": 0}), t, "xk")[0],
    )
    kc, vc = (np.zeros((a.int("sequences"), *t["kc"].shape[1:])) for _ in "kv")
    for i, (sequence, pos, _, _) in enumerate(t["rows"]):
        kc[sequence, pos], vc[sequence, pos] = k[i], t["v"][0, i]
    out = []
    for i, (sequence, pos, other, shared) in enumerate(t["rows"]):
        keys, values = (np.concatenate((c[other, :shared], c[sequence, shared:])) for c in (kc, vc))
        out.append(sdpa.attention(q[i : i + 1], keys, values, int(pos), a.num("scale", q.shape[2] ** -0.5)))
    return [np.concatenate(out)[None]]


def make(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Rows of several sequences, the first of which holds the beginning that others share; the last is the longest."""
    count, context, sequences = a["xq"][1], a["kc"][1], a.int("sequences")
    shared = min(8, context - 1) // 8 * 8 if count > 9 else 0
    places = [(0, i, 0, 0) for i in range(shared)]
    places += [(i % sequences, shared + i // sequences, 0, shared) for i in range(count - shared)]
    places[-1] = (sequences - 1, int(a.attrs["pos"]), 0, shared)
    return {"rows": np.asarray(places, np.int32)}


def _sized(s: int, q: int, kv: int, d: int) -> dict[str, Dims]:
    return {"xq": (1, s, q, d), "xk": (1, s, kv, d), "v": (1, s, kv, d), "rows": (s, 4)}


def _case(s: int, c: int, q: int, kv: int, d: int, pos: int, sequences: int, *live: int, table: int = 0) -> Case:
    """With a `table` width, pairs are the halves of a head."""
    tables = (c, table or d // 2)
    dims = _sized(s, q, kv, d) | {"kc": (1, c, kv, d), "vc": (1, c, kv, d), "cos": tables, "sin": tables}
    attrs = {"pos": pos, "scale": None, "halves": bool(table), "sequences": sequences}
    return Case(dims, attrs, tuple(_sized(n, q, kv, d) for n in live), {"rows": "int32"})


def resources(a: Args, limits: Limits) -> dict[str, Resource]:
    if attention.on_textures(a, limits):
        return attention.resources(a, limits)
    kv, dim = a["kc"][2:]
    size = 4 if limits.kv == "f32" else 2
    cache = Resource(a.int("sequences") * ceil_div(a["kc"][1], 8) * 8 * kv * dim * size, state=True)
    return {"kc": cache, "vc": cache}


def bounds(a: Args) -> tuple[Bound, ...]:
    """Check the shapes; return the bounds that keep every position inside the cache and the tables."""
    q, k, cache, rows = a["xq"], a["xk"], a["kc"], a["cos"][0]
    for name in ("xq", "xk", "v", "kc", "vc"):
        need(
            len(a[name]) == 4 and a[name][0] == 1,
            f"{name} has dims {list(a[name])}, expected [1, rows, heads, head_dim]",
        )
    need(k == a["v"] and cache == a["vc"], f"k {list(k)}, v {list(a['v'])} or their caches differ")
    need(k[2:] == cache[2:] and q[3] == k[3], f"q {list(q)}, k {list(k)} and the cache {list(cache)} do not fit")
    need(q[1] == k[1] and a["rows"] == (q[1], 4), f"{q[1]} queries, {k[1]} keys and rows {list(a['rows'])}")
    need(k[2] > 0 and q[2] % k[2] == 0, f"{q[2]} query heads can't share {k[2]} key heads")
    need(a["cos"] == a["sin"] and len(a["cos"]) == 2, f"cos {list(a['cos'])} and sin {list(a['sin'])} differ")
    width, dim = a["cos"][1], q[3]
    unsupported(dim % 4 == 0, f"head_dim {dim} is not a multiple of 4")
    if a.attrs["halves"]:
        need(width % 2 == 0 and width <= dim, f"the tables are {width} wide, head_dim is {dim}")
    else:
        need(width == dim // 2, f"the tables are {width} wide, half of head_dim is {dim // 2}")
    bound = Bound("pos", cache[1] - 1, f"the KV cache holds {cache[1]} positions per sequence")
    return bound, Bound("pos", rows - 1, f"the frequency tables have {rows} rows")


@op(
    "wr.attention_rows",
    "xq xk v kc!:cache<-xk vc!:cache<-v rows/int32 pos:slot cos:rotary sin:rotary halves:bool sequences:int scale?:num "
    "-> out",
    reference=reference,
    resources=resources,
    pack=attention.pack,
    make=make,
    cases=(
        _case(13, 40, 6, 2, 16, 27, 3, 1, 5),
        _case(37, 83, 9, 3, 64, 82, 2, 1, 11, 36),
        _case(5, 17, 4, 4, 8, 16, 5, 1, 4, table=8),
        _case(3, 9, 6, 1, 24, 7, 1, 1, 2, table=16),
    ),
)
def attention_rows(a: Args, limits: Limits) -> Plan:
    limit = bounds(a)
    q, k, slot = a["xq"], a["xk"], ("pos_slot", a.slots["pos"])
    if not prod(q):
        return Plan((q,), (), "empty", limit)
    if attention.on_textures(a, limits):
        return Plan((q,), attention.texture_steps(a, limits), "texture", limit, reach=attention.reach(a, limits))
    nbytes = resources(a, limits)["kc"].nbytes
    need(nbytes <= limits.max_binding, f"a cache of {nbytes:,} bytes, the adapter binds at most {limits.max_binding:,}")
    heads, kv, dim, quads, half = q[2], k[2], q[3], prod(k) // 4, limits.kv == "f16"
    shape: Consts = (("HEADS", heads), ("KV_HEADS", kv), ("D", dim), ("TABLE", a["cos"][1]))
    shape = (*shape, ("HALVES", int(a.attrs["halves"])), ("SEQUENCES", a.int("sequences")))
    cell = ("CELL", "vec2<u32>" if half else "vec4<f32>")
    held = ("HELD", "vec2(pack2x16float(v.xy), pack2x16float(v.zw))" if half else "v")
    store = Step(
        "rows_store",
        (("quads", quads), slot),
        fold(ceil_div(2 * quads, WG), limits, "keys and values"),
        (("WG", WG), *shape, cell, held),
        rename=(("x", "xk"),),
        work=(32 * quads, 12 * quads),
    )
    lanes = limits.profile.workgroup
    share = max(
        n for n in range(1, heads // kv + 1) if heads // kv % n == 0 and (n == 1 or n * dim <= 4 * MAX_CELLS * lanes)
    )
    attend = Step(
        "sdpa_batch",
        (("rows", q[1]), slot, ("scale", a.num("scale", dim**-0.5))),
        fold(q[1] * heads // share, limits, f"{q[1]} rows of {heads} heads"),
        (*shape, ("SHARE", share), ("WG", lanes), cell, ("WIDE", dict(sdpa.cell_consts(dim, limits))["WIDE"])),
        rename=(("x", "xq"),),
        work=(8 * prod(q), 0),
    )
    return Plan((q,), (store, attend), "buffer", limit)
