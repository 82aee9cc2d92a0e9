"""Rotary embeddings of queries and keys: pairs (2i, 2i+1), or the two halves of a row (the Hugging Face form)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, Dims, ceil_div, prod
from .limits import Limits
from .plan import Bound, Plan, Step, fold, need
from .spec import Args, Case, op

WG = 64


def interleaved(x: Array, cos: Array, sin: Array) -> Array:
    x = x.astype(np.float64)
    c, s = cos.astype(np.float64)[:, None, :], sin.astype(np.float64)[:, None, :]
    out = np.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * c - x[..., 1::2] * s
    out[..., 1::2] = x[..., 0::2] * s + x[..., 1::2] * c
    return out


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    s = a["xq"][1]
    return [interleaved(t[n], t["cos"][: a[n][1]], t["sin"][: a[n][1]]) for n in ("xq", "xk")] if s else []


def _check(a: Args) -> None:
    for name in ("xq", "xk"):
        x = a[name]
        need(len(x) == 4, f"{name} has dims {list(x)}, expected 4: batch, S, heads and head_dim")
        need(x[3] % 2 == 0, f"head_dim {x[3]} is odd")
    need(a["cos"] == a["sin"], f"cos {list(a['cos'])} and sin {list(a['sin'])} differ")
    need(a["xq"][3] == a["xk"][3], f"xq has head_dim {a['xq'][3]}, xk {a['xk'][3]}")


def _step(
    a: Args, kernel: str, limits: Limits, extra: tuple[tuple[str, int], ...] = (), axis: int = 1
) -> tuple[Step, ...]:
    """One dispatch over the pairs of both tensors, each counted from its own live dims; positions are dim `axis`."""
    q, k = a["xq"], a["xk"]
    pairs_q, pairs_k = prod(q) // 2, prod(k) // 2
    if not pairs_q + pairs_k:
        return ()
    params = (
        ("pairs_q", pairs_q),
        ("pairs_k", pairs_k),
        ("seq_q", q[axis]),
        ("seq_k", k[axis]),
        ("heads_q", q[3 - axis]),
        ("heads_k", k[3 - axis]),
        ("half_dim", q[3] // 2),
        *extra,
    )
    grid = fold(ceil_div(pairs_q + pairs_k, WG), limits, "rope")
    return (Step(kernel, params, grid, (("WG", WG),), work=(16 * (pairs_q + pairs_k), 6 * (pairs_q + pairs_k))),)


def _sized(s: int, q: int = 4, k: int = 2, d: int = 16) -> dict[str, Dims]:
    return {"xq": (1, s, q, d), "xk": (1, s, k, d), "cos": (s, d // 2), "sin": (s, d // 2)}


@op(
    "et_vk.apply_rotary_emb.default",
    "xq xk cos:rotary sin:rotary -> [oq,ok]",
    reference=reference,
    cases=(
        Case(_sized(23), live=(_sized(1), _sized(5), {"xk": (1, 3, 2, 16)}, {"xq": (1, 2, 4, 16)})),
        Case(_sized(3, 9, 3, 64), live=(_sized(1, 9, 3, 64),)),
    ),
)
def apply_rotary_emb(a: Args, limits: Limits) -> Plan:
    _check(a)
    rows = a["cos"][0]
    for name in ("xq", "xk"):
        x = a[name]
        need(a["cos"][-1] == x[3] // 2, f"the tables are {a['cos'][-1]} wide, half of head_dim is {x[3] // 2}")
        need(x[1] <= rows, f"{name} has {x[1]} positions, the frequency tables cover {rows}")
    return Plan((a["xq"], a["xk"]), _step(a, "rope", limits), "pairs")


def reference_hf(a: Args, t: Mapping[str, Array]) -> list[Array]:
    pos, out = int(a.attrs.get("pos") or 0), []
    axis = t["cos"].ndim - 1
    for name in ("xq", "xk"):
        x, r = t[name].astype(np.float64), t["cos"].shape[-1]
        rows = (..., slice(pos, pos + x.shape[axis]), slice(None))
        c, n = (np.expand_dims(t[k].astype(np.float64)[rows], 1) for k in ("cos", "sin"))
        head, rest = x[..., :r], x[..., r:]
        turned = np.concatenate([-head[..., r // 2 :], head[..., : r // 2]], -1)
        out.append(np.concatenate([head * c + turned * n, rest], -1))
    return out


def _sized_hf(s: int, q: int, k: int, d: int) -> dict[str, Dims]:
    return {"xq": (1, s, q, d), "xk": (1, s, k, d)}


def _heads_first(b: int, s: int, q: int, k: int, d: int, table: Dims) -> dict[str, Dims]:
    return {"xq": (b, q, s, d), "xk": (b, k, s, d), "cos": table, "sin": table}


@op(
    "et_vk.apply_rotary_emb_hf.default",
    "xq xk cos:rotary sin:rotary pos:slot -> [oq,ok]",
    reference=reference_hf,
    cases=(
        Case(
            _sized_hf(11, 4, 2, 16) | {"cos": (31, 16), "sin": (31, 16)},
            {"pos": 7},
            (_sized_hf(1, 4, 2, 16), _sized_hf(5, 4, 2, 16)),
        ),
        Case(_sized_hf(3, 2, 2, 16) | {"cos": (9, 8), "sin": (9, 8)}, {"pos": 0}),
        Case(
            _heads_first(1, 7, 5, 2, 12, (1, 7, 8)),
            {"pos": 0},
            (_heads_first(1, 1, 5, 2, 12, (1, 1, 8)), _heads_first(1, 5, 5, 2, 12, (1, 5, 8))),
        ),
        Case(_heads_first(2, 5, 3, 1, 6, (1, 11, 6)), {"pos": 4}, (_heads_first(2, 3, 3, 1, 6, (1, 11, 6)),)),
        Case(_heads_first(3, 5, 2, 1, 6, (3, 5, 4)), {"pos": 0}, (_heads_first(2, 3, 2, 1, 6, (2, 3, 4)),)),
    ),
)
def apply_rotary_emb_hf(a: Args, limits: Limits) -> Plan:
    """Tables [rows, width] rotate x [batch, S, heads, dim], tables [batch or 1, rows, width] x [batch, heads, S, dim].

    The op puts a dim of 1 behind the first dim of the tables and broadcasts, hence the two layouts.
    """
    _check(a)
    table, axis = a["cos"], len(a["cos"]) - 1
    need(axis in (1, 2), f"the tables have dims {list(table)}, expected [rows, width] or [batch, rows, width]")
    rows, width = table[-2:]
    need(width % 2 == 0 and width <= a["xq"][3], f"the tables are {width} wide, head_dim is {a['xq'][3]}")
    q, k = a["xq"], a["xk"]
    longest = max(q[axis], k[axis])
    need(longest <= rows, f"{longest} positions, the frequency tables cover {rows}")
    per_batch = axis == 2 and table[0] > 1
    if per_batch:
        need(q[0] == k[0] == table[0], f"tables for {table[0]} batches, xq has {q[0]} and xk {k[0]}")
    extra = (
        ("inner_q", q[2] if axis == 1 else 1),
        ("inner_k", k[2] if axis == 1 else 1),
        ("batch_rows", rows if per_batch else 0),
        ("half_rot", width // 2),
        ("pos_slot", a.slots["pos"]),
    )
    # A position in tables of several batches could be one of either dim.
    bound = Bound("pos", 0 if per_batch else rows - longest, f"{longest} positions in frequency tables of {rows} rows")
    steps = _step(a, "rope_hf", limits, extra, axis)
    return Plan((q, k), steps, "halves" if axis == 1 else "halves+heads", (bound,))


def pairs_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    x, table = t["x"].astype(np.float64), t["freqs"].astype(np.float64).reshape(a["x"][1], -1)
    return [interleaved(x[:, :, None], table[:, 0::2], table[:, 1::2])[:, :, 0]]


@op(
    "et_vk.apply_rotary_emb_interleaved.default",
    "x freqs:rotary -> out",
    reference=pairs_reference,
    cases=(
        Case({"x": (2, 11, 8), "freqs": (11, 8)}, live=({"x": (1, 11, 8)}, {"x": (2, 3, 8), "freqs": (3, 8)})),
        Case({"x": (1, 5, 6), "freqs": (1, 5, 3, 2)}),
    ),
)
def apply_rotary_emb_interleaved(a: Args, limits: Limits) -> Plan:
    """One tensor [batch, rows, width], the table holding each pair's cosine and sine next to one another."""
    x = a["x"]
    need(len(x) == 3 and x[2] % 2 == 0, f"x has dims {list(x)}, expected [batch, rows, an even width]")
    need(prod(a["freqs"]) == x[1] * x[2], f"the table has dims {list(a['freqs'])} for {x[1]} rows of {x[2]}")
    pairs = prod(x) // 2
    if not pairs:
        return Plan((x,), (), "empty")
    params = (("pairs", pairs), ("table", x[1] * x[2] // 2))
    step = Step("rope_pairs", params, fold(ceil_div(pairs, WG), limits), (("WG", WG),), work=(16 * pairs, 6 * pairs))
    return Plan((x,), (step,), "pairs")
