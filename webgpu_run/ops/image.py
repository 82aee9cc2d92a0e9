"""Ops on images [batch, channels, height, width]: resizing, sampling, and the anchor points of a grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..shapes import Array, Dims, ceil_div, prod
from .limits import Limits
from .plan import Plan, Step, fold, need, unsupported
from .spec import Args, Case, op

WG = 64
Params = tuple[tuple[str, int | float | tuple[int, ...]], ...]


def lanes(kernel: str, count: int, params: Params, limits: Limits, **consts: int) -> Step:
    """A dispatch with one invocation per output element."""
    grid = fold(ceil_div(count, WG), limits, f"{count} outputs")
    return Step(kernel, (("count", count), *params), grid, (("WG", WG), *consts.items()), work=(8 * count, 8 * count))


def _resized(a: Args) -> Dims:
    """The output dims: the size that is given, or each dim times its scale, rounded down."""
    x, size, scales = a["x"], a.attrs.get("size"), a.attrs.get("scales")
    need(len(x) == 4, f"x has dims {list(x)}, expected an image")
    need((size is None) != (scales is None), f"size {size} and scales {scales}: expected one of them")
    need(len(size or scales or ()) == 2, f"size {size}, scales {scales}: expected two numbers")
    need(all(0 < n < 2**31 for n in size or scales or ()), f"size {size}, scales {scales}: expected more than zero")
    return (*x[:2], *(size or (int(n * scale) for n, scale in zip(x[2:], scales or (), strict=True))))


def _steps(a: Args, out: Dims) -> tuple[float, float]:
    """How far two neighbours of the output are apart in the input, as PyTorch has it: a scale that is given counts.

    The scale is ignored if the size stays the same and, in the nearest form, if it doubles.
    """
    found = []
    for n, m, scale in zip(a["x"][2:], out[2:], a.attrs.get("scales") or (0, 0), strict=True):
        if a.attrs.get("corners"):
            found.append((n - 1) / (m - 1) if m > 1 else 0.0)
        elif not scale or m == n or ("corners" not in a.attrs and m == 2 * n):
            found.append(n / m)
        else:
            found.append(1 / scale)
    return float(np.float32(found[0])), float(np.float32(found[1]))


def resize_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    x, out = t["x"].astype(np.float64), _resized(a)
    for axis, step in zip((2, 3), _steps(a, out), strict=True):
        n, index = x.shape[axis], np.arange(out[axis])
        if "corners" not in a.attrs:
            x = x.take(np.minimum(np.floor(index.astype(np.float32) * np.float32(step)).astype(int), n - 1), axis)
            continue
        place = np.clip(index * step if a.attrs["corners"] else (index + 0.5) * step - 0.5, 0, n - 1)
        low = np.floor(place).astype(int)
        part = (place - low).reshape((-1, 1) if axis == 2 else (-1,))
        x = x.take(low, axis) * (1 - part) + x.take(np.minimum(low + 1, n - 1), axis) * part
    return [x]


def _up(size: Dims | None, scales: tuple[float, ...] | None, *live: Dims, **more: Any) -> Case:
    attrs = {"size": size, "scales": scales, **more}
    return Case({"x": (2, 3, 4, 5)}, attrs, tuple({"x": shape} for shape in live))


@op(
    "aten.upsample_nearest2d.vec",
    "x size?:shape scales?:nums -> out",
    reference=resize_reference,
    cases=(
        _up(None, (2.0, 3.0), (1, 3, 2, 5)),
        _up((8, 15), None),
        _up(None, (1.7, 0.6), (2, 3, 3, 5)),
        _up(None, (1.1, 2.3)),
    ),
)
def upsample_nearest(a: Args, limits: Limits) -> Plan:
    return _resize(a, limits, bilinear=0, corners=0)


@op(
    "aten.upsample_bilinear2d.vec",
    "x size?:shape corners:bool scales?:nums -> out",
    reference=resize_reference,
    cases=(
        _up(None, (2.0, 3.0), (1, 3, 2, 5), corners=False),
        _up((8, 15), None, corners=True),
        _up(None, (0.6, 2.7), (2, 3, 3, 5), corners=False),
        _up(None, (1.3, 0.5), corners=True),
    ),
)
def upsample_bilinear(a: Args, limits: Limits) -> Plan:
    return _resize(a, limits, bilinear=1, corners=int(bool(a.attrs["corners"])))


def _resize(a: Args, limits: Limits, *, bilinear: int, corners: int) -> Plan:
    out = _resized(a)
    if not prod(out):
        return Plan((out,), (), "empty")
    step_y, step_x = _steps(a, out)
    params = (("size", (*a["x"][2:], *out[2:])), ("step_y", step_y), ("step_x", step_x))
    return Plan((out,), (lanes("resize2d", prod(out), params, limits, BILINEAR=bilinear, CORNERS=corners),), "lanes")


def sample_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    x, grid = t["x"].astype(np.float64), t["grid"].astype(np.float64)
    height, width = x.shape[2:]
    out = np.zeros((*x.shape[:2], *grid.shape[1:3]))
    for b, oy, ox in np.ndindex(*grid.shape[:3]):
        px = np.clip((grid[b, oy, ox, 0] + 1) / 2 * (width - 1), 0, width - 1)
        py = np.clip((grid[b, oy, ox, 1] + 1) / 2 * (height - 1), 0, height - 1)
        x0, y0 = int(px), int(py)
        x1, y1 = min(x0 + 1, width - 1), min(y0 + 1, height - 1)
        fx, fy = px - x0, py - y0
        top = x[b, :, y0, x0] * (1 - fx) + x[b, :, y0, x1] * fx
        out[b, :, oy, ox] = top * (1 - fy) + (x[b, :, y1, x0] * (1 - fx) + x[b, :, y1, x1] * fx) * fy
    return [out]


@op(
    "aten.grid_sampler_2d.default",
    "x grid mode:int padding:int corners:bool -> out",
    reference=sample_reference,
    cases=(
        Case(
            {"x": (2, 3, 4, 5), "grid": (2, 2, 6, 2)},
            {"mode": 0, "padding": 1, "corners": True},
            ({"grid": (2, 1, 3, 2)},),
        ),
    ),
)
def grid_sampler(a: Args, limits: Limits) -> Plan:
    x, grid = a["x"], a["grid"]
    form = (a.int("mode"), a.int("padding"), bool(a.attrs["corners"]))
    unsupported(
        form == (0, 1, True),
        f"sampling of form {form} has no kernel: bilinear, border, aligned corners has",
    )
    need(len(x) == len(grid) == 4 and x[0] == grid[0] and grid[3] == 2, f"{list(x)} can't be sampled at {list(grid)}")
    out = (*x[:2], *grid[1:3])
    if not prod(out):
        return Plan((out,), (), "empty")
    params = (("channels", x[1]), ("size", (*x[2:], *out[2:])))
    return Plan((out,), (lanes("grid_sampler_2d", prod(out), params, limits),), "lanes")


def priors_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    height, width = a["x"][-2:]
    y, x = np.mgrid[:height, :width]
    return [(np.stack([x.reshape(-1), y.reshape(-1)], -1) + a.num("offset")) * a.int("stride")]


@op(
    "et_vk.grid_priors.default",
    "x/any stride:int offset:num -> out",
    reference=priors_reference,
    cases=(Case({"x": (1, 3, 5, 7)}, {"stride": 4, "offset": 0.5}, ({"x": (1, 3, 2, 3)},)),),
)
def grid_priors(a: Args, limits: Limits) -> Plan:
    height, width = a["x"][-2:]
    out = (height * width, 2)
    if not prod(out):
        return Plan((out,), (), "empty")
    params = (("width", width), ("stride", float(a.int("stride"))), ("offset", a.num("offset")))
    return Plan((out,), (lanes("grid_priors", prod(out), params, limits),), "lanes")
