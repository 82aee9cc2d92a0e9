"""et_vk.rms_norm: x * rsqrt(mean(x^2) + eps) * weight over the last dim, one workgroup per row."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, prod, rows_of
from .limits import Limits
from .plan import Plan, Step, fold, need
from .spec import Args, Case, op


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    x = t["x"].astype(np.float64)
    return [x / np.sqrt(np.mean(x * x, -1, keepdims=True) + a.num("eps")) * t["weight"].astype(np.float64)]


_LIVE = ({"x": (1, 1, 64)}, {"x": (1, 3, 64)}, {"x": (1, 17, 64)})


@op(
    "et_vk.rms_norm.default",
    "x weight:norm eps:num -> out",
    reference=reference,
    cases=(
        Case({"x": (1, 31, 64), "weight": (64,)}, {"eps": 1e-5}, _LIVE),
        Case({"x": (1, 7, 576), "weight": (576,)}, {"eps": 1e-6}, ({"x": (1, 1, 576)},)),
        Case({"x": (2, 5, 3, 37), "weight": (37,)}, {"eps": 1e-5}, ({"x": (1, 1, 3, 37)}, {"x": (2, 2, 1, 37)})),
        Case({"x": (1, 2048), "weight": (2048,)}, {"eps": 1e-5}),
        Case({"x": (2, 5, 36), "weight": (2, 5, 1)}, {"eps": 1e-5}, ({"x": (1, 3, 36), "weight": (1, 3, 1)},)),
    ),
)
def plan(a: Args, limits: Limits) -> Plan:
    x = a["x"]
    width = x[-1]
    rows, per_row = rows_of(x), a["weight"] != (width,)
    if per_row:  # the exporter takes any factor of a norm for its weight, such as that of a second norm
        fits = a["weight"] == (*x[:-1], 1)
        need(fits, f"weight has dims {list(a['weight'])}, the rows of x are {width} wide")
    need(rows > 0, f"x has dims {list(x)}: no row to normalise")
    vec4 = width % 4 == 0 and not per_row
    step = Step(
        "rms_norm_vec4" if vec4 else "rms_norm",
        (("rows", rows), ("width", width // 4 if vec4 else width), ("eps", a.num("eps"))),
        fold(rows, limits, f"{rows} rows"),
        (("WG", limits.profile.workgroup), ("PER_ROW", int(per_row))),
        work=(8 * prod(x), 4 * prod(x)),
    )
    return Plan((x,), (step,), "vec4" if vec4 else "scalar per row" if per_row else "scalar")
