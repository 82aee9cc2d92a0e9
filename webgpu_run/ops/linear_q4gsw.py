"""et_vk.linear_q4gsw: f32 activations times a 4-bit, group-scaled weight; linear_q4gsw_fused.py has the fused form."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, Dims, align, ceil_div, prod, rows_of
from . import q4_activations, q4_layout
from .limits import Limits
from .plan import Plan, Step, fold, need
from .q4_activations import Linear
from .q4_dispatch import linear_steps
from .spec import Args, Case, Packed, Resource, op

WG = 64


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    n, k = a.max_dims["out"][-1], a["x"][-1]
    out = t["x"].astype(np.float64) @ q4_layout.dequantize(t["w"], t["scales"], a.int("group"), n, k).T
    return [out + t["bias"].astype(np.float64)[:n] if "bias" in a else out]


def pack(a: Args, t: Mapping[str, Array], limits: Limits) -> dict[str, Packed]:
    """Strips where the shape allows them, else the file's own bytes."""
    k, group = a["x"][-1], a.int("group")
    if q4_layout.fits(k, group, (t["w"].shape[0],), limits):
        packed = {"w": q4_layout.texels([(t["w"], t["scales"])], group, limits)}
    else:
        packed = {"w": Packed(t["w"].view(np.uint32)), "scales": Packed(t["scales"].astype(np.float32))}
    if "bias" in t:
        packed["bias"] = Packed(q4_layout.bias_strips([t["bias"]], [t["w"].shape[0]], limits))
    return packed


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
    """Scratch for the activations of a prefill, of the plain op and of the fused ones."""
    rounded = bool(a.attrs.get("rounded"))
    return q4_activations.resources(rows_of(a["x"]), a["x"][-1], limits, norm="norm" in a, rounded=rounded)


@op(
    "et_vk.linear_q4gsw.default et_vk.q4gsw_linear.default",
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
        _case(6, 16512, 12, 32, 1, 3),  # a row is larger than a uniform
    ),
)
def linear_q4gsw(a: Args, limits: Limits) -> Plan:
    n, group = a.max_dims["out"][-1], a.int("group")
    m, k = check(a["x"], a["w"], a["scales"], a.get("bias"), n, group)
    out = (*a["x"][:-1], n)
    if not m:
        return Plan((out,), (), "empty")
    if q4_layout.fits(k, group, (n,), limits):
        return Plan((out,), linear_steps(Linear(k, group, (n,), bias="bias" in a), m, limits), route(m))
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
