"""et_vk.q8ta_*: elementwise ops on int8 tensors, each with one scale and zero point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..shapes import Array, prod
from .expression import binary_plan, unary_step
from .limits import Limits
from .plan import Plan, Step, need
from .rearrange import pixel_shuffle, shuffle_reference
from .spec import Args, Case, Resource, op

_BYTES = {"x": "int8", "out": "int8"}
_SCALES = {"scale": 0.05, "zero": -3, "out_scale": 0.08, "out_zero": 5}


def _number(x: float) -> str:
    """A float32 literal of WGSL."""
    return f"{float(np.float32(x))!r}"


def _real(x: Array, scale: float, zero: int) -> Array:
    real: Array = (x.astype(np.float32) - np.float32(zero)) * np.float32(scale)
    return real


def stepped(x: Array, inverse: float, zero: int) -> Array:
    """x in steps of 8 bits."""
    steps: Array = np.clip(np.rint(x * np.float32(inverse)) + zero, -128, 127).astype(np.int32)
    return steps


def make(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Random int8 over the whole range."""
    return {n: rng.integers(-128, 128, dims).astype(np.int8) for n, dims in a.dims.items() if a.dtypes[n] == "int8"}


def _requantize(a: Args, limits: Limits, inverse: float, *, relu: bool = False) -> Step:
    """Dequantize x, apply relu if `relu`, and quantize for the output."""
    real = f"(x - BOTH_T({_number(a.int('zero'))})) * {{0}}"
    real = f"max({real}, BOTH_T(0))" if relu else real
    text = f"clamp(round({real} * {{1}}) + BOTH_T({_number(a.int('out_zero'))}), BOTH_T(-128), BOTH_T(127))"
    return unary_step(a, text, limits, (a.num("scale"), inverse), both="f32")


def relu_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    x = np.maximum(_real(t["x"], a.num("scale"), a.int("zero")), 0)
    return [stepped(x, 1 / a.num("out_scale"), a.int("out_zero"))]


@op(
    "et_vk.q8ta_relu.default",
    "x/int8 scale:num zero:int out_scale:num out_zero:int -> out/int8",
    reference=relu_reference,
    make=make,
    cases=(
        Case({"x": (4, 8)}, _SCALES, ({"x": (2, 8)}, {"x": (1, 8)}), _BYTES),
        Case({"x": (7, 5)}, _SCALES, ({"x": (3, 5)},), _BYTES),
    ),
)
def q8ta_relu(a: Args, limits: Limits) -> Plan:
    need(a.num("out_scale") > 0, f"scale {a.num('out_scale')}")
    if not prod(a["x"]):
        return Plan((a["x"],), (), "empty")
    return Plan((a["x"],), (_requantize(a, limits, 1 / a.num("out_scale"), relu=True),), "lanes")


def add_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    x, y = (_real(t[n], a.num(f"{n}_scale"), a.int(f"{n}_zero")) for n in "ab")
    return [stepped(x + np.float32(a.num("alpha")) * y, 1 / a.num("out_scale"), a.int("out_zero"))]


@op(
    "et_vk.q8ta_add.default",
    "a/int8 b/int8 a_scale:num a_zero:int b_scale:num b_zero:int out_scale:num out_zero:int alpha:num -> out/int8",
    reference=add_reference,
    make=make,
    cases=tuple(
        Case(
            {"a": (3, n), "b": (3, n)},
            {"a_scale": 0.05, "a_zero": 1, "b_scale": 0.1, "b_zero": 3, "out_scale": 0.08, "out_zero": -2, "alpha": 2},
            ({"a": (1, n), "b": (1, n)},),
            {"a": "int8", "b": "int8", "out": "int8"},
        )
        for n in (8, 7)
    ),
)
def add(a: Args, limits: Limits) -> Plan:
    need(a.num("out_scale") > 0, f"scale {a.num('out_scale')}")
    x, y = (f"({n} - BOTH_T({_number(a.int(f'{n}_zero'))})) * BOTH_T({_number(a.num(f'{n}_scale'))})" for n in "ab")
    steps = f"round(({x} + {{0}} * ({y})) * BOTH_T({_number(1 / a.num('out_scale'))}))"
    text = f"clamp({steps} + BOTH_T({_number(a.int('out_zero'))}), BOTH_T(-128), BOTH_T(127))"
    return binary_plan(a, text, limits, (a.num("alpha"),), both="f32")


def shuffled_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    x = _real(shuffle_reference(a, t)[0], a.num("scale"), a.int("zero"))
    return [stepped(x, a.num("inverse"), a.int("out_zero"))]


@op(
    "et_vk.q8ta_pixel_shuffle.default",
    "x/int8 scale:num zero:int inverse:num out_zero:int factor:int -> out/int8",
    reference=shuffled_reference,
    resources=lambda a, limits: {"moved": Resource(max(4 * prod(a["x"]), 16))},
    make=make,
    cases=(
        Case(
            {"x": (2, 8, 2, 3)},
            {"scale": 0.05, "zero": -3, "inverse": 12.5, "out_zero": 5, "factor": 2},
            ({"x": (1, 8, 1, 3)},),
            _BYTES,
        ),
        Case({"x": (9, 3, 5)}, {"scale": 0.1, "zero": 7, "inverse": 10, "out_zero": 7, "factor": 3}, (), _BYTES),
    ),
)
def shuffle(a: Args, limits: Limits) -> Plan:
    """Move the elements, then requantize them for the output."""
    moved = pixel_shuffle(a, limits)
    if not moved.steps:
        return moved
    first = replace(moved.steps[0], rename=(("out", "moved"),))
    last = replace(_requantize(a, limits, a.num("inverse")), rename=(("x", "moved"),))
    return Plan(moved.outs, (first, last), "strided")
