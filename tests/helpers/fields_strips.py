"""The dispatches of linears and convolutions whose f32 weights are strips of a texture, worked out a second time."""

from __future__ import annotations

from typing import Any

from webgpu_run.ops.limits import Limits
from webgpu_run.ops.spec import Args
from webgpu_run.shapes import Dims

from helpers.fields_moves import Want, size, up


def width(limits: Limits) -> int:
    return max(2**n for n in range(32) if 2**n <= limits.max_texture)


def are_used(columns: int, limits: Limits) -> bool:
    """Weights of the cases are smaller than the largest texture."""
    return limits.profile.shuffle and columns > 15


def linear(a: Args, rows: int, limits: Limits) -> tuple[str, list[Want]]:
    (n, k), m = a["w"], size(a["x"][:-1])
    params = {"m": m, "n": n, "k": k, "across": up(m, rows), "strips": up(n, 32)}
    blocks = up(m, rows) * up(n, 32)
    side = 2 if rows == 8 and up(n, 32) % 2 == 0 and blocks > 31 else 1
    consts = {"ROWS": rows, "EDGE": int(k / 8 != k // 8), "BIAS": int("bias" in a), "WIDTH": width(limits), "WG": 0}
    return f"{'gemm' if m > 1 else 'gemv'} strips", [
        Want("linear_strips", params, blocks // side, consts=consts | {"STRIPS": side})
    ]


def convolution(a: Args, out: Dims, params: dict[str, Any], limits: Limits) -> tuple[str, list[Want]]:
    groups, places = a.int("groups"), size(out[2:])
    strips = up(out[1] // groups, 32)
    side = {1: 1, 2: 2, 3: 3, 4: 4, 5: 1}[strips]
    step = 1 if places == 1 else 8
    each = up(places, step)
    deep = {0: 4, 1: 1, 2: 1, 3: 1}[a["w"][1] % 4]
    params = params | {"per_image": each, "per_strip": out[0] * each, "strips": strips}
    consts = {"BIAS": int("bias" in a), "STRIPS": side, "PLACES": step, "DEEP": deep, "WIDTH": width(limits), "WG": 0}
    return "strips", [Want("conv2d_strips", params, out[0] * each * groups * strips // side, consts=consts)]
