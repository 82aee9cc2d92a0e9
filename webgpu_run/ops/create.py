"""Ops that make a tensor from numbers: full, ones, zeros, empty, scalar_tensor, arange, and full_like and its kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..shapes import Array, Dims, ceil_div, prod
from .expression import in_dtype, wgsl_type
from .limits import Limits
from .plan import Plan, Step, fold, need
from .spec import Args, Case, op

WG = 64


def fill_step(count: int, value: float, dtype: str, limits: Limits) -> Step:
    """Set `count` elements of the output; the kernel writes the bits of the value."""
    grid = fold(ceil_div(count, WG), limits, f"{count} elements")
    word = in_dtype(value, dtype).astype(np.float32 if dtype.startswith("float") else np.int32)
    return Step(
        "fill", (("count", count), ("word", int(word.view(np.uint32)))), grid, (("WG", WG),), work=(4 * count, 0)
    )


def filled(names: str, schema: str, cases: tuple[Case, ...], *, value: float | None = None) -> None:
    """An op that sets every element to one number: `value`, or an argument of that name.

    Its dims are the argument `dims`, those of the argument `x`, or none.
    """

    def dims_of(a: Args) -> Dims:
        dims: Dims = a["x"] if "x" in a else a.attrs.get("dims", ())
        need(min(dims, default=0) >= 0, f"a tensor can't have dims {list(dims)}")
        return dims

    def number(a: Args) -> float:
        return a.attrs["value"] if value is None else value

    def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
        return [np.full(dims_of(a), in_dtype(number(a), a.dtypes.get("out", "float32")))]

    @op(names, schema, reference=reference, cases=cases)
    def plan(a: Args, limits: Limits) -> Plan:
        out = dims_of(a)
        if not prod(out):
            return Plan((out,), (), "empty")
        return Plan((out,), (fill_step(prod(out), number(a), a.dtypes.get("out", "float32"), limits),), "fill")


def _sized(**attrs: Any) -> tuple[Case, ...]:
    first = Case({}, {"dims": (3, 5, 7), **attrs}, ({"dims": (3, 1, 7)}, {"dims": (1, 4, 7)}, {"dims": (3, 0, 7)}))
    return (first, *(Case({}, {"dims": (), **attrs}, (), {"out": dtype}) for dtype in ("int32", "bool", "int8")))


def _like(**attrs: Any) -> tuple[Case, ...]:
    return (Case({"x": (1, 29, 5)}, attrs, ({"x": (1, 1, 5)}, {"x": (1, 7, 5)})), Case({"x": (5, 3)}, attrs))


filled("aten.full.default", "dims:shape value:scalar _ _ _ _ -> out/any", _sized(value=-2.5))
filled("aten.ones.default", "dims:shape _ _ _ _ -> out/any", _sized(), value=1)
filled("aten.zeros.default", "dims:shape _ _ _ _ -> out/any", _sized(), value=0)
# PyTorch leaves the elements undefined. Zeros, because results should not depend on what ran before.
filled("aten.empty.memory_format", "dims:shape _ _ _ _ _ -> out/any", _sized(), value=0)
filled(
    "aten.scalar_tensor.default",
    "value:scalar _ _ _ _ -> out/any",
    (Case({}, {"value": 3}, ({"value": 7}, {"value": -1}), {"out": "int32"}), Case({}, {"value": -math.inf})),
)
filled("aten.full_like.default", "x/any value:scalar _ _ _ _ _ -> out/any", _like(value=0.5))
filled("aten.ones_like.default", "x/any _ _ _ _ _ -> out/any", _like(), value=1)
filled("aten.zeros_like.default", "x/any _ _ _ _ _ -> out/any", _like(), value=0)


def _count(a: Args) -> int:
    start, end, by = a.attrs["start"], a.attrs["end"], a.attrs["step"]
    need(by != 0, "the step is zero")
    whole = all(isinstance(n, int) for n in (start, end, by))
    count = ceil_div(end - start, by) if whole else math.ceil((end - start) / by)
    need(count >= 0, f"no steps of {by} lead from {start} to {end}")
    return count


def arange_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    start, by = a.attrs["start"], a.attrs["step"]
    is_whole = not a.dtypes.get("out", "float32").startswith("float")
    numbers = np.arange(_count(a)) * (int(by) if is_whole else by) + (int(start) if is_whole else start)
    return [in_dtype(numbers, a.dtypes.get("out", "float32"))]


_INT: Mapping[str, str] = {"out": "int32"}
_arange: Callable[..., dict[str, Any]] = lambda start, end, step: {"start": start, "end": end, "step": step}  # noqa: E731


@op(
    "aten.arange.start_step",
    "start:scalar end:scalar step:scalar _ _ _ _ -> out/float|int32",
    reference=arange_reference,
    cases=(
        Case({}, _arange(0, 131, 1), ({"end": 1}, {"end": 64}, {"end": 0}), _INT),
        Case({}, _arange(5, 40, 3), ({"end": 6}, {"end": 12}), _INT),
        Case({}, _arange(9, -8, -2), (), _INT),
        Case({}, _arange(-0.5, 2, 0.3)),
        Case({}, _arange(2, 9, 1), ({"start": 7}, {"start": 9})),
    ),
)
def arange(a: Args, limits: Limits) -> Plan:
    out = (_count(a),)
    if not prod(out):
        return Plan((out,), (), "empty")
    start, by = a.attrs["start"], a.attrs["step"]
    kind = wgsl_type(a.dtypes.get("out", "float32"))
    whole, real = ((int(start), int(by)), (0.0, 0.0)) if kind == "i32" else ((0, 0), (float(start), float(by)))
    step = Step(
        "arange",
        (("count", *out), ("start", real[0]), ("by", real[1]), ("int_start", whole[0]), ("int_by", whole[1])),
        fold(ceil_div(*out, WG), limits, f"{out[0]} elements"),
        (("WG", WG), ("OUT", kind), ("INT", int(kind == "i32"))),
        work=(4 * prod(out), prod(out)),
    )
    return Plan((out,), (step,), "lanes")
