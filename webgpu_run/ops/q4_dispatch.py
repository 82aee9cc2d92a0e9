"""The dispatches that multiply activations by 4-bit weights; q4_layout.py describes the weights."""

from __future__ import annotations

from typing import NamedTuple

from ..shapes import align, ceil_div
from .limits import Limits
from .plan import STAGED_ROWS, Grid, Step, fold
from .q4_activations import ActivationSource, Form, Linear, bound_rows, source
from .q4_gpu import TILE_QUADS, few_consts, few_kernel, tile_consts, uses_tiles
from .q4_layout import Layout, layout, paired_width, strip_counts


class Kernels(NamedTuple):
    """The kernels of software adapters that read activations in one form. An empty name: no adapter gets it."""

    linear: str
    linear_subgroup: str
    attention: str  # needs subgroups


KERNELS = {
    Form.UNIFORM: Kernels("linear_q4gsw_strips", "linear_q4gsw_strips_subgroup", "attention_q4gsw"),
    Form.TEXTURE: Kernels("", "linear_q4gsw_rows", "attention_q4gsw_rows"),
    Form.ROUNDED_IN_KERNEL: Kernels("linear_dq8ca_staged", "linear_dq8ca_fresh", "attention_dq8ca_fresh"),
    Form.PACKED: Kernels("linear_dq8ca_strips", "linear_dq8ca_strips_subgroup", "attention_dq8ca"),
    Form.PACKED_TEXTURE: Kernels("", "linear_dq8ca_rows", "attention_dq8ca_rows"),
}


def packed_widths(linear: Linear) -> tuple[int, ...]:
    """Columns of each weight in the texture; gate and up of a SwiGLU are one."""
    return (paired_width(linear.widths[0]),) if linear.swiglu else linear.widths


def layout_of(linear: Linear, limits: Limits) -> Layout:
    return layout(linear.k, linear.group, packed_widths(linear), limits)


def strip_grid(strips: int, rows: int, limits: Limits) -> Grid:
    """Workgroups of q4_strips.wgsl: rows in x, strips in y and z. Workgroups with the same strips are then neighbours,
    so the weights are still in the cache."""
    return (rows, *fold(strips, limits, f"{strips} strips")[:2])


def rows_per_workgroup(m: int, window: int | None, limits: Limits) -> int:
    """Rows per workgroup of q4_strips.wgsl for m rows, of which a dispatch may bind a `window` only.

    A workgroup loads and unpacks weights once for all of its rows, which costs as much as four fifths of a row. Each
    number of rows is a kernel of its own, so only a few are used.
    """
    m = min(m, window or m)
    if m <= 4:
        return m
    fitting = [n for n in (8, 6, 4, 3) if n <= limits.profile.rows and (window is None or align(m, n) <= window)]
    return min(fitting, key=lambda n: ceil_div(m, n) * (5 * n + 4))


def strips_per_workgroup(rows: int, where: Layout, limits: Limits) -> int:
    """Strips per workgroup of q4_strips.wgsl, which share the activations that it loads.

    One row takes the strips of a texture row, or four. Several rows take two, because code is unrolled for each row and
    strip; a profile with long code takes those of a texture row for up to six rows.
    """
    if rows == 1 and where.strips_per_row < 3 and where.strips % 8 == 0:
        return 4
    long = limits.profile.rows > 4 and rows <= 6
    return max(where.strips_per_row, 2) if rows == 1 or long else 2


def strip_consts(linear: Linear, m: int, rows_from: ActivationSource, limits: Limits) -> dict[str, int]:
    """The compile-time constants of q4_strips.wgsl."""
    k, where = linear.k, layout_of(linear, limits)
    form, window = rows_from.form, bound_rows(m, k, limits, itemsize=rows_from.itemsize)
    rows = rows_per_workgroup(m, None if rows_from.in_texture or rows_from.is_whole else window, limits)
    return {
        **where.consts(),
        "ROWS": rows,
        "STRIPS": strips_per_workgroup(rows, where, limits),
        **({"STAGED_ROWS": STAGED_ROWS} if rows_from.in_texture else {}),
        **({"FACTORS": int(rows_from.has_factors)} if form is Form.TEXTURE else {}),
        **({"WINDOW": window} if form in (Form.UNIFORM, Form.PACKED) else {}),
        **({"NORM": int(bool(rows_from.norm))} if form not in (Form.PACKED, Form.PACKED_TEXTURE) else {}),
    }


def linear_steps(linear: Linear, m: int, limits: Limits) -> tuple[Step, ...]:
    """m rows times one to three packed weights."""
    k, widths = linear.k, linear.widths
    where, strips = layout_of(linear, limits), strip_counts(packed_widths(linear), limits)
    rows_from = source(linear, m, limits)
    steps = list(rows_from.steps)
    outputs = [widths[0], 0, 0] if linear.swiglu else [*widths, 0, 0][:3]
    second, third = strips[0], strips[0] + (strips[1] if len(strips) > 1 else 2**31)
    in_bytes = linear.rounded and limits.dot4
    if not rows_from.in_storage:
        kernels = KERNELS[rows_from.form]
        kernel = kernels.linear_subgroup if limits.profile.shuffle else kernels.linear
        consts = strip_consts(linear, m, rows_from, limits)
        window, rows, quads = consts.get("WINDOW") or m, consts["ROWS"], consts["STRIPS"] * where.lanes
    elif uses_tiles(m, limits):
        kernel = "linear_dq8ca_tiled" if in_bytes else "linear_q4gsw_tiled"
        consts = tile_consts(m, where) | ({} if in_bytes else {"SIZES": int(linear.rounded)})
        window, rows, quads = m, 8 * consts["TALL"], TILE_QUADS
    else:
        consts = few_consts(m, where, bool(rows_from.norm), linear.rounded, limits)
        kernel = few_kernel(consts, in_bytes=in_bytes)
        window, rows, quads = m, consts["ROWS"], consts["QUADS"]
    # EDGE = 0: every strip is complete, so no store needs a bounds check. One row keeps the check, because it costs
    # nothing, and so does a folded grid, which may have workgroups past the last strip.
    columns, groups = where.lanes * (2 if linear.swiglu else 4), ceil_div(where.strips * where.lanes, quads)
    complete = m > 1 and where.strips * where.lanes % quads == 0 and not any(n % columns for n in widths)
    complete = complete and groups <= limits.max_workgroups
    consts |= {"OUTS": len(linear.outs), "BIAS": int(linear.bias), "RESIDUAL": int(linear.residual)}
    lane_columns = 2 if linear.swiglu else 4
    wide = lane_columns if not any(n % lane_columns for n in widths) else 1
    consts |= {"SWIGLU": int(linear.swiglu), "EDGE": int(not complete), "WIDE": wide}
    rename = [("x", rows_from.x), ("norm", rows_from.norm), ("res", "res" if linear.residual else "")]
    rename += [(f"out{i}", name) for i, name in enumerate(linear.outs)]
    for first in range(0, m, window):
        live = min(window, m - first)
        steps.append(
            Step(
                kernel,
                (
                    *(("n0", outputs[0]), ("n1", outputs[1]), ("n2", outputs[2])),
                    *(("strip1", second), ("strip2", third)),
                    *(("rows", live), ("out_row", first), ("eps", linear.eps)),
                ),
                strip_grid(groups, ceil_div(live, rows), limits),
                tuple(consts.items()),
                rows_from.window(first, window, k),
                tuple(rename),
                (where.nbytes + 4 * live * (k + sum(outputs)), 2 * live * k * sum(widths)),
                rows_from.stage,
            )
        )
    return tuple(steps)
