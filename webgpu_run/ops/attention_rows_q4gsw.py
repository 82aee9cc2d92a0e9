"""wr.attention_rows_q4gsw: rms_norm, 4-bit linears of queries, keys and values, and then wr.attention_rows.

The same kernels as those of wr.attention_q4gsw compute it, where the caches are textures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..shapes import Array, rows_of
from . import attention, attention_q4gsw, attention_rows, linear_q4gsw
from .limits import SHORT, SOFTWARE, WIDE, Limits
from .plan import Plan
from .spec import Args, Case, op


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return attention_rows.reference(attention_q4gsw.apart(a), attention_q4gsw.projected(a, t))


def make(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    return linear_q4gsw.make(a, rng) | attention_rows.make(attention_q4gsw.apart(a), rng)


def _case(of_one: Case, sequences: int, pos: int) -> Case:
    """A case of wr.attention_q4gsw, with rows of several sequences; `pos` is the largest position."""
    sizes = [{**live, "rows": (live["x"][1], 4)} for live in ({"x": of_one.dims["x"]}, *of_one.live)]
    attrs = {**of_one.attrs, "sequences": sequences, "pos": pos}
    del attrs["causal"]
    return replace(
        of_one,
        dims={**of_one.dims, **sizes[0]},
        attrs=attrs,
        live=tuple(sizes[1:]),
        dtypes={**of_one.dtypes, "rows": "int32"},
    )


@op(
    "wr.attention_rows_q4gsw",
    "x w:weight[]/q4 scales:scales[] group:int bias:bias[] norm?:norm eps:num rounded:bool kc!:cache vc!:cache "
    "rows/int32 pos:slot cos:rotary sin:rotary halves:bool sequences:int scale?:num -> out",
    reference=reference,
    pack=attention_q4gsw.pack,
    resources=attention_q4gsw.resources,
    make=make,
    profiles=(SOFTWARE, SHORT, WIDE),
    cases=(
        _case(attention_q4gsw.CASES[0], 3, 27),
        _case(attention_q4gsw.CASES[1], 2, 17),
        _case(attention_q4gsw.CASES[2], 1, 7),
        _case(attention_q4gsw.CASES[3], 5, 27),  # rounded to 8 bits
        _case(attention_q4gsw.CASES[4], 2, 60),
        _case(attention_q4gsw.CASES[5], 3, 60),
    ),
)
def attention_rows_q4gsw(a: Args, limits: Limits) -> Plan:
    part = attention_q4gsw.apart(a)
    attention_q4gsw.check(a, limits)
    bounds = attention_rows.bounds(part)
    if not rows_of(a["x"]):
        return Plan((part["xq"],), (), "empty", bounds)
    steps = attention_q4gsw.texture_steps(a, limits)
    return Plan((part["xq"],), steps, "texture", bounds, reach=attention.reach(part, limits))
