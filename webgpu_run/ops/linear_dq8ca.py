"""et_vk.linear_dq8ca_q4gsw: rows quantized to 8 bits at run time, times a 4-bit weight.

One small dispatch rounds the rows to their 8-bit steps, (xq - zero) * scale in f32; the 4-bit linear does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..shapes import Array, align, ceil_div, prod, rows_of
from . import linear_q4gsw
from .limits import Limits
from .plan import Plan, Step, fold, need, unsupported
from .q8 import EPS, qparams, rounded
from .spec import Args, Case, Resource, op

WG = 64


def choose_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return list(qparams(t["x"], a.int("low"), a.int("high"), a.num("eps", EPS)))


@op(
    "torchao.choose_qparams_affine.default",
    "x mode:str block:ints _ low:int high:int eps?:num _ _ keep:bool -> [scale,zero/int8|int32]",
    reference=choose_reference,
    cases=(
        Case(
            {"x": (1, 11, 96)},
            {"mode": "ASYMMETRIC", "block": (1, 1, 96), "low": -128, "high": 127, "keep": False},
            ({"x": (1, 1, 96)}, {"x": (1, 4, 96)}),
            {"zero": "int8"},
        ),
        Case(
            {"x": (7, 37)},
            {"mode": "ASYMMETRIC", "block": (1, 37), "low": -128, "high": 127, "keep": False},
            (),
            {"zero": "int8"},
        ),
    ),
)
def choose_qparams(a: Args, limits: Limits) -> Plan:
    x, block = a["x"], a.attrs["block"]
    unsupported(a.attrs["mode"] == "ASYMMETRIC", f"{a.attrs['mode']} quantisation of activations has no kernel")
    unsupported(not a.attrs["keep"], "keepdim has no kernel")
    rowwise = len(block) == len(x) and block[-1] == x[-1] and all(b == 1 for b in block[:-1])
    unsupported(rowwise, f"blocks of {list(block)} have no kernel, only whole rows do")
    out = x[:-1]
    if not prod(x):
        return Plan((out, out), (), "empty")
    rows = rows_of(x)
    step = Step(
        "choose_qparams",
        (("rows", rows), ("width", x[-1]), ("low", a.int("low")), ("high", a.int("high")), ("eps", a.num("eps", EPS))),
        fold(rows, limits, f"{rows} rows"),
        (("WG", limits.profile.workgroup), ("BALANCED", 0)),
        work=(4 * prod(x), 2 * prod(x)),
    )
    return Plan((out, out), (step,), "rows")


def linear_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return linear_q4gsw.reference(a, {**t, "x": rounded(t["x"], t["scale"], t["zero"])})


def make(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Scales and zero points of the rows themselves, so that the whole range is used."""
    x = rng.standard_normal(a["x"]).astype(np.float32)
    scale, zero = qparams(x)
    return {**linear_q4gsw.make(a, rng), "x": x, "scale": scale, "zero": zero.astype(np.int8)}


def _case(m: int, k: int, n: int, group: int, *live: int, bias: bool = False) -> Case:
    dims = {
        "x": (1, m, k),
        "scale": (1, m),
        "zero": (1, m),
        "w": (n, align(k, 8) // 2),
        "sums": (ceil_div(k, group), align(n, 8)),
        "scales": (ceil_div(k, group), align(n, 4)),
        "out": (1, m, n),
    }
    if bias:
        dims["bias"] = (align(n, 4),)
    shapes = tuple({"x": (1, s, k), "scale": (1, s), "zero": (1, s)} for s in live)
    return Case(dims, {"group": group}, shapes, {"w": "uint8", "zero": "int8", "sums": "int32"})


def _reading(step: Step) -> Step:
    """The same dispatch, reading the rounded rows instead of x."""
    rename = {"x": "rounded"} | {k: "rounded" if v == "x" else v for k, v in step.rename}
    windows = tuple(("rounded" if name == "x" else name, window) for name, window in step.windows)
    stage = replace(step.stage, source="rounded") if step.stage else None
    return replace(step, rename=tuple(rename.items()), windows=windows, stage=stage)


def resources(a: Args, limits: Limits) -> dict[str, Resource]:
    """Scratch for the rounded rows, up to the end of the linear's last window."""
    ends = [w.offset + w.nbytes for s in _linear(a, limits).steps for name, w in s.windows if name == "x"]
    inner = linear_q4gsw.resources(a, limits)
    return {**inner, "rounded": Resource(max(prod(a["x"]) * 4 + 1024, *ends, 0))}


def _linear(a: Args, limits: Limits) -> Plan:
    max_dims = {**a.max_dims, "out": a["out"]} if "out" in a else a.max_dims
    return linear_q4gsw.linear_q4gsw(Args(a.dims, a.attrs, max_dims=max_dims, dtypes=a.dtypes), limits)


@op(
    "et_vk.linear_dq8ca_q4gsw.default",
    "x scale zero/int8|int32 w!:weight/q4 sums!:sums/int32 scales!:scales group:int bias?!:bias -> out",
    reference=linear_reference,
    pack=linear_q4gsw.pack,
    resources=resources,
    make=make,
    cases=(
        _case(11, 96, 48, 32, 1, 2, 5),
        _case(3, 128, 37, 64, 1, bias=True),
        _case(19, 64, 40, 32, 1, 17),
        _case(4, 24, 10, 8, 1),
    ),
)
def linear_dq8ca_q4gsw(a: Args, limits: Limits) -> Plan:
    x = a["x"]
    need(a["scale"] == a["zero"], f"scales {list(a['scale'])} and zero points {list(a['zero'])} differ")
    need(prod(a["scale"]) == rows_of(x), f"{prod(a['scale'])} scales for {rows_of(x)} rows")
    inner = _linear(a, limits)
    if not inner.steps:
        return inner
    count = prod(x)
    params = (("count", count), ("width", x[-1]), ("low", -128), ("high", 127))
    grid = fold(ceil_div(count, WG), limits, f"{count} elements")
    first = Step("round_rows", params, grid, (("WG", WG),), rename=(("out", "rounded"),), work=(8 * count, 4 * count))
    return replace(inner, steps=(first, *(_reading(s) for s in inner.steps)))
