"""wr.linear_q4gsw.N: rms_norm, then N 4-bit linears (or gate and up of a SwiGLU), then bias and residual, as fused."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, Dims, align
from . import q4_layout, q8
from .limits import Limits
from .linear_q4gsw import check, make, resources, route
from .plan import Plan, need
from .q4_activations import Linear
from .q4_dispatch import linear_steps
from .spec import Args, Case, Packed, op


def _parts(a: Args) -> int:
    return len(a.attrs["w"])


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    x = t["x"].astype(np.float64)
    if "norm" in a:
        x = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + a.num("eps")) * t["norm"].astype(np.float64)
    if a.attrs["rounded"]:
        x = q8.rounded(x, *q8.qparams(x))
    k, outs = x.shape[-1], []
    for i in range(_parts(a)):
        n = a[f"w{i}"][0]
        y = x @ q4_layout.dequantize(t[f"w{i}"], t[f"scales{i}"], a.int("group"), n, k).T
        outs.append(y + t[f"bias{i}"].astype(np.float64)[:n] if f"bias{i}" in a else y)
    if a.attrs["swiglu"]:
        outs = [outs[0] / (1 + np.exp(-outs[0])) * outs[1]]
    return [outs[0] + t["res"].astype(np.float64)] if "res" in a else outs


def pack(a: Args, t: Mapping[str, Array], limits: Limits) -> dict[str, Packed]:
    count, group = _parts(a), a.int("group")
    weights = [(t[f"w{i}"], t[f"scales{i}"]) for i in range(count)]
    packed = {"w": q4_layout.texels([q4_layout.paired(*weights)] if a.attrs["swiglu"] else weights, group, limits)}
    if a.attrs["bias"]:
        packed["bias"] = Packed(
            q4_layout.bias_strips([t[f"bias{i}"] for i in range(count)], [w.shape[0] for w, _ in weights], limits)
        )
    return packed


def _case(
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


def linear_q4gsw_fused(a: Args, limits: Limits) -> Plan:
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
    linear = Linear(
        k,
        group,
        widths,
        outs=tuple(f"out{i}" for i in range(len(outs))),
        bias=bool(a.attrs["bias"]),
        norm="norm" in a,
        eps=a.num("eps"),
        residual="res" in a,
        swiglu=swiglu,
        rounded=bool(a.attrs["rounded"]),
    )
    extra = "+round" * bool(a.attrs["rounded"]) + "+norm" * ("norm" in a) + "+swiglu" * swiglu + "+add" * ("res" in a)
    return Plan(outs, linear_steps(linear, m, limits), route(m) + extra)


_CASES = {
    1: (
        _case(11, 96, (64,), 1, 2, 5, norm=True, res=True),
        _case(5, 64, (44, 44), 1, 3, swiglu=True, norm=True),
        _case(5, 64, (45, 45), 1, 3, swiglu=True, norm=True),  # the columns of a lane are stored one by one
        _case(3, 64, (37,), 1, res=True, bias=True),
        _case(70, 64, (64,), 1, 16, 17, 65, norm=True, res=True),
        _case(21, 64, (44, 44), 1, 18, swiglu=True, norm=True),
        _case(37, 96, (64,), 1, 2, 5, 36, norm=True, res=True, rounded=True),
        _case(5, 128, (44, 44), 1, 3, swiglu=True, rounded=True, group=64),
        _case(20, 1152, (36,), 1, 13, 16, rounded=True),  # windows of 16 rounded rows, but only of 12 rows of f32
        _case(5, 5120, (36,), 1, 4, rounded=True),
        _case(28, 544, (36,), 1, 25),  # a uniform window of 28 rows, of which workgroups of 6 would take 30
        _case(5, 8192, (36,), 1, 3, 4, norm=True),  # more than two rows do not fit into a uniform window
        _case(2, 2112, (36,), 1, norm=True, rounded=True),  # on GPUs two chunks of k
        _case(1, 8256, (12,), rounded=True, res=True),  # more than a workgroup's memory has room for
        _case(1, 8704, (12,), norm=True),  # on GPUs more invocations than usual divide the blocks evenly
        # a row is larger than a uniform
        _case(5, 16512, (12,), 1, 2, res=True),
        _case(5, 16512, (12,), 1, 2, norm=True),
        _case(5, 16512, (12,), 1, 2, norm=True, rounded=True),
    ),
    2: (
        _case(6, 64, (36, 20), 1, 4),
        _case(6, 64, (37, 20), 1, 4, bias=True),
    ),
    3: (
        _case(9, 96, (96, 32, 36), 1, 2, 7, norm=True, bias=True),
        _case(3, 128, (64, 32, 32), 1, group=64),
        _case(9, 96, (96, 32, 36), 1, 2, 7, norm=True, bias=True, rounded=True),
    ),
}
for _n in (1, 2, 3):
    op(
        f"wr.linear_q4gsw.{_n}",
        "x w:weight[]/q4 scales:scales[] group:int bias:bias[] norm?:norm eps:num res? swiglu:bool "
        "rounded:bool "
        f"-> [{','.join(f'out{i}' for i in range(_n))}]",
        reference=reference,
        pack=pack,
        resources=resources,
        make=make,
        cases=_CASES[_n],
    )(linear_q4gsw_fused)
