"""et_vk.q8ta_conv2d and its forms: int8 convolutions, summed in integers; one invocation per output.

conv2d_q8ta_q8csw has floats on both sides and quantizes them as it reads them. conv2d_q8csw has an int8 weight only;
it becomes floats when it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..shapes import Array, Dims, align, ceil_div, prod
from . import conv, q8_linear
from .limits import Limits
from .plan import Plan, Step, fold, need
from .q8ta import stepped
from .spec import Args, Case, Packed, op

WG = 64
_HEAD = (
    "x/int8 scale:num zero:int w!:weight/int8 sums!:sums/int32 scales!:scales out_scale:num out_zero:int bias?!:bias "
    "kernel:ints stride:ints padding:ints "
)
_TAIL = "dilation:ints groups:int activation:str -> out/int8"
_FLOATS = "bias?!:bias kernel:ints stride:ints padding:ints dilation:ints groups:int -> out"


def is_depthwise(a: Args) -> bool:
    """The weight of a depthwise convolution has dims [height, width, channels], others [channels, taps]."""
    return len(a["w"]) == 3


def _as_float(a: Args) -> Args:
    """The same convolution of floats: its shapes follow the same rules. Only floats keep their bias."""
    groups, (kh, kw) = a.int("groups"), a.attrs["kernel"]
    turned, out = "out_padding" in a.attrs, a["w"][2 if is_depthwise(a) else 0]
    w = (a["x"][1], out // groups, kh, kw) if turned else (out, a["x"][1] // groups, kh, kw)
    dims = {"x": a["x"], "w": w} | ({"bias": (out,)} if "bias" in a and "scale" not in a.attrs else {})
    return Args(dims, {"out_padding": (0, 0), **a.attrs, "transposed": turned})


def is_float(a: Args) -> bool:
    return "out_scale" not in a.attrs


def _taps(a: Args, w: Array) -> Array:
    """The weight in PyTorch's order of dims; rows of ours are [height, width, input channels of the group], padded."""
    channels, groups, (kh, kw) = a["x"][1], a.int("groups"), a.attrs["kernel"]
    inner = channels // groups
    if is_depthwise(a):
        w = w.transpose(2, 0, 1)[:, None]
    else:
        w = w[:, : kh * kw * inner].reshape(-1, kh, kw, inner).transpose(0, 3, 1, 2)
    if "out_padding" in a.attrs:
        w = w.reshape(groups, -1, inner, kh, kw).swapaxes(1, 2).reshape(channels, -1, kh, kw)
    return w


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    x = stepped(t["x"].astype(np.float32), 1 / a.num("scale"), a.int("zero")) if is_float(a) else t["x"]
    sums = conv.reference(_as_float(a), {"x": x.astype(np.int64) - a.int("zero"), "w": _taps(a, t["w"])})[0]
    sums, n = sums.transpose(0, 2, 3, 1), sums.shape[1]
    bias = t["bias"][:n] if "bias" in a else None
    if is_float(a):
        out = sums * (a.num("scale") * t["scales"][:n].astype(np.float64)) + (0 if bias is None else bias)
    else:
        out = q8_linear.requantized(a, sums, t["scales"][:n], bias)
    return [out.transpose(0, 3, 1, 2)]


def _dequantized(a: Args, t: Mapping[str, Array]) -> Array:
    w = _taps(a, t["w"])
    return w.astype(np.float32) * t["scales"].astype(np.float32)[: len(w), None, None, None]


def weight_only(a: Args, t: Mapping[str, Array]) -> list[Array]:
    given = {"x": t["x"], "w": _dequantized(a, t)} | ({"bias": t["bias"][: a["w"][0]]} if "bias" in a else {})
    return conv.reference(_as_float(a), given)


def pack_floats(a: Args, t: Mapping[str, Array], limits: Limits) -> Mapping[str, Packed]:
    w = _dequantized(a, t)
    return conv.pack(_as_float(a), {"w": w}, limits) or {"w": Packed(w)}


def pack(a: Args, t: Mapping[str, Array], limits: Limits) -> dict[str, Packed]:
    """Whole words for each output channel; those of a depthwise weight are brought together."""
    w = t["w"]
    if is_depthwise(a):
        w = w.reshape(-1, w.shape[2]).T
    return q8_linear.pack(a, {"w": w}, limits)


def _case(
    x: Dims, out: int, kernel: Dims, *live: Dims, bias: bool = True, depthwise: bool = False, **attrs: Any
) -> Case:
    given = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1, **attrs}
    wide = align(out, 4)
    w = (*kernel, out) if depthwise else (out, align(prod(kernel) * x[1] // int(given["groups"]), 4))
    dims: dict[str, Dims] = {"x": x, "w": w, "sums": (wide,), "scales": (wide,)} | ({"bias": (wide,)} if bias else {})
    numbers = {"scale": 0.024, "zero": -14, "out_scale": 1.3, "out_zero": 7, "kernel": kernel}
    dtypes = {"x": "int8", "w": "int8", "sums": "int32", "out": "int8"}
    return Case(dims, {**numbers, **given}, tuple({"x": shape} for shape in live), dtypes)


def _with(case: Case, activation: str = "none") -> Case:
    return replace(case, attrs={**case.attrs, "activation": activation})


def _floats(case: Case, *, weight_only: bool = False) -> Case:
    """The same with floats as input and output."""
    dims = {name: shape for name, shape in case.dims.items() if name != "sums" or not weight_only}
    drop = ("scale", "zero", "out_scale", "out_zero") if weight_only else ("out_scale", "out_zero")
    attrs = {name: value for name, value in case.attrs.items() if name not in drop}
    return Case(dims, attrs, case.live, {"w": "int8"} | ({} if weight_only else {"sums": "int32"}))


_PLAIN = _case((2, 3, 7, 9), 5, (2, 3), (1, 3, 4, 9), stride=(1, 2), padding=(1, 0), dilation=(2, 1))
_GROUPS = _case((1, 6, 5, 4), 9, (3, 3), (1, 6, 3, 4), groups=3, padding=(1, 1), bias=False)
_DEPTHWISE = _case((2, 8, 7, 9), 8, (3, 2), (1, 8, 4, 9), stride=(2, 1), padding=(1, 1), groups=8, depthwise=True)


@op(
    "et_vk.q8ta_conv2d.default et_vk.q8ta_conv2d_pw.default et_vk.q8ta_conv2d_general.default "
    "et_vk.q8ta_conv2d_im2col.default",
    _HEAD + _TAIL,
    reference=reference,
    pack=pack,
    make=q8_linear.make_scaled,
    cases=(
        _with(_PLAIN),
        _with(_GROUPS, "relu"),
        _with(_case((1, 8, 3, 5), 4, (1, 1), (1, 8, 1, 2))),
    ),
)
@op(
    "et_vk.conv2d_q8ta_q8csw_q8to.default et_vk.conv2d_q8ta_q8csw_q8to_dw.default",
    _HEAD + "dilation:ints groups:int -> out/int8",
    reference=reference,
    pack=pack,
    make=q8_linear.make_scaled,
    cases=(_PLAIN, _DEPTHWISE),
)
@op(
    "et_vk.conv2d_q8ta_q8csw.default",
    "x scale:num zero:int w!:weight/int8 sums!:sums/int32 scales!:scales " + _FLOATS,
    reference=reference,
    pack=pack,
    make=q8_linear.make_scaled,
    cases=(_floats(_PLAIN), _floats(_GROUPS)),
)
@op(
    "et_vk.q8ta_conv2d_dw.default",
    _HEAD + _TAIL,
    reference=reference,
    pack=pack,
    make=q8_linear.make_scaled,
    cases=(
        _with(_DEPTHWISE),
        _with(_case((1, 4, 5, 5), 4, (3, 3), groups=4, depthwise=True, bias=False), "relu"),
    ),
)
@op(
    "et_vk.q8ta_conv2d_transposed.default",
    _HEAD + "out_padding:ints " + _TAIL,
    reference=reference,
    pack=pack,
    make=q8_linear.make_scaled,
    cases=(
        _with(
            _case((1, 4, 3, 5), 6, (3, 2), (1, 4, 2, 5), stride=(2, 3), padding=(1, 0), out_padding=(1, 0), groups=2)
        ),
        _with(_case((2, 3, 4, 4), 5, (3, 3), stride=(2, 2), padding=(1, 1), out_padding=(0, 0), bias=False), "relu"),
    ),
)
def q8ta_conv2d(a: Args, limits: Limits) -> Plan:
    x, w, groups, kernel = a["x"], a["w"], a.int("groups"), a.attrs["kernel"]
    need(len(x) == 4 and len(kernel) == 2, f"x {list(x)}, kernel {list(kernel)}: two spatial dims are supported")
    need(groups > 0 and x[1] % groups == 0, f"{x[1]} channels in {groups} groups")
    inner, plain = x[1] // groups, _as_float(a)
    taps = prod(kernel) * inner
    if is_depthwise(a):
        need(inner == 1 and w[:2] == tuple(kernel), f"the weight has dims {list(w)}, expected {[*kernel, groups]}")
    else:
        need(taps <= w[1] <= align(taps, 4), f"rows of {w[1]} weights for {taps} products")
    out, by = conv.out_dims(plain), conv.per_dim(plain)
    need(min(out) >= 0, f"the output would have dims {list(out)}")
    need(out[1] % groups == 0, f"{out[1]} channels in {groups} groups")
    q8_linear.check_columns(a, out[1])
    need(a.num("scale") > 0, f"scale {a.num('scale')}")
    if not is_float(a):
        q8_linear.check_quantized(a, taps)
    count, turned = prod(out), bool(plain.attrs["transposed"])
    if not count:
        return Plan((out,), (), "empty")
    step = Step(
        "conv2d_q8",
        (
            ("count", count),
            ("size", (*x[2:], *out[2:])),
            ("taps", (*kernel, *by["dilation"])),
            ("shift", (*by["stride"], *by["padding"])),
            ("channels", (inner, out[1] // groups, x[1], out[1])),
            ("words", ceil_div(taps if is_depthwise(a) else w[1], 4)),
            ("zero", a.int("zero")),
            ("scale", a.num("scale")),
            ("inverse", 1 / a.num("scale" if is_float(a) else "out_scale")),
            ("out_zero", 0 if is_float(a) else a.int("out_zero")),
        ),
        fold(ceil_div(count, WG), limits, f"{count} outputs"),
        (
            ("WG", WG),
            ("BIAS", int("bias" in a)),
            ("RELU", int(a.attrs.get("activation") == "relu")),
            ("TRANSPOSED", int(turned)),
            ("FLOATS", int(is_float(a))),
            ("T", "f32" if is_float(a) else "i32"),
        ),
        work=(4 * (prod(x) + count) + prod(w), 2 * count * taps),
    )
    return Plan((out,), (step,), "transposed" if turned else "direct")


@op(
    "et_vk.conv2d_q8csw.default",
    "x w!:weight/int8 scales!:scales " + _FLOATS,
    reference=weight_only,
    pack=pack_floats,
    make=q8_linear.make_scaled,
    cases=(_floats(_PLAIN, weight_only=True), _floats(_GROUPS, weight_only=True)),
)
def conv2d_q8csw(a: Args, limits: Limits) -> Plan:
    taps = prod(a.attrs["kernel"]) * a["x"][1] // a.int("groups")
    need(
        len(a["w"]) == 2 and taps <= a["w"][1] <= align(taps, 4), f"the weight has dims {list(a['w'])}, {taps} products"
    )
    q8_linear.check_columns(a, a["w"][0])
    return conv.convolution(_as_float(a), limits)
