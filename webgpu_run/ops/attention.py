"""wr.attention: rotary embedding of queries and keys, cache write and causal attention, fused into one op."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, Dims, align, ceil_div, prod
from . import rope, sdpa, sdpa_shares
from .limits import Limits
from .plan import Bound, Plan, Reach, Step, Window, fold, need, unsupported
from .q4_activations import window_rows
from .spec import Args, Case, Packed, Resource, op
from .wgsl import Consts

WG = 64


def _turned(a: Args, t: Mapping[str, Array], pos: int) -> tuple[Array, Array]:
    s = a["xq"][1]
    if a.attrs["halves"]:
        q, k = rope.reference_hf(a, t)
    else:
        start = pos if a.attrs["absolute"] else 0
        q, k = (rope.interleaved(t[n], t["cos"][start : start + s], t["sin"][start : start + s]) for n in ("xq", "xk"))
    return q, k


def remember(a: Args, t: Mapping[str, Array]) -> list[Array]:
    """The caches kc and vc after the call."""
    pos, s = int(a.attrs.get("pos") or 0), a["xq"][1]
    kc, vc = (t[n].astype(np.float64) for n in ("kc", "vc"))
    kc[0, pos : pos + s], vc[0, pos : pos + s] = _turned(a, t, pos)[1][0], t["v"][0]
    return [kc, vc]


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    pos = int(a.attrs.get("pos") or 0)
    q, (kc, vc) = _turned(a, t, pos)[0], remember(a, t)
    return [sdpa.attention(q[0], kc[0], vc[0], pos, a.num("scale", q.shape[3] ** -0.5))[None]]


def _sized(s: int, q: int, kv: int, d: int) -> dict[str, Dims]:
    return {"xq": (1, s, q, d), "xk": (1, s, kv, d), "v": (1, s, kv, d)}


def _case(
    s: int, c: int, q: int, kv: int, d: int, pos: int, *live: int, halves: bool = False, absolute: bool = True
) -> Case:
    table = (c if absolute else s, d if halves else d // 2)
    dims = _sized(s, q, kv, d) | {"kc": (1, c, kv, d), "vc": (1, c, kv, d), "cos": table, "sin": table}
    attrs = {"pos": pos, "causal": True, "scale": None, "absolute": absolute, "halves": halves}
    return Case(dims, attrs, tuple(_sized(n, q, kv, d) for n in live))


def on_textures(a: Args, limits: Limits) -> bool:
    """Whether the caches are textures, which a software adapter reads several times faster than buffers."""
    dim, kv = a["xq"][3], a["xk"][2]
    return (
        limits.profile.image_cache
        and dim % 4 == 0
        and a["cos"][-1] % 8 == 0
        and kv * dim * 2 <= limits.max_texture
        and layer_rows(a, limits) <= limits.max_texture
        and a["xq"][2] * dim * 4 <= limits.max_uniform
        and a["xq"][2] * dim * 4 % limits.uniform_align == 0
    )


def _sequences(a: Args) -> int:
    """How many sequences the caches hold. In a batch, blocks of eight positions of all sequences are neighbours."""
    return int(a.attrs.get("sequences", 1))


def layer_rows(a: Args, limits: Limits) -> int:
    """Rows of eight positions per layer of a cache: 16 of a long context, more if there are too few layers."""
    blocks, count = ceil_div(a["kc"][1], 8), _sequences(a)
    return count * min(max(ceil_div(16, count), ceil_div(blocks, limits.max_layers)), blocks)


def reach(a: Args, limits: Limits) -> Reach:
    """Which layers of the caches a call reads and writes. The position of a batch is the largest of its rows."""
    rows = 1 if "rows" in a else a["xq"][1]
    return Reach("pos", rows, 8 * layer_rows(a, limits) // _sequences(a))


def cache_consts(a: Args, limits: Limits) -> Consts:
    """The texel format of a cache, the rows per layer, and where rows are."""
    sequences = _sequences(a) if "rows" in a else 0
    return *cache_texel(limits), ("LAYER_ROWS", layer_rows(a, limits)), ("SEQUENCES", sequences)


def cache_texel(limits: Limits) -> Consts:
    return (("CACHE", "rgba32float" if limits.kv == "f32" else "rgba16float"),)


def store_consts(a: Args, limits: Limits) -> Consts:
    return (*cache_consts(a, limits), ("HELD", rounded_texel(limits)))


def rounded_texel(limits: Limits) -> str:
    """The expression that rounds v to the format of a cache: a texture's conversion may round toward zero."""
    return (
        "v"
        if limits.kv == "f32"
        else "vec4(unpack2x16float(pack2x16float(v.xy)), unpack2x16float(pack2x16float(v.zw)))"
    )


def resources(a: Args, limits: Limits) -> dict[str, Resource]:
    seq, heads, dim = a["xq"][1:]
    if not on_textures(a, limits):
        kv = Resource(prod(a["kc"]) * (4 if limits.kv == "f32" else 2), state=True)
        parts = sdpa_shares.part_resources(a["xq"], a["kc"], limits)
        return {"q": Resource(prod(a["xq"]) * 4), "kc": kv, "vc": kv} | parts
    high = layer_rows(a, limits)
    size = (a["xk"][2] * dim * 2, high, ceil_div(_sequences(a) * ceil_div(a["kc"][1], 8), high))
    texel = str(dict(cache_consts(a, limits))["CACHE"])
    cache = Resource(prod(size) * (16 if limits.kv == "f32" else 8), state=True, texture=size, texel=texel)
    rows = 1 if seq == 1 else align(seq, window_rows(heads * dim, limits))
    return {"q": Resource(rows * heads * dim * 4), "kt": cache, "vt": cache}


def pack(a: Args, t: Mapping[str, Array], limits: Limits) -> dict[str, Packed]:
    """The constants of the caches are not uploaded: they only give the size of a cache that starts empty."""
    unsupported(
        not (t["kc"].any() or t["vc"].any()),
        "a KV cache with something in it at the start has no fused kernel; try --no-fuse",
    )
    return {}


def bounds(a: Args) -> tuple[Bound, ...]:
    """Check the shapes; return the bounds that keep the live position inside the cache and the tables."""
    bound = sdpa.check(a, "xq", "xk")
    seq, _, dim = a["xq"][1:]
    need(
        a["cos"] == a["sin"] and len(a["cos"]) == 2,
        f"cos {list(a['cos'])} and sin {list(a['sin'])} are not two like tables",
    )
    rows, width = a["cos"]
    need(dim % 2 == 0, f"head_dim {dim} is odd")
    if a.attrs["halves"]:
        need(width % 2 == 0 and width <= dim, f"the tables are {width} wide, head_dim is {dim}")
    else:
        need(width == dim // 2, f"the tables are {width} wide, half of head_dim is {dim // 2}")
    need(seq <= rows, f"{seq} positions, the frequency tables cover {rows}")
    if not a.attrs["absolute"]:
        return (bound,)
    return bound, Bound("pos", rows - seq, f"{seq} positions in frequency tables of {rows} rows")


@op(
    "wr.attention",
    "xq xk v kc!:cache<-xk vc!:cache<-v pos:slot cos:rotary sin:rotary absolute:bool halves:bool mask?:mask _dropout "
    "causal:bool scale?:num -> out",
    reference=reference,
    remember=remember,
    resources=resources,
    pack=pack,
    cases=(
        _case(13, 40, 6, 2, 16, 0, 1, 5),
        _case(13, 40, 6, 2, 16, 27, 1, 5, halves=True),
        _case(3, 173, 9, 3, 64, 111, 1),
        _case(5, 17, 4, 4, 8, 3, 1, absolute=False),
    ),
)
def attention(a: Args, limits: Limits) -> Plan:
    limit = bounds(a)
    q = a["xq"]
    if not prod(q):
        return Plan((q,), (), "empty", limit)
    if on_textures(a, limits):
        return Plan((q,), texture_steps(a, limits), "texture", limit, reach=reach(a, limits))
    steps = (turn_rows(a, limits), *sdpa.attend_steps(a, q, limits))
    return Plan((q,), steps, sdpa.route_of("buffer", steps), limit)


def turn_rows(a: Args, limits: Limits, rename: tuple[tuple[str, str], ...] = (), *, reordered: bool = False) -> Step:
    """Rotary embedding and the write of caches that are buffers. `reordered`: rotary pairs are neighbours."""
    q, k = a["xq"], a["xk"]
    pairs = (prod(q) // 2, prod(k) // 2)
    half = limits.kv == "f16"
    packing = (("CELL", "u32"), ("PACK", "pack2x16float(v)")) if half else (("CELL", "vec2<f32>"), ("PACK", "v"))
    flags = (("ABSOLUTE", int(a.attrs["absolute"])), ("HALVES", int(a.attrs["halves"])), ("REORDERED", int(reordered)))
    return Step(
        "rope_cache",
        (
            ("pairs_q", pairs[0]),
            ("pairs_k", pairs[1]),
            ("heads_q", q[2]),
            ("heads_k", k[2]),
            ("half_dim", q[3] // 2),
            ("width", a["cos"][1]),
            ("pos_slot", a.slots["pos"]),
        ),
        fold(ceil_div(pairs[0] + 2 * pairs[1], WG), limits, "rope"),
        (("WG", WG), *flags, *packing),
        rename=rename,
        work=(8 * (pairs[0] + 2 * pairs[1]) * 2, 6 * (pairs[0] + pairs[1])),
    )


def texture_steps(a: Args, limits: Limits) -> tuple[Step, ...]:
    """Rotary embedding, the write of caches that are textures, and attention."""
    return _turn_step(a, limits), *attend_steps(a, limits)


def _turn_step(a: Args, limits: Limits) -> Step:
    heads, dim = a["xq"][2:]
    kv = a["xk"][2]
    quads = (prod(a["xq"]) // 4, prod(a["xk"]) // 4)
    wide = (("HEADS", heads), ("KV_HEADS", kv), ("D", dim))
    lanes = 8
    return Step(
        "rope_cache_texture",
        (("quads_q", quads[0]), ("quads_k", quads[1]), ("pos_slot", a.slots["pos"])),
        fold(ceil_div(quads[0] + 2 * quads[1], lanes), limits, "rope"),
        (
            ("WG", lanes),
            *wide,
            ("TABLE", a["cos"][1]),
            ("ABSOLUTE", int(a.attrs.get("absolute", True))),
            ("HALVES", int(a.attrs["halves"])),
            *store_consts(a, limits),
        ),
        work=(32 * (quads[0] + 2 * quads[1]), 12 * (quads[0] + quads[1])),
    )


def attend_steps(a: Args, limits: Limits) -> tuple[Step, ...]:
    """Attention of the rotated queries in scratch over texture caches, one window of queries per dispatch."""
    seq, heads, dim = a["xq"][1:]
    kv = a["xk"][2]
    window = 1 if seq == 1 else window_rows(heads * dim, limits)
    alone = seq == 1 or "rows" in a
    rows = 2 if not alone and heads // kv <= 4 else 1  # query rows per workgroup: more do not fit in registers
    share = heads // kv if heads // kv <= 4 else 1
    blocks = 2 if alone else 1
    groups = limits.profile.groups
    steps = []
    for first in range(0, seq, window):
        live = min(window, seq - first)
        steps.append(
            Step(
                "sdpa_texture",
                (
                    ("rows", live),
                    ("first_row", first),
                    ("pos_slot", a.slots["pos"]),
                    ("scale", a.num("scale", dim**-0.5)),
                ),
                (ceil_div(heads // share, groups), ceil_div(live, rows), 1),
                (
                    *(("HEADS", heads), ("KV_HEADS", kv), ("D", dim), ("SHARE", share), ("QROWS", rows)),
                    *(("WINDOW", window), ("BLOCKS", blocks), ("GROUPS", groups)),
                    *cache_consts(a, limits),
                ),
                (("q", Window(first * heads * dim * 4, window * heads * dim * 4)),),
                work=(8 * live * heads * dim, 0),
            )
        )
    return tuple(steps)
