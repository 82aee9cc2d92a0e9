"""et_vk.linear_q4gsw: f32 rows times a 4-bit, group-scaled weight; and the embedding that shares its table."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..op import Args, Array, Case, Limits, Packed, Plan, Step, fold, need, op
from ..shapes import align, ceil_div, prod, rows_of

WG = 64


def nibbles(w: Array) -> Array:
    """Bytes [N, K/2] to signed 4-bit values [N, K]: the low nibble is the even k."""
    out = np.empty((w.shape[0], w.shape[1] * 2), np.int8)
    out[:, 0::2] = (w & 15).astype(np.int8) - 8
    out[:, 1::2] = (w >> 4).astype(np.int8) - 8
    return out


def dequantize(w: Array, scales: Array, group: int, n: int, k: int) -> Array:
    """The weight [N, K] in float64; scales are [K/G, N padded]."""
    full = nibbles(w)[:n, :k].astype(np.float64)
    return full * np.repeat(scales.astype(np.float64)[:, :n], group, 0)[:k].T


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    n, k = a.max_dims["out"][-1], a["x"][-1]
    out = t["x"].astype(np.float64) @ dequantize(t["w"], t["scales"], a.int("group"), n, k).T
    return [out + t["bias"].astype(np.float64)[:n] if "bias" in a else out]


def pack(a: Args, t: Mapping[str, Array], limits: Limits) -> dict[str, Packed]:
    packed = {"w": Packed(t["w"].view(np.uint32)), "scales": Packed(t["scales"].astype(np.float32))}
    if "bias" in t:
        packed["bias"] = Packed(t["bias"].astype(np.float32))
    return packed


def make(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    return {
        "w": rng.integers(0, 256, a["w"]).astype(np.uint8),
        "scales": rng.uniform(0.01, 0.1, a["scales"]).astype(np.float32),
    }


def case(m: int, k: int, n: int, group: int, *live: int, bias: bool = False) -> Case:
    dims = {"x": (1, m, k), "w": (n, align(k, 8) // 2), "scales": (ceil_div(k, group), align(n, 4)), "out": (1, m, n)}
    if bias:
        dims["bias"] = (align(n, 4),)
    return Case(dims, {"group": group}, tuple({"x": (1, s, k)} for s in live), {"w": "uint8"}, tol=1e-5)


def check(a: Args) -> tuple[int, int, int, int]:
    """M, N, K and the group size, with every shape agreeing."""
    x, group = a["x"], a.int("group")
    k, n = x[-1], a.max_dims["out"][-1]
    need(group > 0, f"group size {group}")
    need(k % group == 0, f"K = {k} is not a multiple of the group size {group}")
    need(a["w"] == (n, align(k, 8) // 2), f"weight has dims {list(a['w'])}, expected {[n, align(k, 8) // 2]} for N={n} K={k}")
    need(a["scales"] == (k // group, align(n, 4)), f"scales have dims {list(a['scales'])}, expected {[k // group, align(n, 4)]}")
    need("bias" not in a or prod(a["bias"]) >= n, f"bias has {prod(a['bias']) if 'bias' in a else 0} elements for N={n}")
    m = rows_of(x)
    need(m * n < 2**31 and m * k < 2**31, f"{m} x {n} outputs of K={k} are past what a kernel can index")
    return m, n, k, group


@op(
    "et_vk.linear_q4gsw.default",
    "x w! scales! group:int bias?! -> out",
    reference=reference,
    pack=pack,
    make=make,
    cases=(
        case(37, 64, 48, 32, 1, 2, 9, 36),
        case(19, 576, 192, 32, 1, 5, 8),
        case(5, 96, 29, 32, 1, 3, bias=True),
        case(3, 128, 64, 64, 1),
        case(7, 24, 10, 8, 1, 4),
    ),
)
def linear_q4gsw(a: Args, limits: Limits) -> Plan:
    m, n, k, group = check(a)
    out = (*a["x"][:-1], n)
    if not m:
        return Plan((out,), (), "empty")
    rows = 1 if m == 1 else 4
    step = Step(
        "linear_q4gsw",
        (("m", m), ("n", n), ("k", k), ("group", group), ("pitch", align(n, 4))),
        fold(ceil_div(n * ceil_div(m, rows), WG), limits, f"{m} x {n} outputs"),
        (("WG", WG), ("ROWS", rows), ("BIAS", int("bias" in a))),
        rename=() if "bias" in a else (("bias", "scales"),),
        work=(n * k // 2 + n * k // group * 4 + 4 * m * (k + n), 2 * m * n * k),
    )
    return Plan((out,), (step,), "plain-gemv" if m == 1 else "plain-gemm")


def embedding_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    w = t["w"] if a.attrs["linear"] else (t["w"] >> 4 | t["w"] << 4).astype(np.uint8)
    v, d = w.shape[0], w.shape[1] * 2
    table = nibbles(w).astype(np.float64) * np.repeat(t["scales"].astype(np.float64).reshape(v, -1), a.int("group"), 1)
    return [table[t["index"]].reshape((*a["index"], d))]


def embedding_make(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    return {**make(a, rng), "index": rng.integers(0, a["w"][0], a["index"]).astype(np.int32)}


def _embedding_case(v: int, d: int, group: int, linear: bool) -> Case:
    return Case(
        {"w": (v, d // 2), "scales": (v, d // group), "index": (1, 13)},
        {"group": group, "linear": linear},
        ({"index": (1, 1)}, {"index": (1, 4)}),
        {"w": "uint8", "index": "int32"},
    )


@op(
    "et_vk.embedding_q4gsw.default",
    "w! scales! group:int index linear:bool -> out",
    reference=embedding_reference,
    pack=pack,
    make=embedding_make,
    cases=(_embedding_case(37, 64, 32, True), _embedding_case(37, 64, 32, False), _embedding_case(11, 96, 32, True)),
)
def embedding_q4gsw(a: Args, limits: Limits) -> Plan:
    vocab, half = a["w"]
    dim, group = 2 * half, a.int("group")
    need(group > 0 and dim % group == 0, f"rows of {dim} are not a multiple of the group size {group}")
    need(dim % 32 == 0, f"rows of {dim} are not a multiple of 32")
    need(prod(a["scales"]) == vocab * dim // group, f"scales have dims {list(a['scales'])} for {vocab} rows of {dim // group} groups")
    out = (*a["index"], dim)
    count = prod(a["index"])
    if not count:
        return Plan((out,), (), "empty")
    lanes = count * dim // 8
    step = Step(
        "embedding_q4gsw",
        (("words", lanes), ("dim", dim), ("group", group), ("vocab", vocab), ("swap", int(not a.attrs["linear"]))),
        fold(ceil_div(lanes, WG), limits),
        (("WG", WG),),
        work=(count * dim * 9 // 2, count * dim),
    )
    return Plan((out,), (step,), "plain")
