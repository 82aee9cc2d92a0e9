"""aten.linear, bmm, mm and addmm in f32: an invocation computes a few rows of a few columns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, Dims, broadcast, broadcast_strides, ceil_div, prod, rows_of
from . import strips
from .limits import Limits
from .plan import Plan, Step, Window, fold, need, row_parts
from .spec import Args, Case, Packed, op

WG = 64


def rows_per_lane(m: int, limits: Limits) -> int:
    """Software adapters have no use for many invocations, but loads are slow there, and larger blocks need fewer."""
    return 1 if m == 1 else 8 if limits.profile.images and m > 4 else 4


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    out = t["x"].astype(np.float64) @ t["w"].astype(np.float64).T
    return [out + t["bias"].astype(np.float64) if "bias" in a else out]


def is_strips(a: Args, limits: Limits) -> bool:
    """Whether the weight is packed as strips; one that the graph computes can't be packed."""
    return not a.attrs.get("computed") and strips.fits(a["w"][0], a["w"][1], 1, limits)


def pack(a: Args, constants: Mapping[str, Array], limits: Limits) -> Mapping[str, Packed]:
    return {"w": strips.pack(constants["w"][None], limits)} if is_strips(a, limits) else {}


@op(
    "aten.linear.default",
    "x w:weight bias?:bias -> out",
    reference=reference,
    pack=pack,
    cases=(
        Case({"x": (1, 23, 32), "w": (20, 32)}, live=({"x": (1, 1, 32)}, {"x": (1, 6, 32)}), tol=1e-5),
        Case({"x": (13, 63), "w": (29, 63), "bias": (29,)}, live=({"x": (1, 63)},), tol=1e-5),
        Case({"x": (2, 9, 40), "w": (70, 40), "bias": (70,)}, live=({"x": (1, 3, 40)},), tol=1e-5),
        Case({"x": (62, 24), "w": (100, 24)}, live=({"x": (5, 24)}, {"x": (57, 24)}), tol=1e-5),
        Case({"x": (6, 20), "w": (9, 20)}, live=({"x": (1, 20)},), tol=1e-5),
    ),
)
def linear(a: Args, limits: Limits) -> Plan:
    x, w = a["x"], a["w"]
    n, k = w
    need(x[-1] == k, f"x has rows of {x[-1]}, the weight takes {k}")
    need("bias" not in a or prod(a["bias"]) >= n, "bias is shorter than the output")
    m = rows_of(x)
    out = (*x[:-1], n)
    if not m:
        return Plan((out,), (), "empty")
    if is_strips(a, limits):
        step = strips.linear(m, n, k, rows_per_lane(m, limits), int("bias" in a), limits)
        return Plan((out,), (step,), "gemv strips" if m == 1 else "gemm strips")
    vec4 = k % 4 == 0
    rows, across = rows_per_lane(m, limits), 4 if limits.profile.images else 1
    steps = []
    for first, cols in row_parts(n, 4 * k, limits):  # several parts if the weight is too large to bind at once
        steps.append(
            Step(
                "linear_vec4" if vec4 else "linear",
                (("m", m), ("n", n), ("k", k // 4 if vec4 else k), ("first", first), ("cols", cols)),
                fold(ceil_div(ceil_div(cols, across) * ceil_div(m, rows), WG), limits, f"{m} x {cols} outputs"),
                (("WG", WG), ("ROWS", rows), ("COLS", across), ("BIAS", int("bias" in a))),
                () if cols == n else (("w", Window(first * 4 * k, cols * 4 * k)),),
                work=(4 * (m * k + cols * k + m * cols), 2 * m * cols * k),
            )
        )
    parts = f" in {len(steps)} parts" if len(steps) > 1 else ""
    return Plan((out,), tuple(steps), ("gemv" if m == 1 else "gemm") + parts)


@op(
    "aten.bmm.default",
    "a b -> out",
    reference=lambda a, t: [t["a"].astype(np.float64) @ t["b"].astype(np.float64)],
    cases=(
        Case({"a": (3, 5, 7), "b": (3, 7, 11)}, live=({"a": (3, 1, 7)},)),
        Case({"a": (2, 35, 21), "b": (2, 21, 33)}, live=({"a": (2, 33, 2), "b": (2, 2, 33)}, {"a": (2, 32, 21)})),
        Case({"a": (2, 10, 16), "b": (2, 16, 36)}, live=({"a": (2, 9, 8), "b": (2, 8, 36)},)),
    ),
)
@op(
    "aten.mm.default",
    "a b -> out",
    reference=lambda a, t: [t["a"].astype(np.float64) @ t["b"].astype(np.float64)],
    cases=(Case({"a": (5, 7), "b": (7, 11)}, live=({"a": (1, 7)},)),),
)
def bmm(a: Args, limits: Limits) -> Plan:
    x, y = a["a"], a["b"]
    need(x[-1] == y[-2] and x[:-2] == y[:-2], f"{list(x)} can't be multiplied by {list(y)}")
    return _product(x, y, limits)


def _product(x: Dims, y: Dims, limits: Limits, **added: float) -> Plan:
    """x y, with `added` the uniforms for what is added to it."""
    out, m, n, k = (*x[:-1], y[-1]), x[-2], y[-1], x[-1]
    count, batches = prod(out), prod(x[:-2])
    if not count:
        return Plan((out,), (), "empty")
    rows = 16 if limits.profile.shuffle and m > 32 else rows_per_lane(m, limits)
    what = f"{count} outputs"
    uniforms = {"row": 0, "col": 0, "beta": 0.0, "alpha": 1.0} | added
    params = (("batches", batches), ("m", m), ("n", n), ("k", k), *uniforms.items())
    consts = (("ROWS", rows), ("ADDED", int(bool(added))), ("VEC", int(n % 4 == 0)))
    work = (4 * (prod(x) + prod(y) + count), 2 * count * k)
    blocks = batches * ceil_div(m, rows)
    if limits.profile.shuffle:
        grid = fold(blocks * ceil_div(n, strips.COLUMNS), limits, what)
        step = Step("matmul_strips", params, grid, (*consts, ("EDGE", int(k % 8 > 0))), work=work)
        return Plan((out,), (step,), "strips")
    grid = fold(ceil_div(blocks * ceil_div(n, 4), WG), limits, what)
    step = Step("matmul", params, grid, (("WG", WG), *consts), work=work)
    return Plan((out,), (step,), "blocks")


def addmm_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    c, x, y = (t[n].astype(np.float64) for n in ("c", "a", "b"))
    return [a.num("beta", 1.0) * c + a.num("alpha", 1.0) * (x @ y)]


@op(
    "aten.addmm.default",
    "c a b beta:num alpha:num -> out",
    reference=addmm_reference,
    cases=(
        Case({"c": (11,), "a": (5, 7), "b": (7, 11)}, {"beta": 1, "alpha": 1}, ({"a": (1, 7)},)),
        Case({"c": (5, 1), "a": (5, 16), "b": (16, 12)}, {"beta": 0.5, "alpha": 2}),
    ),
)
def addmm(a: Args, limits: Limits) -> Plan:
    c, x, y = a["c"], a["a"], a["b"]
    need(len(x) == len(y) == 2 and x[1] == y[0], f"{list(x)} can't be multiplied by {list(y)}")
    out = (x[0], y[1])
    need(broadcast(c, out) == out, f"{list(c)} can't be added to {list(out)}")
    row, col = broadcast_strides(c, out)
    return _product(x, y, limits, row=row, col=col, beta=a.num("beta", 1.0), alpha=a.num("alpha", 1.0))
