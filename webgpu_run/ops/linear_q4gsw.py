"""et_vk.linear_q4gsw: f32 rows times a 4-bit, group-scaled weight; fused forms; the embedding with the same table."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, Dims, align, ceil_div, prod, rows_of
from . import q4, q8
from .limits import Limits
from .plan import Plan, Step, fold, need
from .spec import Args, Case, Packed, Resource, op
from .wgsl import Consts

WG = 64


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    n, k = a.max_dims["out"][-1], a["x"][-1]
    out = t["x"].astype(np.float64) @ q4.dequantize(t["w"], t["scales"], a.int("group"), n, k).T
    return [out + t["bias"].astype(np.float64)[:n] if "bias" in a else out]


def pack(a: Args, t: Mapping[str, Array], limits: Limits) -> dict[str, Packed]:
    """Strips where the shape allows them, else the file's own bytes."""
    k, group = a["x"][-1], a.int("group")
    if q4.fits(k, group, (t["w"].shape[0],), limits):
        packed = {"w": q4.texels([(t["w"], t["scales"])], group, limits)}
    else:
        packed = {"w": Packed(t["w"].view(np.uint32)), "scales": Packed(t["scales"].astype(np.float32))}
    if "bias" in t:
        packed["bias"] = Packed(bias_strips([t["bias"]], [t["w"].shape[0]], limits))
    return packed


def bias_strips(biases: list[Array], widths: list[int], limits: Limits) -> Array:
    """Biases one after the other, each padded to whole strips as its weight is."""
    rows = []
    for b, n in zip(biases, widths, strict=True):
        row = np.zeros(q4.strips_of(n, limits) * 4 * limits.profile.lanes, np.float32)
        row[:n] = b[:n]
        rows.append(row)
    return np.concatenate(rows)


def make(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Random weights and scales under any names that start so."""
    made: dict[str, Array] = {}
    for name, dims in a.dims.items():
        if name.startswith("w"):
            made[name] = rng.integers(0, 256, dims).astype(np.uint8)
        elif name.startswith("scales"):
            made[name] = rng.uniform(0.01, 0.1, dims).astype(np.float32)
    return made


def _case(m: int, k: int, n: int, group: int, *live: int, bias: bool = False) -> Case:
    dims = {"x": (1, m, k), "w": (n, align(k, 8) // 2), "scales": (ceil_div(k, group), align(n, 4)), "out": (1, m, n)}
    if bias:
        dims["bias"] = (align(n, 4),)
    return Case(dims, {"group": group}, tuple({"x": (1, s, k)} for s in live), {"w": "uint8"}, tol=1e-5)


def check(x: Dims, w: Dims, scales: Dims, bias: Dims | None, n: int, group: int) -> tuple[int, int]:
    """M and K, with every shape agreeing."""
    k = x[-1]
    need(group > 0, f"group size {group}")
    need(k % group == 0, f"K = {k} is not a multiple of the group size {group}")
    need(w == (n, align(k, 8) // 2), f"weight has dims {list(w)}, expected {[n, align(k, 8) // 2]} for N={n} K={k}")
    need(scales == (k // group, align(n, 4)), f"scales have dims {list(scales)}, expected {[k // group, align(n, 4)]}")
    need(bias is None or prod(bias) >= n, f"bias has dims {list(bias or ())} for N={n}")
    m = rows_of(x)
    need(m * n < 2**31 and m * k < 2**31, f"{m} x {n} outputs of K={k} are past what a kernel can index")
    return m, k


def resources(a: Args, limits: Limits) -> dict[str, Resource]:
    rounded = bool(a.attrs.get("rounded"))
    return q4.resources(rows_of(a["x"]), a["x"][-1], "norm" in a, limits, rounded=rounded)


@op(
    "et_vk.linear_q4gsw.default",
    "x w!:weight/q4 scales!:scales group:int bias?!:bias -> out",
    reference=reference,
    pack=pack,
    resources=resources,
    make=make,
    cases=(
        _case(37, 64, 48, 32, 1, 2, 9, 36),
        _case(19, 576, 192, 32, 1, 5, 8),
        _case(5, 96, 29, 32, 1, 3, bias=True),
        _case(3, 128, 64, 64, 1),
        _case(2, 8192, 40, 64, 1),
        _case(7, 24, 10, 8, 1, 4),
    ),
)
def linear_q4gsw(a: Args, limits: Limits) -> Plan:
    n, group = a.max_dims["out"][-1], a.int("group")
    m, k = check(a["x"], a["w"], a["scales"], a.get("bias"), n, group)
    out = (*a["x"][:-1], n)
    if not m:
        return Plan((out,), (), "empty")
    if q4.fits(k, group, (n,), limits):
        return Plan((out,), q4.linear_steps(m, k, group, (n,), limits, bias="bias" in a), route(m))
    rows = 1 if m == 1 else 4
    step = Step(
        "linear_q4gsw",
        (("m", m), ("n", n), ("k", k), ("group", group), ("pitch", align(n, 4))),
        fold(ceil_div(n * ceil_div(m, rows), WG), limits, f"{m} x {n} outputs"),
        (("WG", WG), ("ROWS", rows), ("BIAS", int("bias" in a))),
        rename=() if "bias" in a else (("bias", "scales"),),
        work=(n * k // 2 + n * k // group * 4 + 4 * m * (k + n), 2 * m * n * k),
    )
    return Plan((out,), (step,), f"plain-{route(m)}")


def route(m: int) -> str:
    return "gemv" if m == 1 else "gemm"


# -- fused forms: rms_norm -> one to three linears (or gate and up of a SwiGLU) -> residual ---------------------------


def _parts(a: Args) -> int:
    return len(a.attrs["w"])


def fused_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    x = t["x"].astype(np.float64)
    if "norm" in a:
        x = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + a.num("eps")) * t["norm"].astype(np.float64)
    if a.attrs["rounded"]:
        x = q8.rounded(x, *q8.qparams(x))
    k, outs = x.shape[-1], []
    for i in range(_parts(a)):
        n = a[f"w{i}"][0]
        y = x @ q4.dequantize(t[f"w{i}"], t[f"scales{i}"], a.int("group"), n, k).T
        outs.append(y + t[f"bias{i}"].astype(np.float64)[:n] if f"bias{i}" in a else y)
    if a.attrs["swiglu"]:
        outs = [outs[0] / (1 + np.exp(-outs[0])) * outs[1]]
    return [outs[0] + t["res"].astype(np.float64)] if "res" in a else outs


def fused_pack(a: Args, t: Mapping[str, Array], limits: Limits) -> dict[str, Packed]:
    count, group = _parts(a), a.int("group")
    weights = [(t[f"w{i}"], t[f"scales{i}"]) for i in range(count)]
    packed = {"w": q4.texels([q4.paired(*weights)] if a.attrs["swiglu"] else weights, group, limits)}
    if a.attrs["bias"]:
        packed["bias"] = Packed(
            bias_strips([t[f"bias{i}"] for i in range(count)], [w.shape[0] for w, _ in weights], limits)
        )
    return packed


def _fused_case(
    m: int,
    k: int,
    widths: tuple[int, ...],
    *live: int,
    swiglu: bool = False,
    bias: bool = False,
    norm: bool = False,
    res: bool = False,
    rounded: bool = False,
    group: int = 32,
) -> Case:
    dims: dict[str, Dims] = {"x": (1, m, k)}
    dtypes = {}
    for i, n in enumerate(widths):
        dims |= {f"w{i}": (n, k // 2), f"scales{i}": (k // group, align(n, 4))}
        dtypes[f"w{i}"] = "uint8"
        if bias:
            dims[f"bias{i}"] = (align(n, 4),)
    if norm:
        dims["norm"] = (k,)
    if res:
        dims["res"] = (1, m, widths[0])
    attrs = {
        "w": (True,) * len(widths),
        "scales": (True,) * len(widths),
        "group": group,
        "bias": (True,) * len(widths) * bias,
        "eps": 1e-5,
        "swiglu": swiglu,
        "rounded": rounded,
    }
    shapes = tuple({"x": (1, s, k)} | ({"res": (1, s, widths[0])} if res else {}) for s in live)
    return Case(dims, attrs, shapes, dtypes, tol=1e-5)


def fused(a: Args, limits: Limits) -> Plan:
    group, count = a.int("group"), _parts(a)
    widths = tuple(a[f"w{i}"][0] for i in range(count))
    for i, n in enumerate(widths):
        m, k = check(a["x"], a[f"w{i}"], a[f"scales{i}"], a.get(f"bias{i}"), n, group)
    swiglu = bool(a.attrs["swiglu"])
    need(not swiglu or widths[0] == widths[1], f"gate and up of different widths {list(widths)}")
    outs = tuple((*a["x"][:-1], n) for n in (widths[:1] if swiglu else widths))
    need(
        "res" not in a or a["res"] == outs[0],
        f"the residual has dims {list(a['res']) if 'res' in a else []}, the output {list(outs[0])}",
    )
    need("norm" not in a or a["norm"] == (k,), f"the norm's weight does not have {k} elements")
    if not m:
        return Plan(outs, (), "empty")
    steps = q4.linear_steps(
        m,
        k,
        group,
        widths,
        limits,
        outs=tuple(f"out{i}" for i in range(len(outs))),
        bias=bool(a.attrs["bias"]),
        norm="norm" if "norm" in a else None,
        eps=a.num("eps"),
        residual="res" if "res" in a else None,
        swiglu=swiglu,
        rounded=bool(a.attrs["rounded"]),
    )
    extra = "+round" * bool(a.attrs["rounded"]) + "+norm" * ("norm" in a) + "+swiglu" * swiglu + "+add" * ("res" in a)
    return Plan(outs, steps, route(m) + extra)


_CASES = {
    1: (
        _fused_case(11, 96, (64,), 1, 2, 5, norm=True, res=True),
        _fused_case(5, 64, (44, 44), 1, 3, swiglu=True, norm=True),
        _fused_case(3, 64, (37,), 1, res=True, bias=True),
        _fused_case(70, 64, (64,), 1, 16, 17, 65, norm=True, res=True),
        _fused_case(21, 64, (44, 44), 1, 18, swiglu=True, norm=True),
        _fused_case(37, 96, (64,), 1, 2, 5, 36, norm=True, res=True, rounded=True),
        _fused_case(5, 128, (44, 44), 1, 3, swiglu=True, rounded=True, group=64),
    ),
    2: (_fused_case(6, 64, (36, 20), 1, 4),),
    3: (
        _fused_case(9, 96, (96, 32, 36), 1, 2, 7, norm=True, bias=True),
        _fused_case(3, 128, (64, 32, 32), 1, group=64),
        _fused_case(9, 96, (96, 32, 36), 1, 2, 7, norm=True, bias=True, rounded=True),
    ),
}
for _n in (1, 2, 3):
    op(
        f"wr.linear_q4gsw.{_n}",
        "x w:weight[]/q4 scales:scales[] group:int bias:bias[] norm?:norm eps:num res? swiglu:bool "
        "rounded:bool "
        f"-> [{','.join(f'out{i}' for i in range(_n))}]",
        reference=fused_reference,
        pack=fused_pack,
        resources=resources,
        make=make,
        cases=_CASES[_n],
    )(fused)


# -- embedding --------------------------------------------------------------------------------------------------------


def embedding_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    w = t["w"] if a.attrs["linear"] else (t["w"] >> 4 | t["w"] << 4).astype(np.uint8)
    v, d = w.shape[0], w.shape[1] * 2
    table = q4.nibbles(w).astype(np.float64) * np.repeat(
        t["scales"].astype(np.float64).reshape(v, -1), a.int("group"), 1
    )
    return [table.take(t["index"], 0, mode="clip").reshape((*a["index"], d))]


def embedding_pack(a: Args, t: Mapping[str, Array], limits: Limits) -> dict[str, Packed]:
    """The table as a linear would have it: a tied one is the same texture. The older nibble order is turned here."""
    w, group = t["w"], a.int("group")
    if not a.attrs["linear"]:
        w = (w >> 4 | w << 4).astype(np.uint8)
    scales = t["scales"].astype(np.float32).reshape(w.shape[0], -1)
    if q4.fits(w.shape[1] * 2, group, (w.shape[0],), limits):
        return {"w": q4.texels([(w, scales.T)], group, limits)}
    return {"w": Packed(np.ascontiguousarray(w).view(np.uint32)), "scales": Packed(scales)}


def embedding_make(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Random rows, and one past the table, which is its last."""
    index = rng.integers(0, a["w"][0], a["index"]).astype(np.int32)
    if index.size > 1:
        index.flat[-1] = a["w"][0]
    return {**make(a, rng), "index": index}


def _embedding_case(v: int, d: int, group: int, linear: bool) -> Case:
    return Case(
        {"w": (v, d // 2), "scales": (v, d // group), "index": (1, 13)},
        {"group": group, "linear": linear},
        ({"index": (1, 1)}, {"index": (1, 4)}),
        {"w": "uint8", "index": "int32"},
    )


@op(
    "et_vk.embedding_q4gsw.default",
    "w!:table/q4 scales!:scales group:int index:index linear:bool -> out",
    reference=embedding_reference,
    pack=embedding_pack,
    make=embedding_make,
    cases=(
        _embedding_case(37, 64, 32, True),
        _embedding_case(37, 64, 32, False),
        _embedding_case(11, 96, 32, True),
        _embedding_case(190, 64, 32, True),
        _embedding_case(13, 128, 64, True),
        _embedding_case(7, 64, 16, False),
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
    if q4.fits(dim, group, (vocab,), limits):
        blocks = count * dim // 32
        consts: Consts = (
            ("WG", limits.profile.lanes),
            ("K", dim),
            ("G", group),
            ("LANES", limits.profile.lanes),
            ("TOGETHER", q4.together(q4.strips_of(vocab, limits), dim, group, limits)),
            ("PARTS", q4.parts_for(dim, group, limits)),
            *q4.texture_consts(limits),
        )
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
