"""Convolutions in one or two dims, also dilated, grouped, transposed or clamped.

An invocation computes a block of channels at a few places. Transposed ones, groups of few channels, and
weights that the graph computes have one invocation per output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..shapes import Array, Dims, ceil_div, prod
from . import strips
from .limits import Limits
from .plan import Plan, Step, fold, need
from .spec import Args, Case, Packed, op

WG = 64
SCHEMA = "x w:weight bias?:bias stride:ints padding:ints dilation:ints transposed:bool out_padding:ints groups:int"
NAMES = ("stride", "padding", "dilation", "out_padding")


def per_dim(a: Args) -> dict[str, tuple[int, ...]]:
    """Stride, padding, dilation and output padding, each with one entry per spatial dim."""
    rank = len(a["x"]) - 2
    lists = {}
    for name in NAMES:
        given = a.attrs.get(name, (0,))  # out_padding is not an argument of all forms
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
        if a.attrs.get("transposed"):
            sizes.append((n - 1) * stride - 2 * pad + span + by["out_padding"][i] + 1)
        else:
            sizes.append((n + 2 * pad - span - 1) // stride + 1)
    return (x[0], w[1] * a.int("groups") if a.attrs.get("transposed") else w[0], *sizes)


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    """A sum over the taps of the kernel, each a matrix product over channels at a shifted place."""
    x, w, by, out = t["x"].astype(np.float64), t["w"].astype(np.float64), per_dim(a), out_dims(a)
    groups, turned = a.int("groups"), bool(a.attrs.get("transposed"))
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
            if -1 in at and turned:
                continue
            for g in range(groups):
                part = x[(slice(None), slice(g * per_in, (g + 1) * per_in), *at)]
                part = np.zeros_like(part) if -1 in at else part  # the padding is zeros
                if turned:
                    taps = w[(slice(g * per_in, (g + 1) * per_in), slice(None), *tap)]
                else:
                    taps = w[(slice(g * per_out, (g + 1) * per_out), slice(None), *tap)].T
                result[(slice(None), slice(g * per_out, (g + 1) * per_out), *place)] += part @ taps
    if "bias" in a:
        result += t["bias"].astype(np.float64).reshape(1, -1, *(1,) * (len(out) - 2))
    low, high = a.num("low", -np.inf), a.num("high", np.inf)
    return [np.clip(result, low, high)]


def block(a: Args, limits: Limits) -> tuple[int, int]:
    """Places and quarters of channels that an invocation computes; (1, 0) if it computes one output.

    They do not depend on the size of the image, because weights are packed once. Software adapters have no use for many
    invocations, but loads are slow there, and larger blocks need fewer. Layers with many channels have small images, so
    on a GPU their blocks are small.
    """
    channels = a["w"][0] // a.int("groups")
    if a.attrs.get("transposed") or channels < 4 or a.attrs.get("computed"):
        return 1, 0
    if limits.profile.images:
        return 8, 4 if channels >= 16 else 2 if channels >= 8 else 1
    return 4, 2 if 8 <= channels < 256 else 1


def is_strips(a: Args, limits: Limits) -> bool:
    """Whether the weight is packed as strips of output channels."""
    w, groups = a["w"], a.int("groups")
    if a.attrs.get("transposed") or a.attrs.get("computed"):
        return False
    return strips.fits(w[0] // groups, prod(w[1:]), groups, limits)


def pack(a: Args, constants: Mapping[str, Array], limits: Limits) -> Mapping[str, Packed]:
    """Weights as conv2d_block.wgsl reads them; whole blocks, padded with zeros."""
    by, groups = 4 * block(a, limits)[1], a.int("groups")
    if not by:
        return {}
    w = constants["w"].astype(np.float32)
    w = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1)
    if is_strips(a, limits):
        return {"w": strips.pack(w.swapaxes(2, 3).reshape(groups, w.shape[1], -1), limits)}
    w = np.pad(w, ((0, 0), (0, -w.shape[1] % by), (0, 0), (0, 0)))
    w = w.reshape(groups * w.shape[1] // by, by, *w.shape[2:])
    return {"w": Packed(np.ascontiguousarray(w.transpose(0, 2, 3, 1)))}


def _case(
    x: Dims, w: Dims, live: tuple[Dims, ...] = (), *, bias: bool = True, plain: bool = False, **attrs: Any
) -> Case:
    """Without the arguments of a transposed convolution if `plain`."""
    rank = len(x) - 2
    defaults = {name: (int(name in ("stride", "dilation")),) * rank for name in NAMES}
    given = {**defaults, "transposed": False, "groups": 1, **attrs}
    out = w[1] * int(given["groups"]) if given["transposed"] else w[0]
    dims = {"x": x, "w": w} | ({"bias": (out,)} if bias else {})
    if plain:
        del given["transposed"], given["out_padding"]
    return Case(dims, given, tuple({"x": shape} for shape in live))


_CASES = (
    _case((2, 3, 9), (4, 3, 3), ((1, 3, 5), (2, 3, 3)), stride=(2,), padding=(1,)),
    _case((1, 4, 11), (4, 1, 5), ((1, 4, 6),), groups=4, bias=False),
    _case((2, 5, 6, 7), (22, 5, 3, 3), ((1, 5, 3, 4),), padding=(1, 1)),
    _case((1, 4, 5, 5), (20, 2, 1, 1), groups=2, bias=False),
    _case((2, 6, 5, 7), (84, 3, 3, 2), ((1, 6, 3, 4), (2, 6, 3, 2)), groups=2, padding=(1, 0), stride=(2, 1)),
    _case((2, 5, 4, 3), (130, 5, 2, 2), ((1, 5, 2, 3),)),
    _case((1, 4, 4, 3), (17, 4, 3, 3), ((1, 4, 3, 3),)),
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


def _limit(x: float) -> float:
    """x in f32: a file may have the largest float64 where it means no limit."""
    with np.errstate(over="ignore"):
        return float(np.float32(x))


@op(
    "aten.convolution.default et_vk.conv2d_gemm.default",
    f"{SCHEMA} -> out",
    reference=reference,
    pack=pack,
    cases=_CASES,
)
@op(
    "et_vk.conv_with_clamp.default conv_with_clamp.default",
    f"{SCHEMA} low?:num high?:num -> out",
    reference=reference,
    pack=pack,
    cases=(
        _case((1, 4, 8, 8), (8, 4, 3, 3), ((1, 4, 5, 8),), padding=(1, 1), low=0, high=0.6),
        _case((2, 6, 5), (9, 2, 3), ((1, 6, 4),), groups=3, low=-0.5),
        _case((1, 2, 5), (3, 2, 3), low=0, high=1.7976931348623157e308),
    ),
)
@op(
    "et_vk.conv1d_dw.default et_vk.conv1d_pw.default",
    "x w!:weight bias?:bias stride:ints padding:ints dilation:ints groups:int low?:num high?:num -> out",
    reference=reference,
    pack=pack,
    cases=(
        _case((1, 4, 11), (4, 1, 5), ((1, 4, 6),), plain=True, groups=4, padding=(2,), low=-0.5),
        _case((2, 6, 5), (9, 6, 1), ((1, 6, 3),), plain=True, bias=False),
    ),
)
def convolution(a: Args, limits: Limits) -> Plan:
    x, w, groups, turned = a["x"], a["w"], a.int("groups"), bool(a.attrs.get("transposed"))
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
    params = (
        ("size", (ih, iw, oh, ow)),
        ("taps", (kh, kw, dy, dx)),
        ("shift", (sy, sx, py, px)),
        ("channels", (x[1] // groups, out[1] // groups, x[1], out[1])),
        ("low", _limit(a.num("low", -np.inf))),
        ("high", _limit(a.num("high", np.inf))),
    )
    work = (4 * (prod(x) + prod(w) + count), 2 * count * kh * kw * x[1] // groups)
    rename = () if "bias" in a else (("bias", "w"),)
    bias, (places, quarters) = ("BIAS", int("bias" in a)), block(a, limits)
    if not quarters:
        consts = (("WG", WG), bias, ("TRANSPOSED", int(turned)))
        grid = fold(ceil_div(count, WG), limits, f"{count} outputs")
        step = Step("conv2d", (("count", count), *params), grid, consts, rename=rename, work=work)
        return Plan((out,), (step,), "transposed" if turned else "direct")
    if is_strips(a, limits):
        return Plan((out,), (strips.convolution(out, groups, w[1], params, bias, work, limits),), "strips")
    per_image = ceil_div(oh * ow, places)
    wg = min(WG, max(8, 1 << (out[0] * per_image - 1).bit_length()))
    per_block = ceil_div(out[0] * per_image, wg)
    blocks = groups * ceil_div(out[1] // groups, 4 * quarters)
    lanes = (("lanes", out[0] * per_image), ("per_block", per_block), ("per_image", per_image))
    blocked = (("WG", wg), ("PLACES", places), ("CHANNELS", quarters), bias)
    grid = fold(per_block * blocks, limits, f"{count} outputs")
    step = Step("conv2d_block", (*lanes, *params), grid, blocked, rename=rename, work=work)
    return Plan((out,), (step,), f"blocks of {4 * quarters}")
