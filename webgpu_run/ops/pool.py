"""Pooling over windows of images: the mean, or the largest value and its index."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, Dims, ceil_div, prod
from .image import Params, lanes
from .limits import Limits
from .plan import Plan, need
from .spec import Args, Case, op


def _pair(values: tuple[int, ...], default: tuple[int, int] = (1, 1)) -> tuple[int, int]:
    return (values[0], values[-1]) if values else default


def _pooled(a: Args) -> tuple[Dims, tuple[int, ...]]:
    """Output dims, and kernel, stride, padding, dilation as pairs."""
    x = a["x"]
    need(len(x) in (3, 4), f"x has dims {list(x)}, expected an image")
    kernel = _pair(a.attrs["kernel"])
    stride = _pair(a.attrs["stride"], kernel)
    padding = _pair(a.attrs["padding"], (0, 0))
    dilation = _pair(a.attrs.get("dilation", ()))
    need(min(*kernel, *stride, *dilation) > 0, f"kernel {kernel}, stride {stride}, dilation {dilation}")
    sizes = []
    for n, k, s, p, d in zip(x[-2:], kernel, stride, padding, dilation, strict=True):
        room = n + 2 * p - d * (k - 1) - 1
        size = (ceil_div(room, s) if a.attrs["ceil"] else room // s) + 1
        sizes.append(size - 1 if a.attrs["ceil"] and (size - 1) * s >= n + p else size)
    need(min(sizes) > 0, f"the output of {list(x)} would have dims {sizes}")
    return (*x[:-2], *sizes), (*kernel, *stride, *padding, *dilation)


def pool_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    out, (kh, kw, sy, sx, py, px, dy, dx) = _pooled(a)
    x = t["x"].astype(np.float64)
    height, width = x.shape[-2:]
    result = np.zeros(out)
    for oy, ox in np.ndindex(*out[-2:]):
        ys = [oy * sy - py + k * dy for k in range(kh)]
        xs = [ox * sx - px + k * dx for k in range(kw)]
        block = x[..., [y for y in ys if 0 <= y < height], :][..., [v for v in xs if 0 <= v < width]]
        inside = sum(-py <= y < height + py for y in ys) * sum(-px <= v < width + px for v in xs)
        count = inside if a.attrs.get("include") else block.shape[-1] * block.shape[-2]
        result[..., oy, ox] = block.sum((-1, -2)) / (a.attrs.get("divisor") or count)
    return [result]


def _window(a: Args, out: Dims, by: tuple[int, ...]) -> Params:
    kh, kw, sy, sx, py, px, dy, dx = by
    return (("size", (*a["x"][-2:], *out[-2:])), ("taps", (kh, kw, dy, dx)), ("shift", (sy, sx, py, px)))


@op(
    "aten.avg_pool2d.default",
    "x kernel:ints stride:ints padding:ints ceil:bool include:bool divisor?:int -> out",
    reference=pool_reference,
    cases=(
        Case(
            {"x": (2, 3, 5, 7)},
            {"kernel": (3, 2), "stride": (2, 3), "padding": (1, 1), "ceil": True, "include": True, "divisor": None},
            ({"x": (1, 3, 4, 7)},),
        ),
        Case(
            {"x": (1, 1, 6, 5)},
            {"kernel": (2, 2), "stride": (), "padding": (1, 0), "ceil": False, "include": False, "divisor": None},
        ),
        Case(
            {"x": (1, 1, 4, 4)},
            {"kernel": (2,), "stride": (2,), "padding": (0,), "ceil": False, "include": True, "divisor": 3},
        ),
    ),
)
def avg_pool2d(a: Args, limits: Limits) -> Plan:
    out, by = _pooled(a)
    if not prod(out):
        return Plan((out,), (), "empty")
    consts = {"DIVISOR": int(a.attrs.get("divisor") or 0), "INCLUDE": int(bool(a.attrs.get("include")))}
    return Plan((out,), (lanes("avg_pool2d", prod(out), _window(a, out, by), limits, **consts),), "lanes")


def max_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    out, (kh, kw, sy, sx, py, px, dy, dx) = _pooled(a)
    x = t["x"].astype(np.float64)
    height, width = x.shape[-2:]
    values, places = np.zeros(out), np.zeros(out, np.int32)
    for oy, ox in np.ndindex(*out[-2:]):
        ys = [y for k in range(kh) if 0 <= (y := oy * sy - py + k * dy) < height]
        xs = [v for k in range(kw) if 0 <= (v := ox * sx - px + k * dx) < width]
        block = x[..., ys, :][..., xs].reshape(*out[:-2], -1)
        flat = np.array([y * width + v for y in ys for v in xs])
        last_nan = block.shape[-1] - 1 - np.isnan(block[..., ::-1]).argmax(-1)
        best = np.where(np.isnan(block).any(-1), last_nan, block.argmax(-1))
        values[..., oy, ox], places[..., oy, ox] = block.max(-1), flat[best]
    return [values, places]


_MAX = {"kernel": (3, 2), "stride": (2,), "padding": (1, 0), "dilation": (1, 2), "ceil": False}


_MAX_CASES = (Case({"x": (2, 3, 6, 7)}, _MAX, ({"x": (1, 3, 4, 5)},), {"index": "int32"}),)


@op(
    "aten.max_pool2d_with_indices.default",
    "x kernel:ints stride:ints padding:ints dilation:ints ceil:bool -> [out,index/int32]",
    reference=max_reference,
    cases=_MAX_CASES,
)
def max_pool2d_with_indices(a: Args, limits: Limits) -> Plan:
    """The largest values, and the index of each in its plane."""
    out, by = _pooled(a)
    if not prod(out):
        return Plan((out, out), (), "empty")
    return Plan((out, out), (lanes("max_pool2d", prod(out), _window(a, out, by), limits, INDEX=1),), "lanes")


@op(
    "aten.max_pool2d.default",
    "x kernel:ints stride:ints padding:ints dilation:ints ceil:bool -> out",
    reference=lambda a, t: max_reference(a, t)[:1],
    cases=_MAX_CASES,
)
def max_pool2d(a: Args, limits: Limits) -> Plan:
    out, by = _pooled(a)
    if not prod(out):
        return Plan((out,), (), "empty")
    return Plan((out,), (lanes("max_pool2d", prod(out), _window(a, out, by), limits, INDEX=0),), "lanes")
