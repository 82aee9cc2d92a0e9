"""et_vk.linear_qcs4w: a 4-bit weight with one scale per column, planned as a 4-bit linear with one group."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, align
from . import linear_q4gsw, q4_layout
from .limits import Limits
from .plan import Plan, need
from .spec import Args, Case, Packed, Resource, op


def turned(w: Array, k: int) -> Array:
    """Bytes with the even k in the low nibble, rows padded to 8 weights with zeros."""
    low_first = q4_layout.swap_nibbles(w)
    pad = align(k, 8) // 2 - w.shape[1]
    return np.pad(low_first, ((0, 0), (0, pad)), constant_values=0x88) if pad else low_first


def _grouped(a: Args) -> Args:
    """The arguments of the same node as a linear_q4gsw."""
    k, n = a["x"][-1], a["w"][0]
    dims = {"x": a["x"], "w": (n, align(k, 8) // 2), "scales": (1, align(n, 4))}
    return Args(dims, {"group": k}, max_dims={**dims, "out": (*a["x"][:-1], n)})


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    k = a["x"][-1]
    w = q4_layout.nibbles(turned(t["w"], k))[:, :k].astype(np.float64) * t["scales"].astype(np.float64)[:, None]
    return [t["x"].astype(np.float64) @ w.T]


def pack(a: Args, t: Mapping[str, Array], limits: Limits) -> dict[str, Packed]:
    n = a["w"][0]
    scales = np.zeros((1, align(n, 4)), np.float32)
    scales[0, :n] = t["scales"][:n]
    return linear_q4gsw.pack(_grouped(a), {"w": turned(t["w"], a["x"][-1]), "scales": scales}, limits)


def resources(a: Args, limits: Limits) -> dict[str, Resource]:
    return linear_q4gsw.resources(_grouped(a), limits)


def _case(m: int, k: int, n: int, *live: int) -> Case:
    dims = {"x": (m, k), "w": (n, k // 2), "scales": (n,)}
    return Case(dims, {}, tuple({"x": (s, k)} for s in live), {"w": "uint8"})


@op(
    "et_vk.linear_qcs4w.default",
    "x w!:weight/q4 scales!:scales -> out",
    reference=reference,
    pack=pack,
    resources=resources,
    make=linear_q4gsw.make,
    cases=(_case(7, 64, 37, 1, 3), _case(3, 20, 8, 1)),
)
def linear_qcs4w(a: Args, limits: Limits) -> Plan:
    k, (n, half) = a["x"][-1], a["w"]
    need(half == (k + 1) // 2, f"weight rows have {half} bytes for K={k}")
    need(a["scales"] == (n,), f"scales have dims {list(a['scales'])} for {n} columns")
    return linear_q4gsw.linear_q4gsw(_grouped(a), limits)
