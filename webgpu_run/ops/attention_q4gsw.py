"""wr.attention_q4gsw: rms_norm, 4-bit linears of queries, keys and values, rotary embedding, cache write, attention.

The linear rotates its results in registers and writes the caches itself, so q, k and v are never read back. Where
caches are buffers (see attention.py) it does so for a single row, in a decode step; several rows take a dispatch more.
Needs tables that are read at the position.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, Dims, align, ceil_div, rows_of
from . import attention, linear_q4gsw, linear_q4gsw_fused, q4_activations, q4_layout, qkv_rows, sdpa
from .limits import Limits
from .plan import Plan, Step, need
from .q4_activations import Linear
from .q4_dispatch import KERNELS, layout_of, strip_consts, strip_grid
from .spec import Args, Case, Packed, Resource, op


def apart(a: Args) -> Args:
    """The arguments of attention alone."""
    seq, dim = rows_of(a["x"]), a["kc"][3]
    heads = {f"x{n}": (1, seq, a[f"w{i}"][0] // dim, dim) for i, n in enumerate("qk")} | {
        "v": (1, seq, a["kc"][2], dim)
    }
    rest = {n: a[n] for n in ("kc", "vc", "cos", "sin", "rows") if n in a}
    return Args(heads | rest, {**a.attrs, "absolute": True}, slots=a.slots)


def projected(a: Args, t: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors of attention alone."""
    part = apart(a)
    attrs = {**a.attrs, "swiglu": False}
    q, k, v = linear_q4gsw_fused.reference(Args(a.dims, attrs), t)
    made = {"xq": q.reshape(part["xq"]), "xk": k.reshape(part["xk"]), "v": v.reshape(part["v"])}
    return made | {n: t[n] for n in ("kc", "vc", "cos", "sin", "rows") if n in t}


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return attention.reference(apart(a), projected(a, t))


def remember(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return attention.remember(apart(a), projected(a, t))


def fits(
    x: Dims, widths: tuple[int, ...], cache: Dims, table: Dims, group: int, limits: Limits, sequences: int = 0
) -> bool:
    """Whether the kernels support the shapes of every part: of one sequence, or of a batch."""
    if len(cache) != 4 or len(widths) != 3 or cache[3] % 4 or any(n % cache[3] for n in widths):
        return False
    if not q4_layout.fits(x[-1], group, widths, limits):
        return False
    if _on_textures(widths, cache, table, limits, max(sequences, 1)):
        return limits.profile.splits == 1 and not any(n % (4 * q4_layout.lanes_of(widths, limits)) for n in widths)
    return not sequences and not limits.profile.shuffle and table[-1] % 4 == 0


def _on_textures(widths: tuple[int, ...], cache: Dims, table: Dims, limits: Limits, sequences: int) -> bool:
    dim = cache[3]
    heads = {"xq": (1, 1, widths[0] // dim, dim), "xk": (1, 1, widths[1] // dim, dim), "kc": cache, "cos": table}
    return attention.on_textures(Args(heads, {"sequences": sequences}), limits)


def _together(n: int, dim: int, width: int) -> Array:
    """The order of columns that makes (i, i + width/2) of every head neighbours. Columns past the width stay."""
    head = np.arange(dim)
    head[:width] = np.arange(width).reshape(2, -1).T.reshape(-1)
    return (np.arange(0, n, dim)[:, None] + head).reshape(-1)


def pack(a: Args, t: Mapping[str, Array], limits: Limits) -> dict[str, Packed]:
    attention.pack(a, t, limits)
    weights, biases = [], []
    for i in range(3):
        w, scales = t[f"w{i}"], t[f"scales{i}"]
        n = w.shape[0]
        order = np.arange(n)
        if a.attrs["halves"] and i < 2:
            order = _together(n, a["kc"][3], a["cos"][1])
        weights.append((w[order], scales[:, order]))
        if a.attrs["bias"]:
            biases.append(t[f"bias{i}"][order])
    packed = {"w": q4_layout.texels(weights, a.int("group"), limits)}
    if biases:
        packed["bias"] = Packed(q4_layout.bias_strips(biases, [b.size for b in biases], limits))
    return packed


def resources(a: Args, limits: Limits) -> dict[str, Resource]:
    part = apart(a)
    scratch = {} if attention.on_textures(part, limits) else qkv_rows.resources(part)
    return attention.resources(part, limits) | linear_q4gsw.resources(a, limits) | scratch


def _case(
    m: int,
    k: int,
    heads: int,
    kv: int,
    dim: int,
    context: int,
    pos: int,
    *live: int,
    halves: bool = False,
    bias: bool = False,
    norm: bool = True,
    rounded: bool = False,
    scale: float | None = None,
) -> Case:
    widths = (heads * dim, kv * dim, kv * dim)
    dims: dict[str, Dims] = {"x": (1, m, k)}
    for i, n in enumerate(widths):
        dims |= {f"w{i}": (n, k // 2), f"scales{i}": (k // 32, align(n, 4))} | ({f"bias{i}": (n,)} if bias else {})
    if norm:
        dims["norm"] = (k,)
    table = (context, dim if halves else dim // 2)
    dims |= {"kc": (1, context, kv, dim), "vc": (1, context, kv, dim), "cos": table, "sin": table}
    many = (True,) * 3
    attrs = {
        "w": many,
        "scales": many,
        "group": 32,
        "bias": many * bias,
        "eps": 1e-5,
        "rounded": rounded,
        "pos": pos,
        "halves": halves,
        "causal": True,
        "scale": scale,
    }
    return Case(dims, attrs, tuple({"x": (1, s, k)} for s in live), {f"w{i}": "uint8" for i in range(3)}, tol=2e-5)


CASES = (
    _case(11, 128, 4, 2, 32, 40, 0, 1, 2, 5),
    _case(5, 64, 3, 1, 64, 33, 17, 1, 3, halves=True, bias=True),
    _case(3, 64, 6, 2, 16, 24, 7, 1, norm=False),
    _case(11, 128, 4, 2, 32, 40, 3, 1, 2, 5, rounded=True),
    _case(71, 64, 4, 2, 32, 80, 3, 1, 16, 21),
    _case(71, 64, 4, 2, 32, 80, 3, 1, 16, 33, rounded=True),
    # On GPUs two chunks of k, and more invocations than run in lockstep. Large scores need a small scale.
    _case(2, 2112, 6, 2, 16, 24, 7, 1, scale=1e-3),
    _case(2, 2112, 6, 2, 16, 24, 7, 1, rounded=True, scale=1e-3),
    _case(1, 8256, 4, 2, 16, 24, 7, rounded=True, scale=1e-3),  # more than a workgroup's memory has room for
    _case(19, 64, 4, 1, 64, 40, 3, 1, 2, 5, 6, 17, halves=True, bias=True, scale=1e-2),  # three strips per workgroup
    _case(19, 64, 4, 1, 64, 40, 3, 1, 2, 6, 17, rounded=True),
    # a row is larger than a uniform
    _case(5, 16512, 4, 2, 16, 24, 3, 1, 2, scale=1e-4),
    _case(5, 16512, 4, 2, 16, 24, 3, 1, 2, norm=False, scale=1e-4),
)


@op(
    "wr.attention_q4gsw",
    "x w:weight[]/q4 scales:scales[] group:int bias:bias[] norm?:norm eps:num rounded:bool kc!:cache vc!:cache "
    "pos:slot cos:rotary sin:rotary halves:bool mask?:mask _dropout causal:bool scale?:num -> out",
    reference=reference,
    remember=remember,
    pack=pack,
    resources=resources,
    make=linear_q4gsw.make,
    cases=CASES,
)
def attention_q4gsw(a: Args, limits: Limits) -> Plan:
    part = apart(a)
    check(a, limits)
    bounds = attention.bounds(part)
    m = rows_of(a["x"])
    if not m:
        return Plan((part["xq"],), (), "empty", bounds)
    if not attention.on_textures(part, limits):
        steps = qkv_rows.steps(_linear(a), part, m, limits)
        return Plan((part["xq"],), steps, sdpa.route_of("buffer", steps), bounds)
    return Plan((part["xq"],), texture_steps(a, limits), "texture", bounds, reach=attention.reach(part, limits))


def check(a: Args, limits: Limits) -> None:
    """Refuse shapes that do not agree, or that no kernel takes."""
    group, widths = a.int("group"), tuple(a[f"w{i}"][0] for i in range(3))
    for i, n in enumerate(widths):
        linear_q4gsw.check(a["x"], a[f"w{i}"], a[f"scales{i}"], a.get(f"bias{i}"), n, group)
    need("norm" not in a or a["norm"] == (a["x"][-1],), "the norm's weight does not fit")
    sequences = int(a.attrs.get("sequences", 0))
    is_supported = fits(a["x"], widths, a["kc"], a["cos"], group, limits, sequences)
    need(not rows_of(a["x"]) or is_supported, "no kernel for this shape")


def texture_steps(a: Args, limits: Limits) -> tuple[Step, ...]:
    """All dispatches, from the norm to attention, where the caches are textures."""
    return *_project(a, limits), *attention.attend_steps(apart(a), limits)


def _linear(a: Args) -> Linear:
    return Linear(
        a["x"][-1],
        a.int("group"),
        tuple(a[f"w{i}"][0] for i in range(3)),
        bias=bool(a.attrs["bias"]),
        norm="norm" in a,
        eps=a.num("eps"),
        rounded=bool(a.attrs["rounded"]),
    )


def _project(a: Args, limits: Limits) -> list[Step]:
    """The linear; its last part rotates queries and keys and writes the caches, which are textures."""
    linear, m = _linear(a), rows_of(a["x"])
    k, columns = linear.k, sum(linear.widths)
    rows_from = q4_activations.source(linear, m, limits)
    weights, consts = layout_of(linear, limits), strip_consts(linear, m, rows_from, limits)
    dim, kv = a["kc"][3], a["kc"][2]
    consts |= {"HEADS": linear.widths[0] // dim, "KV_HEADS": kv, "D": dim, "TABLE": a["cos"][1]}
    consts |= {"HALVES": int(a.attrs["halves"]), "BIAS": int(linear.bias)}
    window = consts.get("WINDOW") or m
    steps = list(rows_from.steps)
    for first in range(0, m, window):
        live = min(window, m - first)
        steps.append(
            Step(
                KERNELS[rows_from.form].attention,
                (("rows", live), ("out_row", first), ("pos_slot", a.slots["pos"]), ("eps", linear.eps)),
                strip_grid(ceil_div(weights.strips, consts["STRIPS"]), ceil_div(live, consts["ROWS"]), limits),
                (*consts.items(), *attention.store_consts(a, limits)),
                rows_from.window(first, window, k),
                (("x", rows_from.x), ("norm", rows_from.norm)),
                (weights.nbytes + 4 * live * (k + columns), 2 * live * k * columns),
                rows_from.stage,
            )
        )
    return steps
