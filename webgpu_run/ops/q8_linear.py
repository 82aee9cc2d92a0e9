"""Linears with an int8 weight and one scale per column; activations are floats, or int8 with one scale."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, Dims, align, ceil_div, prod, rows_of
from .limits import Limits
from .plan import Plan, Step, Window, fold, need, row_parts, unsupported
from .q8ta import make, stepped
from .spec import Args, Case, Packed, op

WG = 64
MAX_SUM = (2**31 - 1) // (255 * 128)  # products of two bytes that an i32 can sum
ACTIVATIONS = ("none", "relu")


def pack(a: Args, t: Mapping[str, Array], limits: Limits) -> dict[str, Packed]:
    """Each row of the weight in whole words, padded with zeros."""
    n, k = t["w"].shape
    w = np.zeros((n, align(k, 4)), np.int8)
    w[:, :k] = t["w"]
    return {"w": Packed(w.view(np.uint32))}


def make_scaled(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Random int8 over the whole range, and scales that are positive."""
    return {**make(a, rng), "scales": rng.uniform(0.01, 0.1, a["scales"]).astype(np.float32)}


def check_columns(a: Args, n: int) -> None:
    for name in ("scales", "bias"):
        need(name not in a or prod(a[name]) >= n, f"{name} has dims {list(a.get(name) or ())} for {n} columns")


def check_quantized(a: Args, summed: int) -> None:
    """What ops with int8 results have in common: scale, activation and a sum that fits an integer."""
    need(a.num("out_scale") > 0, f"scale {a.num('out_scale')}")
    activation = a.attrs.get("activation", "none")
    unsupported(activation in ACTIVATIONS, f"activation {activation!r}, expected one of {', '.join(ACTIVATIONS)}")
    need(summed <= MAX_SUM, f"a sum of {summed} products may not fit 32 bits, {MAX_SUM} do")


def requantized(a: Args, sums: Array, scales: Array, bias: Array | None) -> Array:
    """Integer sums as int8 results, each step in f32 as in the kernels; the last dim is that of the columns."""
    real = sums.astype(np.float32) * (np.float32(a.num("scale")) * scales.astype(np.float32))
    if bias is not None:
        real = real + bias.astype(np.float32)
    if a.attrs.get("activation") == "relu":
        real = np.maximum(real, 0)
    return stepped(real, 1 / a.num("out_scale"), a.int("out_zero"))


def _sums(a: Args, t: Mapping[str, Array]) -> tuple[Array, Array, Array | None]:
    (n, _), k = a["w"], a["x"][-1]
    x = t["x"].astype(np.int64) - a.int("zero")
    bias = t["bias"][:n] if "bias" in a else None
    return x @ t["w"][:, :k].astype(np.int64).T, t["scales"][:n], bias


def float_out(a: Args, t: Mapping[str, Array]) -> list[Array]:
    sums, scales, bias = _sums(a, t)
    out = sums * (a.num("scale") * scales.astype(np.float64))
    return [out if bias is None else out + bias.astype(np.float64)]


def _case(m: int, k: int, n: int, *live: int, bias: bool = False, activation: str = "") -> Case:
    dims: dict[str, Dims] = {"x": (m, k), "w": (n, k), "sums": (n,), "scales": (n,)}
    dims |= {"bias": (n,)} if bias else {}
    dtypes = {"x": "int8", "w": "int8", "sums": "int32"}
    attrs: dict[str, object] = {"scale": 0.024, "zero": -14}
    if activation:
        attrs |= {"out_scale": 1.7, "out_zero": -9, "activation": activation}
        dtypes["out"] = "int8"
    return Case(dims, attrs, tuple({"x": (s, k)} for s in live), dtypes)


@op(
    "et_vk.linear_q8ta_q8csw.default",
    "x/int8 scale:num zero:int w!:weight/int8 sums!:sums/int32 scales!:scales bias?!:bias -> out",
    reference=float_out,
    pack=pack,
    make=make_scaled,
    cases=(_case(5, 32, 16, 1, 3, bias=True), _case(3, 37, 11, 1)),
)
@op(
    "et_vk.q8ta_linear.default et_vk.q8ta_linear_gemv.default",
    "x/int8 scale:num zero:int w!:weight/int8 sums!:sums/int32 scales!:scales out_scale:num out_zero:int bias?!:bias "
    "activation:str -> out/int8",
    reference=lambda a, t: [requantized(a, *_sums(a, t))],
    pack=pack,
    make=make_scaled,
    cases=(
        _case(5, 32, 16, 1, 3, bias=True, activation="none"),
        _case(3, 37, 11, 1, activation="relu"),
        Case(
            {"x": (2, 3, 6), "w": (5, 8), "sums": (8,), "scales": (8,), "bias": (8,)},
            {"scale": 0.03, "zero": 5, "out_scale": 0.9, "out_zero": 2, "activation": "relu"},
            ({"x": (1, 2, 6)},),
            {"x": "int8", "w": "int8", "sums": "int32", "out": "int8"},
        ),
    ),
)
def linear_q8ta(a: Args, limits: Limits) -> Plan:
    """The rows of the weight may be padded to whole words, scales and bias to four columns."""
    (n, width), m, k = a["w"], rows_of(a["x"]), a["x"][-1]
    need(k <= width <= align(k, 4), f"x has rows of {k}, the weight takes {width}")
    check_columns(a, n)
    quantized = "out_scale" in a.attrs
    if quantized:
        check_quantized(a, k)
    out = (*a["x"][:-1], n)
    if not prod(out):
        return Plan((out,), (), "empty")
    params: tuple[tuple[str, int | float], ...] = (
        ("count", m * n),
        ("n", n),
        ("k", k),
        ("words", ceil_div(width, 4)),
        ("zero", a.int("zero")),
        ("scale", a.num("scale")),
        ("inverse", 1 / a.num("out_scale") if quantized else 1.0),
        ("out_zero", a.int("out_zero") if quantized else 0),
    )
    step = Step(
        "linear_q8csw",
        params,
        fold(ceil_div(m * n, WG), limits, f"{m} x {n} outputs"),
        (
            ("WG", WG),
            ("BIAS", int("bias" in a)),
            ("RELU", int(a.attrs.get("activation") == "relu")),
            ("QUANTIZED", int(quantized)),
            ("OUT_T", "i32" if quantized else "f32"),
        ),
        work=(n * k + 4 * m * (k + n), 2 * m * n * k),
    )
    return Plan((out,), (step,), "gemv" if m == 1 else "gemm")


def weight_only(a: Args, t: Mapping[str, Array]) -> list[Array]:
    (n, _), k = a["w"], a["x"][-1]
    out = (t["x"].astype(np.float64) @ t["w"][:, :k].astype(np.float64).T) * t["scales"].astype(np.float64)[:n]
    return [out + t["bias"].astype(np.float64)[:n] if "bias" in a else out]


def _floats(m: int, k: int, n: int, *live: int, bias: bool = False, padded: bool = False) -> Case:
    dims: dict[str, Dims] = {"x": (1, m, k), "w": (n, align(k, 4) if padded else k), "scales": (n,)}
    dims |= {"bias": (n,)} if bias else {}
    return Case(dims, {}, tuple({"x": (1, s, k)} for s in live), {"w": "int8"})


@op(
    "aten._weight_int8pack_mm.default",
    "x w!:weight/int8 scales!:scales -> out",
    reference=weight_only,
    pack=pack,
    make=make_scaled,
    cases=(_floats(23, 32, 20, 1, 6), _floats(5, 37, 11, 1), _floats(2, 256, 70, 1)),
)
@op(
    "et_vk.linear_q8csw.default",
    "x w!:weight/int8 scales!:scales bias?!:bias -> out",
    reference=weight_only,
    pack=pack,
    make=make_scaled,
    cases=(_floats(13, 64, 20, 1, 6, bias=True), _floats(5, 37, 11, 1, padded=True), _floats(3, 36, 7, bias=True)),
)
def linear_q8w(a: Args, limits: Limits) -> Plan:
    """A weight that is too large to bind at once is multiplied in parts."""
    (n, width), m, k = a["w"], rows_of(a["x"]), a["x"][-1]
    need(k <= width <= align(k, 4), f"x has rows of {k}, the weight takes {width}")
    check_columns(a, n)
    out = (*a["x"][:-1], n)
    if not prod(out):
        return Plan((out,), (), "empty")
    rows, row = 1 if m == 1 else 4, align(width, 4)
    steps = []
    for first, cols in row_parts(n, row, limits):
        steps.append(
            Step(
                "linear_q8w",
                (("m", m), ("n", n), ("k", k), ("words", row // 4), ("first", first), ("cols", cols)),
                fold(ceil_div(cols * ceil_div(m, rows), WG), limits, f"{m} x {cols} outputs"),
                (("WG", WG), ("ROWS", rows), ("BIAS", int("bias" in a))),
                () if cols == n else (("w", Window(first * row, cols * row)),),
                work=(4 * m * (k + cols) + cols * row, 2 * m * cols * k),
            )
        )
    parts = f" in {len(steps)} parts" if len(steps) > 1 else ""
    return Plan((out,), tuple(steps), ("gemv" if m == 1 else "gemm") + parts)
