"""Convolutions in one or two dims, also dilated, grouped, transposed or clamped: one invocation per output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..shapes import Array, Dims, ceil_div, prod
from .limits import Limits
from .plan import Plan, Step, fold, need
from .spec import Args, Case, op

WG = 64
LARGEST = 3.4028234e38
SCHEMA = "x w:weight bias?:bias stride:ints padding:ints dilation:ints transposed:bool out_padding:ints groups:int"
NAMES = ("stride", "padding", "dilation", "out_padding")


def per_dim(a: Args) -> dict[str, tuple[int, ...]]:
    """Stride, padding, dilation and output padding, each with one entry per spatial dim."""
    rank = len(a["x"]) - 2
    lists = {}
    for name in NAMES:
        given = a.attrs[name]
        need(len(given) in (1, rank), f"{name} {list(given)} for {rank} dims")
        lists[name] = tuple(given) * rank if len(given) == 1 else tuple(given)
    return lists


def out_dims(a: Args) -> Dims:
    x, w, by = a["x"], a["w"], per_dim(a)
    sizes = []
    for i, (n, k) in enumerate(zip(x[2:], w[2:], strict=True)):
        stride, pad, dilation = by["stride"][i], by["padding"][i], by["dilation"][i]
        need(stride > 0 and dilation > 0, f"stride {stride}, dilation {dilation}")
        span = dilation * (k - 1)
        if a.attrs["transposed"]:
            sizes.append((n - 1) * stride - 2 * pad + span + by["out_padding"][i] + 1)
        else:
            sizes.append((n + 2 * pad - span - 1) // stride + 1)
    return (x[0], w[1] * a.int("groups") if a.attrs["transposed"] else w[0], *sizes)


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    """A sum over the taps of the kernel, each a matrix product over channels at a shifted place."""
    x, w, by, out = t["x"].astype(np.float64), t["w"].astype(np.float64), per_dim(a), out_dims(a)
    groups, turned = a.int("groups"), bool(a.attrs["transposed"])
    result = np.zeros(out)
    per_in, per_out = x.shape[1] // groups, out[1] // groups
    for place in np.ndindex(*out[2:]):
        for tap in np.ndindex(*w.shape[2:]):
            at = []
            for i, (o, k) in enumerate(zip(place, tap, strict=True)):
                shift = k * by["dilation"][i]
                n = o + by["padding"][i] - shift if turned else o * by["stride"][i] - by["padding"][i] + shift
                whole, rest = divmod(n, by["stride"][i]) if turned else (n, 0)
                at.append(whole if rest == 0 and 0 <= whole < x.shape[2 + i] else -1)
            if -1 in at:
                continue
            for g in range(groups):
                block = x[(slice(None), slice(g * per_in, (g + 1) * per_in), *at)]
                if turned:
                    taps = w[(slice(g * per_in, (g + 1) * per_in), slice(None), *tap)]
                else:
                    taps = w[(slice(g * per_out, (g + 1) * per_out), slice(None), *tap)].T
                result[(slice(None), slice(g * per_out, (g + 1) * per_out), *place)] += block @ taps
    if "bias" in a:
        result += t["bias"].astype(np.float64).reshape(1, -1, *(1,) * (len(out) - 2))
    low, high = a.num("low", -np.inf), a.num("high", np.inf)
    return [np.clip(result, low, high)]


def _case(x: Dims, w: Dims, live: tuple[Dims, ...] = (), *, bias: bool = True, **attrs: Any) -> Case:
    rank = len(x) - 2
    defaults = {name: (int(name in ("stride", "dilation")),) * rank for name in NAMES}
    given = {**defaults, "transposed": False, "groups": 1, **attrs}
    out = w[1] * int(given["groups"]) if given["transposed"] else w[0]
    dims = {"x": x, "w": w} | ({"bias": (out,)} if bias else {})
    return Case(dims, given, tuple({"x": shape} for shape in live))


_CASES = (
    _case((2, 3, 9), (4, 3, 3), ((1, 3, 5), (2, 3, 3)), stride=(2,), padding=(1,)),
    _case((1, 4, 11), (4, 1, 5), ((1, 4, 6),), groups=4, bias=False),
    _case((2, 3, 7, 9), (5, 3, 2, 3), ((1, 3, 4, 9),), stride=(1, 2), padding=(1, 0), dilation=(2, 1)),
    _case(
        (1, 4, 3, 5),
        (4, 2, 3, 2),
        ((1, 4, 2, 5),),
        stride=(2, 3),
        padding=(1, 0),
        out_padding=(1, 0),
        groups=2,
        transposed=True,
    ),
)


@op(
    "aten.convolution.default",
    f"{SCHEMA} -> out",
    reference=reference,
    cases=_CASES,
)
@op(
    "et_vk.conv_with_clamp.default",
    f"{SCHEMA} low?:num high?:num -> out",
    reference=reference,
    cases=(
        _case((1, 4, 8, 8), (8, 4, 3, 3), ((1, 4, 5, 8),), padding=(1, 1), low=0, high=0.6),
        _case((2, 6, 5), (9, 2, 3), ((1, 6, 4),), groups=3, low=-0.5),
    ),
)
def convolution(a: Args, limits: Limits) -> Plan:
    x, w, groups, turned = a["x"], a["w"], a.int("groups"), bool(a.attrs["transposed"])
    need(len(x) == len(w) and len(x) in (3, 4), f"x {list(x)}, weight {list(w)}: one or two spatial dims are supported")
    channels = w[0] if turned else w[1] * groups
    need(groups > 0 and x[1] == channels and w[0] % groups == 0, f"{list(x)} does not fit {groups} groups of {list(w)}")
    out, by = out_dims(a), per_dim(a)
    need(min(out) >= 0, f"the output would have dims {list(out)}")
    need("bias" not in a or prod(a["bias"]) >= out[1], f"bias is shorter than {out[1]} channels")
    count = prod(out)
    if not count:
        return Plan((out,), (), "empty")

    def two(dims: Dims, fill: int) -> Dims:
        return (fill, *dims) if len(dims) == 1 else dims

    (ih, iw), (oh, ow), (kh, kw) = two(x[2:], 1), two(out[2:], 1), two(w[2:], 1)
    (sy, sx), (py, px), (dy, dx) = two(by["stride"], 1), two(by["padding"], 0), two(by["dilation"], 1)
    step = Step(
        "conv2d",
        (
            ("count", count),
            ("size", (ih, iw, oh, ow)),
            ("taps", (kh, kw, dy, dx)),
            ("shift", (sy, sx, py, px)),
            ("channels", (x[1] // groups, out[1] // groups, x[1], out[1])),
            ("low", max(a.num("low", -LARGEST), -LARGEST)),
            ("high", min(a.num("high", LARGEST), LARGEST)),
        ),
        fold(ceil_div(count, WG), limits, f"{count} outputs"),
        (("WG", WG), ("BIAS", int("bias" in a)), ("TRANSPOSED", int(turned))),
        rename=() if "bias" in a else (("bias", "w"),),
        work=(4 * (prod(x) + prod(w) + count), 2 * count * kh * kw * x[1] // groups),
    )
    return Plan((out,), (step,), "transposed" if turned else "direct")
