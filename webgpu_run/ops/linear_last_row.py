"""wr.linear_last_row_q4gsw: the fused 4-bit linear of the last row of x only, which it reads where it is.

Exporters select the last token before the final norm and the linear to the vocabulary. Read at an offset, the row needs
no copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..shapes import Array, Dims
from . import linear_q4gsw, linear_q4gsw_fused, wgsl
from .limits import Limits
from .plan import Plan, Step, Window, need
from .spec import Args, Case, Resource, op


def can_offset(x: Dims, limits: Limits) -> bool:
    """Whether every row of x begins where a binding may begin."""
    align = max(limits.uniform_align, limits.storage_align)
    return len(x) == 3 and x[0] == 1 and x[2] * 4 % align == 0


def _alone(a: Args) -> Args:
    """The arguments of the linear of one row."""
    return Args({**a.dims, "x": (1, a["x"][-1])}, a.attrs, max_dims=a.max_dims, dtypes=a.dtypes, slots=a.slots)


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return linear_q4gsw_fused.reference(_alone(a), {**t, "x": t["x"][:, -1]})


def resources(a: Args, limits: Limits) -> dict[str, Resource]:
    return linear_q4gsw.resources(_alone(a), limits)


def _case(rows: int, k: int, n: int, *live: int, **form: bool) -> Case:
    one = linear_q4gsw_fused._case(1, k, (n,), **form)
    shapes = tuple({"x": (1, s, k)} for s in live)
    return Case({**one.dims, "x": (1, rows, k)}, one.attrs, shapes, one.dtypes, tol=one.tol)


@op(
    "wr.linear_last_row_q4gsw",
    "x w:weight[]/q4 scales:scales[] group:int bias:bias[] norm?:norm eps:num res? swiglu:bool rounded:bool -> [out0]",
    reference=reference,
    pack=linear_q4gsw_fused.pack,
    resources=resources,
    make=linear_q4gsw.make,
    cases=(
        _case(11, 64, 300, 1, 2, 5, norm=True),
        _case(3, 128, 37, 1, bias=True),
        _case(5, 64, 70, 1, 4, norm=True, rounded=True),
        _case(3, 16512, 20, 1, 2, norm=True),  # a row is larger than a uniform
    ),
)
def linear_last_row(a: Args, limits: Limits) -> Plan:
    x = a["x"]
    need(can_offset(x, limits) and x[1] > 0, f"x has dims {list(x)}: no last row at an aligned offset")
    inner = linear_q4gsw_fused.linear_q4gsw_fused(_alone(a), limits)
    row = Window((x[1] - 1) * x[2] * 4, x[2] * 4)
    return replace(inner, steps=tuple(_reading(s, row) for s in inner.steps), route=f"{inner.route}+last")


def _reading(step: Step, row: Window) -> Step:
    """The same dispatch with `row` as its x, if it reads x."""
    rename = dict(step.rename)
    if "x" not in (rename.get(b.name, b.name) for b in wgsl.load(step.kernel).bindings(step.consts)):
        return step
    return replace(step, windows=(*(w for w in step.windows if w[0] != "x"), ("x", row)))
