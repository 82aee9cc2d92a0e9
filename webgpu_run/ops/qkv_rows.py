"""The projections of wr.attention_q4gsw where caches are buffers of rows.

The linear of a single row, a decode step, rotates its results and writes the caches itself. With several rows it writes
them into scratch, and a dispatch more does the rest, so that only one kind of linear needs another ending.
"""

from __future__ import annotations

from dataclasses import replace

from ..shapes import prod
from . import attention, q4_layout, sdpa
from .limits import Limits
from .plan import Step
from .q4_activations import Linear
from .q4_dispatch import linear_steps
from .spec import Args, Resource

SCRATCH = {"xq": "pq", "xk": "pk", "v": "pv"}  # the projections of several rows
STORES_QKV = {  # linears of one row, and the kernels that end as q4_out_qkv_buffer.wgsl says instead
    "linear_q4gsw_few": "attention_q4gsw_few",
    "linear_q4gsw_few_round": "attention_q4gsw_few_round",
    "linear_dq8ca_few_round": "attention_dq8ca_few_round",
    "linear_q4gsw_narrow": "attention_q4gsw_narrow",
    "linear_q4gsw_strips": "attention_q4gsw_buffer",
    "linear_dq8ca_strips": "attention_dq8ca_buffer",
    "linear_dq8ca_staged": "attention_dq8ca_staged",
}
OF_ROWS = ("OUTS", "RESIDUAL", "SWIGLU", "EDGE", "WIDE")  # constants of q4_out_rows.wgsl only


def resources(part: Args) -> dict[str, Resource]:
    """Scratch for the arguments `part` of attention alone."""
    return {name: Resource(prod(part[x]) * 4) for x, name in SCRATCH.items()} if part["xq"][1] > 1 else {}


def steps(linear: Linear, part: Args, m: int, limits: Limits) -> tuple[Step, ...]:
    """All dispatches, from the norm to attention."""
    linear = replace(linear, outs=tuple(SCRATCH.values()))
    *before, last = linear_steps(linear, m, limits)
    if m == 1:
        before.append(_storing(last, linear, part, limits))
    else:
        reordered = bool(part.attrs["halves"])
        before += [last, attention.turn_rows(part, limits, tuple(SCRATCH.items()), reordered=reordered)]
    return *before, *sdpa.attend_steps(part, part["xq"], limits)


def _storing(last: Step, linear: Linear, part: Args, limits: Limits) -> Step:
    """The dispatch of a linear of one row, which stores queries, keys and values where attention reads them."""
    half = limits.kv == "f16"
    cell = ("vec2<u32>", "vec2(pack2x16float(v.xy), pack2x16float(v.zw))") if half else ("vec4<f32>", "v")
    strips = q4_layout.strip_counts(linear.widths, limits)
    consts = (
        *((name, value) for name, value in last.consts if name not in OF_ROWS),
        *(("HEADS", part["xq"][2]), ("KV_HEADS", part["xk"][2]), ("D", part["xq"][3])),
        *(("Q_STRIPS", strips[0]), ("KV_STRIPS", strips[1])),
        *(("TABLE", part["cos"][1]), ("HALVES", int(part.attrs["halves"])), ("CELL", cell[0]), ("PACK", cell[1])),
    )
    params = (("rows", 1), ("out_row", 0), ("pos_slot", part.slots["pos"]), ("eps", linear.eps))
    rename = tuple((name, x) for name, x in last.rename if name in ("x", "norm"))
    return replace(last, kernel=STORES_QKV[last.kernel], params=params, consts=consts, rename=rename)
