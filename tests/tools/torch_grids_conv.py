"""More for compare_with_torch.py: convolutions, linears and attention that ExecuTorch has and PyTorch has not.

PyTorch computes them from their definition: integers become floats, a float convolution, and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.nn.functional import conv2d, conv_transpose2d, scaled_dot_product_attention
from torch_grids import RNG, Torch, Trial, aten, convolutions, floats, named, product, whole

Given = Mapping[str, Any]
CONV = ("x", "w", "bias", "stride", "padding", "dilation", "transposed", "out_padding", "groups")


def clamped(t: Given, a: Given) -> Any:
    """aten.convolution, not transposed unless the attributes say so, and limits."""
    full = {"transposed": False, "out_padding": (0,), **a}
    out = named(aten.convolution.default, *CONV)(t, full)
    if a.get("low") is None and a.get("high") is None:
        return out
    return out.clamp(a.get("low"), a.get("high"))


def lines() -> list[Trial]:
    """Of one dim: depthwise and pointwise."""
    found: list[Trial] = []
    for g in product(
        stride=((1,), (2,)), padding=((0,), (2,)), dilation=((1,), (2,)), low=(None, -0.5), high=(None, 1)
    ):
        for groups, w in ((4, floats(4, 1, 3)), (1, floats(6, 4, 1))):
            found.append(({"x": floats(2, 4, 11), "w": w, "bias": floats(len(w))}, {**g, "groups": groups}))
    return found


def images() -> list[Trial]:
    return [(t, {**g, "low": -0.5, "high": 2.0}) for t, g in convolutions() if np.ndim(t["x"]) == 4]


def conv_q8(t: Given, a: Given) -> Any:
    """In float64, which holds every sum of integers; rows of a weight are [height, width, channels of the group]."""
    (kh, kw), groups = a["kernel"], a["groups"]
    inner = t["x"].shape[1] // groups
    scales = t["scales"].double()
    if t["w"].ndim == 3:
        w = t["w"].permute(2, 0, 1)[:, None]
    else:
        w = t["w"][:, : kh * kw * inner].reshape(-1, kh, kw, inner).permute(0, 3, 1, 2)
    n = len(w)
    w = w.double() * scales[:n, None, None, None]
    x = t["x"].double()
    if "scale" in a:
        x = x if t["x"].dtype == torch.int8 else (x / a["scale"]).round().add(a["zero"]).clamp(-128, 127)
        x = (x - a["zero"]) * a["scale"]
    bias = t["bias"].double()[:n] if "bias" in t else None
    if "out_padding" in a:
        w = torch.cat([part.transpose(0, 1) for part in w.chunk(groups)])
        out = conv_transpose2d(x, w, bias, a["stride"], a["padding"], a["out_padding"], groups, a["dilation"])
    else:
        out = conv2d(x, w, bias, a["stride"], a["padding"], a["dilation"], groups)
    if a.get("activation") == "relu":
        out = out.relu()
    if "out_scale" not in a:
        return out.float()
    return (out / a["out_scale"]).round().add(a["out_zero"]).clamp(-128, 127).to(torch.int8)


def convolutions_q8(*, form: str, x: str = "int8", **more: tuple[Any, ...]) -> list[Trial]:
    """`form` is rows, depthwise or transposed; the weight's rows are padded to four bytes."""
    found: list[Trial] = []
    groups = {"rows": (1, 2), "depthwise": (8,), "transposed": (1, 2)}[form]
    pairs: dict[str, Any] = {"stride": ((1, 1), (2, 3)), "padding": ((0, 0), (1, 2)), "dilation": ((1, 1), (2, 1))}
    for g in product(**pairs, kernel=((3, 2), (1, 1)), groups=groups, bias=(False, True), **more):
        bias, (kh, kw) = g.pop("bias"), g["kernel"]
        n, taps = (8, 1) if form == "depthwise" else (6, kh * kw * 8 // g["groups"])
        w = whole("int8", kh, kw, 8) if form == "depthwise" else whole("int8", n, taps + -taps % 4)
        arrays = {"x": whole("int8", 2, 8, 7, 9) if x == "int8" else floats(2, 8, 7, 9), "w": w}
        arrays["scales"] = RNG.uniform(0.01, 0.1, n + -n % 4).astype(np.float32)
        arrays |= {"bias": floats(n + -n % 4)} if bias else {}
        if "scale" in g:
            arrays["sums"] = RNG.integers(-9, 9, n + -n % 4).astype(np.int32)
        found.append((arrays, g))
    return found


_IN = {"scale": (0.0231,), "zero": (-14, 3)}
_OUT = {"out_scale": (1.37,), "out_zero": (-9,)}
_ACTIVATION = {"activation": ("none", "relu")}
_ROWS = convolutions_q8(form="rows", **_IN, **_OUT, **_ACTIVATION)
_DEPTHWISE = convolutions_q8(form="depthwise", **_IN, **_OUT, **_ACTIVATION)


def linear_q8(t: Given, a: Given) -> Any:
    x = t["x"].double() if "scale" not in a else (t["x"].double() - a["zero"]) * a["scale"]
    n = len(t["w"])
    out = x @ (t["w"][:, : x.shape[-1]].double() * t["scales"].double()[:n, None]).T
    return (out + t["bias"].double()[:n] if "bias" in t else out).float()


def linears_q8(x: str, **more: tuple[Any, ...]) -> list[Trial]:
    found: list[Trial] = []
    for m, k, n in ((1, 32, 16), (5, 37, 11), (4, 30, 3)):
        for g in product(bias=(False, True), **more):
            arrays = {"x": whole("int8", m, k) if x == "int8" else floats(m, k), "w": whole("int8", n, k + -k % 4)}
            arrays["scales"] = RNG.uniform(0.01, 0.1, n).astype(np.float32)
            arrays |= {"bias": floats(n)} if g.pop("bias") else {}
            arrays |= {"sums": RNG.integers(-9, 9, n).astype(np.int32)} if x == "int8" else {}
            found.append((arrays, g))
    return found


def attend(t: Given, a: Given) -> Any:
    """PyTorch's attention over a cache, whose keys up to each query's own position are seen."""
    q, k, v = (t[n].double().transpose(1, 2) for n in ("q", "kc", "vc"))
    rows, keys = q.shape[2], k.shape[2]
    mask = torch.ones(rows, keys, dtype=torch.bool).tril(a["pos"]) if a["causal"] else t["mask"].double()
    out = scaled_dot_product_attention(q, k, v, mask, scale=a["scale"], enable_gqa=True)
    return out.transpose(1, 2).float()


def attentions() -> list[Trial]:
    found: list[Trial] = []
    for g in product(pos=(0, 3), causal=(False, True), scale=(None, 0.3), kv=(1, 2, 6)):
        cache = {n: RNG.standard_normal((1, 9, g["kv"], 8)).astype(np.float32) for n in ("kc", "vc")}
        mask = {} if g["causal"] else {"mask": RNG.standard_normal((4, 9)).astype(np.float32)}
        q = RNG.standard_normal((1, 4, 6, 8)).astype(np.float32)
        found.append(({"q": q, **cache, **mask}, {n: x for n, x in g.items() if n != "kv"}))
    return found


def without(trials: list[Trial], name: str) -> list[Trial]:
    return [(t, {n: v for n, v in g.items() if n != name}) for t, g in trials]


BY_DEFINITION: Mapping[str, tuple[Torch, list[Trial]]] = {
    "et_vk.conv2d_gemm.default": (clamped, convolutions()),
    "et_vk.conv_with_clamp.default": (clamped, images()),
    "et_vk.conv1d_dw.default": (clamped, lines()[::2]),
    "et_vk.conv1d_pw.default": (clamped, lines()[1::2]),
    "et_vk.q8ta_conv2d.default": (conv_q8, _ROWS),
    "et_vk.q8ta_conv2d_dw.default": (conv_q8, _DEPTHWISE),
    "et_vk.q8ta_conv2d_transposed.default": (
        conv_q8,
        convolutions_q8(form="transposed", out_padding=((0, 0), (0, 1)), **_IN, **_OUT, **_ACTIVATION),
    ),
    "et_vk.conv2d_q8ta_q8csw_q8to.default": (conv_q8, without(_ROWS, "activation")),
    "et_vk.conv2d_q8ta_q8csw_q8to_dw.default": (conv_q8, without(_DEPTHWISE, "activation")),
    "et_vk.conv2d_q8ta_q8csw.default": (conv_q8, convolutions_q8(form="rows", x="float32", **_IN)),
    "et_vk.conv2d_q8csw.default": (conv_q8, convolutions_q8(form="rows", x="float32")),
    "llama.custom_sdpa.default": (attend, attentions()),
    "et_vk.linear_q8csw.default": (linear_q8, linears_q8("float32")),
    "et_vk.linear_q8ta_q8csw.default": (linear_q8, linears_q8("int8", **_IN)),
}
