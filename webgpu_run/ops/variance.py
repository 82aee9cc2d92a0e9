"""aten.var: the variance over any dims, one workgroup per output element."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ..shapes import Array, prod
from .limits import Limits
from .plan import Plan, Step, fold, need
from .reduce import WG, axes_of, layout, reduced
from .spec import Args, Case, op


def variance(name: str, schema: str, correction: Callable[[Args], float], attr: str) -> None:
    """Squared distances from the mean, divided by the number of elements less a correction."""

    def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
        axes, keep = axes_of(a), bool(a.attrs["keep"])
        with np.errstate(all="ignore"):
            x = t["x"].astype(np.float64)
            squares = ((x - x.mean(axes, keepdims=True)) ** 2).sum(axes, keepdims=keep)
            count = math.prod(x.shape[i] for i in axes)
            return [np.asarray(squares / max(0.0, count - correction(a)))]

    @op(
        name,
        schema,
        reference=reference,
        cases=(
            Case({"x": (1, 13, 96)}, {"dims": (-1,), "keep": True, attr: 1}, ({"x": (1, 1, 96)}, {"x": (1, 5, 96)})),
            Case({"x": (3, 5, 7)}, {"dims": (0, 2), "keep": False, attr: 0}, ({"x": (2, 5, 7)}, {"x": (3, 1, 3)})),
            Case({"x": (5, 67)}, {"dims": None, "keep": False, attr: 1}),
        ),
    )
    def plan(a: Args, limits: Limits) -> Plan:
        x, axes = a["x"], axes_of(a)
        out = reduced(x, axes, bool(a.attrs["keep"]))
        if not prod(out):
            return Plan((out,), (), "empty")
        size = prod(tuple(x[i] for i in axes))
        need(size > 0, f"nothing to reduce in {list(x)}")
        rest = size - correction(a)
        step = Step(
            "variance",
            (*layout(x, axes, out), ("scale", 1 / rest if rest > 0 else math.inf)),  # 0 times infinity is NaN
            fold(prod(out), limits, f"{prod(out)} outputs"),
            (("WG", WG),),
            work=(8 * prod(x), 4 * prod(x)),
        )
        return Plan((out,), (step,), "rows" if axes == (len(x) - 1,) else "strided")


variance(
    "aten.var.dim", "x dims?:ints unbiased:bool keep:bool -> out", lambda a: float(a.attrs["unbiased"]), "unbiased"
)
variance(
    "aten.var.correction",
    "x dims?:ints correction?:num keep:bool -> out",
    lambda a: a.num("correction", 1.0),
    "correction",
)
