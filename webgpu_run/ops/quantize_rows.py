"""Quantization with scales and zero points that are tensors: one for each row, for each channel, or for all elements.

ExecuTorch writes these ops for a KV cache of 8 bits: the rows of a call are quantized, and the cache is dequantized.
torchao's ops are those of weights that no pattern recognized, with a scale for each block of elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..shapes import Array, Dims, ceil_div, prod, rows_of, wrap
from .expression import WG
from .limits import Limits
from .plan import Plan, Step, fold, need, unsupported
from .q8 import EPS, HIGH, LOW, qparams
from .spec import Args, Case, op

_RANGE = {"low": -128, "high": 127}
_INT8, _QUANTIZED = {"x": "int8", "zeros": "int32"}, {"zeros": "int32", "out": "int8"}
_ROWS = {"x": (3, 7, 5), "scales": (3, 7, 1), "zeros": (3, 7, 1)}
_LIVE_ROWS = {"x": (1, 4, 5), "scales": (1, 4, 1), "zeros": (1, 4, 1)}
_ALL = {"x": (9, 11), "scales": (), "zeros": ()}


def spread(values: Array, a: Args) -> Array:
    """Scales or zero points in f64, as they are multiplied with x: by blocks, along `axis`, or by broadcasting."""
    wide = values.astype(np.float64)
    if "block" in a.attrs:
        wide = wide.reshape([n // b for n, b in zip(a["x"], a.attrs["block"], strict=True)])
        for axis, b in enumerate(a.attrs["block"]):
            wide = wide.repeat(b, axis)
        return wide
    if "axis" in a.attrs:
        axis = wrap(a.int("axis"), len(a["x"]))
        return wide.reshape([-1 if d == axis else 1 for d in range(len(a["x"]))])
    return wide


def dequantize_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    zeros = spread(t["zeros"], a) if "zeros" in t else 0
    return [(t["x"].astype(np.float64) - zeros) * spread(t["scales"], a)]


def quantize_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    zeros = spread(t["zeros"], a) if "zeros" in t else 0
    steps = np.rint(t["x"].astype(np.float64) / spread(t["scales"], a)) + zeros
    return [np.clip(steps, *bounds(a)).astype(np.int32)]


def quantize_token_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    steps = np.rint(t["x"].astype(np.float64) / spread(t["scales"], a) + spread(t["zeros"], a))
    return [np.clip(steps, a.int("low"), a.int("high")).astype(np.int32)]


def bounds(a: Args) -> tuple[float, float]:
    """The quantized range: as given, else that of the dtype."""
    low, high = (0, 255) if a.dtypes.get("out") == "uint8" else (LOW, HIGH)
    return a.num("low", low), a.num("high", high)


def make(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Scales with which some elements are beyond either end of the range."""
    is_quantized = a.dtypes["x"] == "int8"
    x = rng.integers(-128, 128, a["x"]).astype(np.int8) if is_quantized else 5 * rng.standard_normal(a["x"])
    scales = rng.uniform(0.03, 0.2, a["scales"])
    zeros = {"zeros": np.asarray(rng.integers(-5, 6, a["zeros"]), np.int32)} if "zeros" in a else {}
    return {"x": x if is_quantized else x.astype(np.float32), "scales": np.asarray(scales, np.float32), **zeros}


def _plan(kernel: str, a: Args, channel: int, channels: int, limits: Limits, *consts: tuple[str, int]) -> Plan:
    """`channels` scales, each of `channel` consecutive elements."""
    x = a["x"]
    for name in {"scales", "zeros"} & a.dims.keys():
        need(prod(a[name]) == channels, f"{name} {list(a[name])} for x {list(x)}")
    if not prod(x):
        return Plan((x,), (), "empty")
    ends = tuple(zip(("low", "high"), bounds(a), strict=True)) if kernel == "quantize_channels" else ()
    step = Step(
        kernel,
        (("count", prod(x)), ("channel", channel), ("channels", channels), *ends),
        fold(ceil_div(prod(x), WG), limits, f"{prod(x)} elements"),
        (("WG", WG), ("ZEROS", int("zeros" in a)), *consts),
        rename=() if "zeros" in a else (("zeros", "x"),),
        work=(8 * prod(x), 2 * prod(x)),
    )
    return Plan((x,), (step,), "lanes")


@op(
    "quantized_decomposed.dequantize_per_token.default",
    "x/int scales zeros/int low:int high:int _ _ -> out",
    reference=dequantize_reference,
    make=make,
    cases=(Case(_ROWS, _RANGE, (_LIVE_ROWS,), _INT8),),
)
def dequantize_rows(a: Args, limits: Limits) -> Plan:
    return _plan("dequantize_channels", a, a["x"][-1], rows_of(a["x"]), limits)


@op(
    "quantized_decomposed.dequantize_per_tensor.tensor",
    "x/int scales zeros/int low:int high:int _ _ -> out",
    reference=dequantize_reference,
    make=make,
    cases=(Case(_ALL, _RANGE, ({"x": (2, 11)},), _INT8),),
)
def dequantize_all(a: Args, limits: Limits) -> Plan:
    return _plan("dequantize_channels", a, prod(a["x"]), 1, limits)


@op(
    "quantized_decomposed.quantize_per_token.default",
    "x scales zeros/int low:int high:int _ -> out/int",
    reference=quantize_token_reference,
    make=make,
    cases=(Case(_ROWS, _RANGE, (_LIVE_ROWS,), _QUANTIZED),),
)
def quantize_rows(a: Args, limits: Limits) -> Plan:
    """The zero point is added before rounding, unlike in the other ops: halves go to the even one of the sums."""
    return _plan("quantize_channels", a, a["x"][-1], rows_of(a["x"]), limits, ("TOGETHER", 1))


@op(
    "quantized_decomposed.quantize_per_tensor.tensor",
    "x scales zeros/int low:int high:int _ -> out/int",
    reference=quantize_reference,
    make=make,
    cases=(Case(_ALL, _RANGE, ({"x": (2, 11)},), _QUANTIZED),),
)
def quantize_all(a: Args, limits: Limits) -> Plan:
    return _plan("quantize_channels", a, prod(a["x"]), 1, limits, ("TOGETHER", 0))


@op(
    "quantized_decomposed.quantize_per_channel.default",
    "x scales zeros/int axis:int low:int high:int _ -> out/int",
    reference=quantize_reference,
    make=make,
    cases=(
        Case(
            {"x": (4, 3, 2, 5), "scales": (3,), "zeros": (3,)},
            {"axis": -3, **_RANGE},
            ({"x": (1, 3, 2, 5)}, {"x": (2, 3, 1, 4)}),
            _QUANTIZED,
        ),
    ),
)
def quantize_channels(a: Args, limits: Limits) -> Plan:
    x = a["x"]
    axis = wrap(a.int("axis"), len(x))
    return _plan("quantize_channels", a, prod(x[axis + 1 :]), x[axis], limits, ("TOGETHER", 0))


def _blocks(a: Args) -> tuple[int, int]:
    """The size and the number of the blocks, each of which must be consecutive elements."""
    x, block = a["x"], a.attrs["block"]
    need(len(block) == len(x) and all(b > 0 and n % b == 0 for n, b in zip(x, block, strict=False)), f"blocks {block}")
    wide = next((i for i, b in enumerate(block) if b > 1), len(x))
    unsupported(block[wide + 1 :] == x[wide + 1 :], f"blocks of {list(block)} in {list(x)} have no kernel")
    return prod(block), prod(x) // max(prod(block), 1)


_BLOCK_CASES: Any = (
    ({"x": (6, 20), "scales": (6, 4), "zeros": (6, 4)}, (1, 5), ({"x": (2, 20), "scales": (2, 4), "zeros": (2, 4)},)),
    ({"x": (4, 3, 7), "scales": (4, 1, 1)}, (1, 3, 7), ()),
    ({"x": (4, 9), "scales": (2, 1), "zeros": (2, 1)}, (2, 9), ()),
)


@op(
    "torchao.dequantize_affine.default",
    "x/int block:ints scales zeros?/int _ _ _ _ -> out",
    reference=dequantize_reference,
    make=make,
    cases=tuple(Case(d, {"block": b}, live, _INT8 if "zeros" in d else {"x": "int8"}) for d, b, live in _BLOCK_CASES),
)
def dequantize_blocks(a: Args, limits: Limits) -> Plan:
    return _plan("dequantize_channels", a, *_blocks(a), limits)


@op(
    "torchao.quantize_affine.default",
    "x block:ints scales zeros?/int _ low?:num high?:num -> out/int",
    reference=quantize_reference,
    make=make,
    cases=(
        *(
            Case(d, {"block": b, **_RANGE}, live, _QUANTIZED if "zeros" in d else {"out": "int8"})
            for d, b, live in _BLOCK_CASES
        ),
        Case({"x": (6, 20), "scales": (6, 1)}, {"block": (1, 20)}, dtypes={"out": "uint8"}),
        Case({"x": (6, 20), "scales": (6, 1)}, {"block": (1, 20)}, dtypes={"out": "int8"}),
    ),
)
def quantize_blocks(a: Args, limits: Limits) -> Plan:
    return _plan("quantize_channels", a, *_blocks(a), limits, ("TOGETHER", 0))


def choose_rows_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    """Of two zero points, the one with the smaller error at the ends of the range."""
    x = t["x"].astype(np.float32)
    least, most = np.minimum(x.min(-1, keepdims=True), 0), np.maximum(x.max(-1, keepdims=True), 0)
    scale = np.maximum((most - least) / np.float32(HIGH - LOW), np.float32(EPS))
    down, up = least / scale, most / scale
    zero = np.where(LOW + down + (HIGH + up) > 0, LOW - down, HIGH - up)
    return [scale, np.rint(np.clip(zero, LOW, HIGH)).astype(np.int32)]


def _choose(a: Args, out: Dims, rows: int, low: int, high: int, eps: float, limits: Limits, balanced: int) -> Plan:
    x = a["x"]
    if not prod(x):
        return Plan((out, out), (), "empty")
    step = Step(
        "choose_qparams",
        (("rows", rows), ("width", prod(x) // rows), ("low", low), ("high", high), ("eps", eps)),
        fold(rows, limits, f"{rows} rows"),
        (("WG", limits.profile.workgroup), ("BALANCED", balanced)),
        work=(4 * prod(x), 2 * prod(x)),
    )
    return Plan((out, out), (step,), "rows")


@op(
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
    "x _ -> [scale,zero/int32]",
    reference=choose_rows_reference,
    cases=(Case({"x": (3, 7, 70)}, {}, ({"x": (1, 7, 70)}, {"x": (2, 1, 70)}), {"zero": "int32"}),),
)
def choose_rows(a: Args, limits: Limits) -> Plan:
    x = a["x"]
    return _choose(a, (*x[:-1], 1), rows_of(x), LOW, HIGH, EPS, limits, 1)


@op(
    "quantized_decomposed.choose_qparams.tensor",
    "x low:int high:int eps:num _ -> [scale,zero/int32]",
    reference=lambda a, t: list(qparams(t["x"].reshape(1, -1), a.int("low"), a.int("high"), a.num("eps"))),
    cases=(Case({"x": (9, 11)}, {"low": -100, "high": 120, "eps": 1e-6}, ({"x": (2, 11)},), {"zero": "int32"}),),
)
def choose_all(a: Args, limits: Limits) -> Plan:
    return _choose(a, (1,), 1, a.int("low"), a.int("high"), a.num("eps"), limits, 0)
