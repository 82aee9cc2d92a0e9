"""An independent computation of the dispatches of attention, rotary embeddings and cache writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from webgpu_run.ops.limits import Limits
from webgpu_run.ops.plan import Plan, Reach, Step
from webgpu_run.ops.spec import Args, Op
from webgpu_run.shapes import Dims

from helpers import fields_q4
from helpers.fields_moves import Want, size, strides, up, words
from helpers.fields_q4 import spread, window

CACHED = ("sdpa_with_kv_cache", "attention", "attention_q4gsw", "custom_sdpa")
REGISTERS = 512  # floats of queries that a workgroup may hold


# -- one dispatch each -------------------------------------------------------------------------------------------------


def rope(a: Args) -> tuple[str, list[Want]]:
    """Both tensors in one dispatch, a lane a pair."""
    heads_first = len(a["cos"]) == 3
    (seq_q, heads_q), (seq_k, heads_k) = (a[n][2:0:-1] if heads_first else a[n][1:3] for n in ("xq", "xk"))
    dim = a["xq"][3]
    pairs = [size(a[n]) // 2 for n in ("xq", "xk")]
    params = {"pairs_q": pairs[0], "pairs_k": pairs[1], "seq_q": seq_q, "seq_k": seq_k}
    params |= {"heads_q": heads_q, "heads_k": heads_k, "half_dim": dim // 2}
    if "pos" not in a.slots:
        return "pairs", [Want("rope", params, lanes=sum(pairs))]
    inner = [1, 1] if heads_first else [heads_q, heads_k]
    shared = not heads_first or a["cos"][0] == 1
    params |= {"inner_q": inner[0], "inner_k": inner[1], "batch_rows": 0 if shared else a["cos"][1]}
    params |= {"half_rot": a["cos"][-1] // 2, "pos_slot": a.slots["pos"]}
    return "halves+heads" if heads_first else "halves", [Want("rope_hf", params, lanes=sum(pairs))]


def rope_pairs(a: Args) -> tuple[str, list[Want]]:
    pairs = size(a["x"]) // 2
    return "pairs", [Want("rope_pairs", {"pairs": pairs, "table": size(a["freqs"]) // 2}, lanes=pairs)]


def masked(a: Args, limits: Limits) -> tuple[str, list[Want]]:
    batch, heads, rows, dim = a["q"]
    keys, mask = a["k"][2], "mask" in a
    spans = np.broadcast_to(words(a["mask"] if mask else ()), (batch, heads, rows, keys))
    params = {"queries": batch * heads * rows, "heads": heads, "rows": rows, "keys": keys}
    params |= {"scale": a.num("scale", 1 / dim**0.5), "mask_strides": strides(spans)}  # type: ignore[dict-item]
    if batch * heads * rows >= (64 if limits.profile.images else 2048) and dim in range(4, 129, 4):
        each = 1 if not limits.profile.images else min(rows, 4)
        params["items"] = lanes = params.pop("queries") // rows * up(rows, each)
        consts = {"WG": 32, "ROWS": each, "CELLS": dim // 4, "MASK": int(mask)}
        return "masked rows" if mask else "online rows", [Want("et_sdpa_rows", params, up(lanes, 32), consts=consts)]
    consts = {"WG": 32, "DIM": dim, "MASK": int(mask), "ROWS_FIRST": 0}
    return "masked" if mask else "online", [Want("et_sdpa", params | {"share": 1}, batch * heads * rows, consts=consts)]


def masked_caches(a: Args) -> tuple[str, list[Want]]:
    """Queries and caches have their rows before their heads."""
    (_, rows, heads, dim), (_, keys, kv, _) = a["q"], a["kc"]
    spans = np.broadcast_to(words(a["mask"]), (1, heads, rows, keys))
    params = {"queries": heads * rows, "heads": heads, "rows": rows, "keys": keys, "share": heads // kv}
    params |= {"scale": a.num("scale", 1 / dim**0.5), "mask_strides": (0, *strides(spans)[1:])}  # type: ignore[dict-item]
    consts = {"WG": 32, "DIM": dim, "MASK": 1, "ROWS_FIRST": 1}
    return "masked", [Want("et_sdpa", params, heads * rows, consts=consts)]


def cache_write(a: Args) -> tuple[str, list[Want]]:
    count = size(a["x"])
    params = {"count": count, "row": count // a["x"][1], "pos_slot": a.slots["pos"]}
    return "rows", [Want("update_cache", params, lanes=count)]


ALONE: dict[str, Callable[[Args], tuple[str, list[Want]]]] = {
    "apply_rotary_emb": rope,
    "apply_rotary_emb_hf": rope,
    "apply_rotary_emb_interleaved": rope_pairs,
    "update_cache": cache_write,
    "custom_sdpa": masked_caches,
}


# -- attention over caches ---------------------------------------------------------------------------------------------


def dispatch(kernel: str, params: dict[str, Any], grid: Dims, **consts: int | str) -> dict[str, Any]:
    return {"kernel": kernel, "params": params, "grid": grid, "consts": consts}


def over_rows(seq: int, heads: int, cache: Dims, scale: float, slot: int, limits: Limits) -> list[dict[str, Any]]:
    """Caches are buffers: as many workgroups as fill the adapter, if the longest context has tiles for them."""
    _, context, kv, dim = cache
    profile, half = limits.profile, limits.kv == "f16"
    each = heads // kv
    groups = min(profile.workgroup << (seq == 1 and profile.fill > 1), limits.max_invocations) // 8
    tile, span = 4 * groups, 16 * groups  # positions at a time, and positions that one workgroup reads alone

    def fit(queries: int) -> bool:
        """In registers and, without subgroups, with four scores per lane and query in workgroup memory."""
        shared = 0 if limits.subgroups else 8 * groups * (4 * 4 * queries + 16) + up(groups, 2) * 16
        return queries * dim <= REGISTERS and shared <= limits.max_workgroup_bytes

    share = next(n for n in range(each, 0, -1) if each % n == 0 and (fit(n) or n == 1))
    rows = 1 if seq == 1 else next(r for r in (4, 3, 2, 1) if fit(r * share) or r == 1)
    items = heads // share * up(seq, rows)
    kernel = "sdpa_subgroup" if limits.subgroups else "sdpa"
    own = {"SHARE": share, "QROWS": rows, "GROUPS": groups, "POSITIONS": 4}
    if tiled(seq, each, dim, limits):
        kernel, items, span, tile = "sdpa_tiled", kv * up(seq * each, 32), 128, 32
        own = {"LANES": 8 << (dim > 128), "VALUES": 32 >> sum(n * dim > 1024 for n in (32, 16, 8))}
    most = min(up(context, tile), limits.max_workgroups) if context > span else 1
    splits = next(n for n in range(most, 0, -1) if n == 1 or n * items <= profile.fill)
    width = 4 if dim % 4 == 0 else 2 if half else 1
    vector = {4: "vec4<f32>", 2: "vec2<f32>", 1: "f32"}[width]
    wide = {4: "vec4(unpack2x16float(cell.x), unpack2x16float(cell.y))", 2: "unpack2x16float(cell)"}
    if kernel != "sdpa_tiled":  # whose cells have four elements
        own |= {"WIDTH": width, "V": vector, "DOT": "a * b" if width == 1 else "dot(a, b)"}
    found = [
        dispatch(
            kernel,
            {"seq": seq, "splits": splits, "pos_slot": slot, "scale": scale},
            (*spread(items, limits), splits),
            HEADS=heads,
            KV_HEADS=kv,
            D=dim,
            **own,
            WHOLE=int(splits == 1),
            SPAN=span,
            CELL={4: "vec2<u32>", 2: "u32"}[width] if half else vector,
            WIDE=wide[width] if half else "cell",
        )
    ]
    if splits > 1:
        cells = seq * heads * dim // width
        params = {"cells": cells, "splits": splits, "pos_slot": slot}
        sizes = {"WG": 64, "HEADS": heads, "CELLS": dim // width, "TILE": tile, "SPAN": span}
        join = dispatch("sdpa_reduce", params, (*spread(up(cells, 64), limits), 1), **sizes, V=vector)
        found.append(join | {"idle": next(p for p in range(span + 2) if p + seq > span)})
    return found


def tiled(seq: int, each: int, dim: int, limits: Limits) -> bool:
    """Prompts on GPUs whose queries fill a tile, if workgroup memory holds what 64 or 128 invocations share."""
    invocations = 64 if dim <= 128 else 128
    cells = 2 * 4 * 34 + 8 * 32 + invocations  # of queries and keys, of weights, and one each
    fits = 16 * cells <= limits.max_workgroup_bytes and invocations <= limits.max_invocations
    return limits.profile.tiled and seq > 1 and seq * each >= 32 and dim in range(4, 257, 4) and fits


def over_textures(
    seq: int, heads: int, cache: Dims, scale: float, slot: int, limits: Limits, sequences: int = 0
) -> list[dict[str, Any]]:
    """Caches are textures: a window of query rows a dispatch, two rows a workgroup where heads are few and rows are
    neighbours. A batch has `sequences`.
    """
    _, _, kv, dim = cache
    few, held, found = heads <= 4 * kv, window(seq, 4 * heads * dim, limits), []
    rows = 2 if few and seq > 1 and not sequences else 1
    for first in range(0, seq, held):
        live = min(held, seq - first)
        step = dispatch(
            "sdpa_texture",
            {"rows": live, "first_row": first, "pos_slot": slot, "scale": scale},
            (up(kv if few else heads, 2 if limits.profile.lanes == 16 else 1), up(live, rows), 1),
            HEADS=heads,
            KV_HEADS=kv,
            D=dim,
            SHARE=heads // kv if few else 1,
            QROWS=rows,
            WINDOW=held,
            BLOCKS=2 if seq == 1 or sequences else 1,
            GROUPS={8: 1, 16: 2}[limits.profile.lanes],
            **texels(cache, limits, sequences),
        )
        found.append(step | {"at": (first * heads * dim * 4, held * heads * dim * 4)})
    return found


def texels(cache: Dims, limits: Limits, sequences: int = 0) -> dict[str, Any]:
    """Layers of at least 16 blocks of eight positions, as few as leave no more layers than there may be. The blocks of
    all sequences of a batch lie together.
    """
    blocks, count = up(cache[1], 8), max(sequences, 1)
    held = next(
        n for n in range(1, blocks + 1) if n == blocks or (n * count >= 16 and up(blocks, n) <= limits.max_layers)
    )
    texel = {"f32": "rgba32float", "f16": "rgba16float"}[limits.kv]
    return {"CACHE": texel, "LAYER_ROWS": held * count, "SEQUENCES": sequences}


def stored(cache: Dims, limits: Limits, sequences: int = 0) -> dict[str, Any]:
    halves = "vec4(unpack2x16float(pack2x16float(v.xy)), unpack2x16float(pack2x16float(v.zw)))"
    return texels(cache, limits, sequences) | {"HELD": halves if limits.kv == "f16" else "v"}


def turned(a: Args, slot: int, limits: Limits, texture: bool, sequences: int = 0) -> dict[str, Any]:
    """Queries turned into scratch, keys turned and values copied into their caches."""
    heads, dim = a["xq"][2:]
    kv, table = a["xk"][2], a["cos"][1]
    flags = {"ABSOLUTE": int(bool(sequences) or a.attrs["absolute"]), "HALVES": int(a.attrs["halves"])}
    each = 4 if texture else 2  # elements a lane
    q, k = size(a["xq"]) // each, size(a["xk"]) // each
    if texture:
        params = {"quads_q": q, "quads_k": k, "pos_slot": slot}
        grid = (*spread(up(q + k + k, 8), limits), 1)
        wide = {"WG": 8, "HEADS": heads, "KV_HEADS": kv, "D": dim, "TABLE": table}
        return dispatch("rope_cache_texture", params, grid, **wide, **flags, **stored(a["kc"], limits, sequences))
    params = {"pairs_q": q, "pairs_k": k, "heads_q": heads, "heads_k": kv, "half_dim": dim // 2, "width": table}
    grid = (*spread(up(q + k + k, 64), limits), 1)
    cell = {"CELL": "u32", "PACK": "pack2x16float(v)"} if limits.kv == "f16" else {"CELL": "vec2<f32>", "PACK": "v"}
    return dispatch("rope_cache", params | {"pos_slot": slot}, grid, WG=64, **flags, REORDERED=0, **cell)


def textures(heads: int, cache: Dims, table: int, limits: Limits, sequences: int = 0) -> bool:
    """Whether caches can be textures: whole texels, a row of queries that is a uniform, sides that there are."""
    _, _, kv, dim = cache
    whole = dim % 4 == 0 == table % 8 and 4 * heads * dim % limits.uniform_align == 0
    sides = max(2 * kv * dim, texels(cache, limits, sequences)["LAYER_ROWS"]) <= limits.max_texture
    return limits.profile.image_cache and whole and sides and 4 * heads * dim <= limits.max_uniform


def projected(a: Args, m: int, slot: int, limits: Limits, sequences: int = 0) -> list[dict[str, Any]]:
    """The dispatches of a linear of three outputs, but that its last step turns and stores what it has."""
    k, dim = a["x"][-1], a["kc"][3]
    widths = [a[f"w{i}"][0] for i in range(3)]
    forms = ["norm"] * ("norm" in a) + ["round"] * bool(a.attrs["rounded"])
    found = fields_q4.expected(m, k, a.int("group"), widths, limits, forms, a.num("eps"))
    names = {
        "linear_q4gsw_strips_subgroup": "attention_q4gsw",
        "linear_q4gsw_rows": "attention_q4gsw_rows",
        "linear_dq8ca_strips_subgroup": "attention_dq8ca",
        "linear_dq8ca_fresh": "attention_dq8ca_fresh",
        "linear_dq8ca_rows": "attention_dq8ca_rows",
    }
    heads = {"HEADS": widths[0] // dim, "KV_HEADS": widths[1] // dim, "D": dim}
    for step in found:
        if step["kernel"] not in names:
            continue
        rest = {
            "BIAS": int(bool(a.attrs["bias"])),
            "TABLE": a["cos"][1],
            "HALVES": int(a.attrs["halves"]),
            **stored(a["kc"], limits, sequences),
        }
        step["kernel"] = names[step["kernel"]]
        step["consts"] = {n: v for n, v in step["consts"].items() if n not in fields_q4.ENDS} | heads | rest
        step["params"] = {n: step["params"][n] for n in ("rows", "out_row", "eps")} | {"pos_slot": slot}
    return found


def projected_rows(a: Args, m: int, slot: int, limits: Limits) -> list[dict[str, Any]]:
    """Caches are buffers: the linear of one row turns and stores what it has, of several rows another dispatch does."""
    k, (_, _, kv, dim), table = a["x"][-1], a["kc"], a["cos"][1]
    widths = [a[f"w{i}"][0] for i in range(3)]
    forms = ["norm"] * ("norm" in a) + ["round"] * bool(a.attrs["rounded"]) + ["bias"] * bool(a.attrs["bias"])
    found = fields_q4.expected(m, k, a.int("group"), widths, limits, forms, a.num("eps"))
    heads, half, halves = widths[0] // dim, limits.kv == "f16", int(a.attrs["halves"])
    if m > 1:
        pairs = {"pairs_q": m * widths[0] // 2, "pairs_k": m * widths[1] // 2}
        params = pairs | {"heads_q": heads, "heads_k": kv, "half_dim": dim // 2, "width": table, "pos_slot": slot}
        cell = {"CELL": "u32", "PACK": "pack2x16float(v)"} if half else {"CELL": "vec2<f32>", "PACK": "v"}
        grid = (*spread(up(m * sum(widths) // 2, 64), limits), 1)
        flags = {"ABSOLUTE": 1, "HALVES": halves, "REORDERED": halves}
        return [*found, dispatch("rope_cache", params, grid, WG=64, **flags, **cell)]
    last = found[-1]
    names = {"linear_q4gsw_strips": "attention_q4gsw_buffer", "linear_dq8ca_strips": "attention_dq8ca_buffer"}
    names |= {"linear_dq8ca_staged": "attention_dq8ca_staged"}
    gpu = {f"linear_q4gsw_{x}": f"attention_q4gsw_{x}" for x in ("few", "few_round", "narrow")}
    gpu["linear_dq8ca_few_round"] = "attention_dq8ca_few_round"
    last["kernel"] = (names | gpu)[last["kernel"]]
    last["params"] = {"rows": 1, "out_row": 0, "pos_slot": slot, "eps": a.num("eps")}
    fours = fields_q4.lanes_of(widths, limits) * 4
    shape = {"HEADS": heads, "KV_HEADS": kv, "D": dim, "TABLE": table, "HALVES": halves}
    shape |= {"Q_STRIPS": up(widths[0], fours), "KV_STRIPS": up(widths[2], fours), "BIAS": last["consts"]["BIAS"]}
    packed = {"CELL": "vec2<u32>", "PACK": "vec2(pack2x16float(v.xy), pack2x16float(v.zw))"}
    rest = {n: v for n, v in last["consts"].items() if n not in fields_q4.ENDS}
    last["consts"] = rest | shape | (packed if half else {"CELL": "vec4<f32>", "PACK": "v"})
    return found


def ending(name: str, attend: list[dict[str, Any]]) -> str:
    return name + "+tiles" * (attend[0]["kernel"] == "sdpa_tiled") + "+split" * (len(attend) > 1)


def seen(step: Step, strings: bool) -> dict[str, Any]:
    found = fields_q4.seen(step)
    if strings:
        found["consts"] = dict(step.consts)
    return found


def check(op: Op, a: Args, plan: Plan, limits: Limits) -> None:
    """The plan of attention over caches, fused or not, is the one that its shapes need."""
    slot, cache, short = a.slots["pos"], a["kc"], op.short
    x, dim = a[{"attention_q4gsw": "x", "attention": "xq"}.get(short, "q")], cache[3]
    seq, heads = x[1], a["w0"][0] // dim if short == "attention_q4gsw" else x[2]
    scale = a.num("scale", 1 / dim**0.5)
    given = (seq, heads, cache, scale, slot, limits)
    if short == "attention_q4gsw" and not limits.profile.shuffle:
        rest = over_rows(*given)
        route, want = ending("buffer", rest), [*projected_rows(a, seq, slot, limits), *rest]
    elif short == "attention_q4gsw":
        route, want = "texture", [*projected(a, seq, slot, limits), *over_textures(*given)]
    elif short == "attention" and textures(heads, cache, a["cos"][1], limits):
        route, want = "texture", [turned(a, slot, limits, texture=True), *over_textures(*given)]
    elif short == "attention":
        rest = over_rows(*given)
        route, want = ending("buffer", rest), [turned(a, slot, limits, texture=False), *rest]
    elif short == "custom_sdpa":
        want = over_rows(*given)
        route = ending("online", want)
    else:
        rest, count, row = over_rows(*given), size(a["k"]), size(cache[2:])
        params, grid = {"count": count, "row": row, "pos_slot": slot}, (*spread(up(count, 64), limits), 1)
        route = ending("online", rest)
        want = [*(dispatch("update_cache", params, grid, WG=64) for _ in "kv"), *rest]
    layered = Reach("pos", seq, 8 * texels(cache, limits)["LAYER_ROWS"]) if route == "texture" else None
    assert plan.reach == layered, f"{op.name}: {plan.reach}, expected {layered}"
    assert plan.route == route, f"{op.name}: route {plan.route}, expected {route}"
    same_steps(op, plan, want)


def same_steps(op: Op, plan: Plan, want: list[dict[str, Any]]) -> None:
    assert len(plan.steps) == len(want), f"{op.name}: {len(plan.steps)} dispatches, expected {len(want)}"
    for step, expected in zip(plan.steps, want, strict=True):
        got = seen(step, any(isinstance(v, str) for v in expected["consts"].values()))
        for found in (got, expected):  # as uniforms hold them
            found["params"] = {n: np.float32(v) if isinstance(v, float) else v for n, v in found["params"].items()}
        assert got == expected, f"{op.name}: {got}, expected {expected}"
