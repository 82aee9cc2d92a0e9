"""More ops that only move elements: flip, repeat, repeat_interleave, pixel_shuffle, unfold, constant_pad_nd, split."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import numpy as np

from ..shapes import Array, Dims, prod, strides_of, wrap
from .copy import copy_step
from .create import fill_step
from .expression import in_dtype
from .limits import Limits
from .plan import Plan, need
from .spec import Args, Case, op


def _flipped(a: Args) -> set[int]:
    return {wrap(d, len(a["x"])) for d in a.attrs["dims"]}


@op(
    "aten.flip.default",
    "x/any dims:ints -> out/x",
    reference=lambda a, t: [np.flip(t["x"], tuple(_flipped(a)))],
    cases=(Case({"x": (3, 5, 7)}, {"dims": (0, -1)}, ({"x": (2, 5, 4)}, {"x": (1, 1, 7)})),),
)
def flip(a: Args, limits: Limits) -> Plan:
    x, flipped = a["x"], _flipped(a)
    if not prod(x):
        return Plan((x,), (), "empty")
    strides = strides_of(x)
    back = tuple(2**32 - s if i in flipped else s for i, s in enumerate(strides))  # kernels add strides modulo 2^32
    last = sum((x[i] - 1) * strides[i] for i in flipped)
    return Plan((x,), (copy_step(x, back, strides, limits, in_base=last),), "strided")


@op(
    "aten.repeat.default",
    "x/any times:shape -> out/x",
    reference=lambda a, t: [np.tile(t["x"], a.attrs["times"])],
    cases=(
        Case({"x": (3, 5)}, {"times": (1, 3, 2)}, ({"x": (1, 5)}, {"x": (2, 2)})),
        Case({"x": (7,)}, {"times": (4,)}),
    ),
)
def repeat(a: Args, limits: Limits) -> Plan:
    times = a.attrs["times"]
    x = (1,) * (len(times) - len(a["x"])) + a["x"]
    need(len(times) == len(x) and min(times, default=1) >= 0, f"{list(a['x'])} can't be repeated {list(times)} times")
    out = tuple(d * n for d, n in zip(x, times, strict=True))
    if not prod(out):
        return Plan((out,), (), "empty")
    dims: list[int] = []
    steps: list[int] = []
    for d, n, stride in zip(x, times, strides_of(x), strict=True):
        for size, step in ((n, 0), (d, stride)):
            if size != 1:
                dims.append(size)
                steps.append(step)
    need(len(dims) <= 8, f"{list(a['x'])} repeated {list(times)} times needs {len(dims)} dims, a kernel has 8")
    block = tuple(dims)
    return Plan((out,), (copy_step(block, tuple(steps), strides_of(block), limits),), "strided")


def interleave_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return [np.repeat(t["x"], a.int("times"), a.attrs["dim"])]


@op(
    "aten.repeat_interleave.self_int",
    "x/any times:sym dim?:int _ -> out/x",
    reference=interleave_reference,
    cases=(
        Case({"x": (3, 5, 7)}, {"times": 3, "dim": 1}, ({"x": (1, 5, 7)}, {"x": (3, 2, 1)}, {"times": 1})),
        Case({"x": (5, 3)}, {"times": 2, "dim": None}, ({"x": (2, 3)},)),
    ),
)
def repeat_interleave(a: Args, limits: Limits) -> Plan:
    """Every slice of the dim, or without a dim every element, `times` times in a row."""
    times, dim = a.int("times"), a.attrs.get("dim")
    need(times >= 0, f"{list(a['x'])} can't be repeated {times} times")
    x = (prod(a["x"]),) if dim is None else a["x"]
    at = wrap(dim or 0, len(x)) + 1
    out = (*x[: at - 1], x[at - 1] * times, *x[at:])
    if not prod(out):
        return Plan((out,), (), "empty")
    block, strides = (*x[:at], times, *x[at:]), strides_of(x)
    steps = (*strides[:at], 0, *strides[at:])
    return Plan((out,), (copy_step(block, steps, strides_of(block), limits),), "strided")


def unfold_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    dim = wrap(a.int("dim"), t["x"].ndim)
    windows = np.lib.stride_tricks.sliding_window_view(t["x"], a.int("size"), dim)
    return [windows[(*(slice(None),) * dim, slice(None, None, a.int("step")))]]


@op(
    "aten.unfold_copy.default",
    "x/any dim:int size:int step:int -> out/x",
    reference=unfold_reference,
    cases=(
        Case({"x": (3, 23, 5)}, {"dim": -2, "size": 7, "step": 4}, ({"x": (1, 7, 5)}, {"x": (3, 18, 2)})),
        Case({"x": (13,)}, {"dim": 0, "size": 3, "step": 1}),
    ),
)
def unfold_copy(a: Args, limits: Limits) -> Plan:
    """Windows along a dim, which become the last dim; they overlap if the step is smaller than the size."""
    x, dim, size, by = a["x"], wrap(a.int("dim"), len(a["x"])), a.int("size"), a.int("step")
    need(bool(x) and by > 0 and 0 <= size <= x[dim], f"dim {dim} of {list(x)} has no windows of {size}, {by} apart")
    out = (*x[:dim], (x[dim] - size) // by + 1, *x[dim + 1 :], size)
    if not prod(out):
        return Plan((out,), (), "empty")
    strides = strides_of(x)
    steps = (*strides[:dim], strides[dim] * by, *strides[dim + 1 :], strides[dim])
    return Plan((out,), (copy_step(out, steps, strides_of(out), limits),), "strided")


def shuffle_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    *lead, c, h, w = t["x"].shape
    r = a.int("factor")
    parts = t["x"].reshape(-1, c // (r * r), r, r, h, w).transpose(0, 1, 4, 2, 5, 3)
    return [parts.reshape(*lead, c // (r * r), h * r, w * r)]


@op(
    "aten.pixel_shuffle.default",
    "x/any factor:int -> out/x",
    reference=shuffle_reference,
    cases=(Case({"x": (2, 8, 2, 3)}, {"factor": 2}, ({"x": (1, 8, 1, 3)},)), Case({"x": (9, 4, 5)}, {"factor": 3})),
)
def pixel_shuffle(a: Args, limits: Limits) -> Plan:
    x, r = a["x"], a.int("factor")
    need(len(x) >= 3 and r > 0 and x[-3] % (r * r) == 0, f"{list(x)} can't be shuffled by {r}")
    c, h, w = x[-3:]
    out = (*x[:-3], c // (r * r), h * r, w * r)
    if not prod(out):
        return Plan((out,), (), "empty")
    block = (prod(x[:-3]), c // (r * r), h, r, w, r)
    plane = h * w
    strides = (c * plane, r * r * plane, w, r * plane, 1, plane)
    return Plan((out,), (copy_step(block, strides, strides_of(block), limits),), "strided")


def _pads(a: Args) -> list[tuple[int, int]]:
    """Padding before and after each dim. The attribute lists the last dim first."""
    pairs = a.attrs["pads"]
    need(len(pairs) % 2 == 0 and len(pairs) <= 2 * len(a["x"]), f"padding {list(pairs)} of {list(a['x'])}")
    found = [(pairs[i], pairs[i + 1]) for i in range(0, len(pairs), 2)]
    return [(0, 0)] * (len(a["x"]) - len(found)) + found[::-1]


def pad_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    pads = _pads(a)
    value = in_dtype(a.num("value"), a.dtypes.get("x", "float32"))
    grown = np.pad(t["x"], [(max(p, 0), max(q, 0)) for p, q in pads], constant_values=value.item())
    return [grown[tuple(slice(max(-p, 0), n - max(-q, 0)) for (p, q), n in zip(pads, grown.shape, strict=True))]]


@op(
    "aten.constant_pad_nd.default",
    "x/any pads:ints value:num -> out/x",
    reference=pad_reference,
    cases=(
        Case({"x": (2, 5, 7)}, {"pads": (1, 2, 0, 3), "value": 1.5}, ({"x": (1, 2, 7)},)),
        Case({"x": (5, 7)}, {"pads": (-1, 2, 1, -2), "value": 0}),
    ),
)
def constant_pad_nd(a: Args, limits: Limits) -> Plan:
    x, pads = a["x"], _pads(a)
    out = tuple(d + p + q for d, (p, q) in zip(x, pads, strict=True))
    need(all(d >= 0 for d in out), f"padding {pads} of {list(x)} leaves less than nothing")
    if not prod(out):
        return Plan((out,), (), "empty")
    steps = [fill_step(prod(out), a.num("value"), a.dtypes.get("out", "float32"), limits)]
    kept: Dims = tuple(d + min(p, 0) + min(q, 0) for d, (p, q) in zip(x, pads, strict=True))
    if prod(kept):
        source, target = strides_of(x), strides_of(out)
        in_base = sum(max(-p, 0) * s for (p, _), s in zip(pads, source, strict=True))
        out_base = sum(max(p, 0) * s for (p, _), s in zip(pads, target, strict=True))
        steps.append(copy_step(kept, source, target, limits, in_base=in_base, out_base=out_base))
    return Plan((out,), tuple(steps), "strided")


def _parts(a: Args) -> list[tuple[int, int]]:
    """(first index, number of indices) of every part along the dim."""
    sizes: tuple[int, ...] = a.attrs["sizes"]
    return list(zip(accumulate(sizes, initial=0), sizes, strict=False))


def split_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    dim = wrap(a.int("dim"), len(a["x"]))
    return [np.take(t["x"], range(first, first + n), dim) for first, n in _parts(a)]


@op(
    "aten.split_with_sizes_copy.default",
    "x/any sizes:shape dim:int -> [out*/x]",
    reference=split_reference,
    cases=(
        Case({"x": (3, 7, 5)}, {"sizes": (2, 3, 2), "dim": 1}, ({"x": (1, 7, 5)}, {"x": (2, 7, 3)})),
        Case({"x": (5, 8)}, {"sizes": (4, 4), "dim": -1}, ({"x": (1, 8)}, {"x": (4, 8)})),
        Case({"x": (6, 3)}, {"sizes": (6,), "dim": 0}),
    ),
)
def split_with_sizes_copy(a: Args, limits: Limits) -> Plan:
    x, dim, sizes = a["x"], wrap(a.int("dim"), len(a["x"])), a.attrs["sizes"]
    need(min(sizes, default=0) >= 0 and sum(sizes) == x[dim], f"{list(x)} can't be split into {list(sizes)} at {dim}")
    strides, outs, steps = strides_of(x), [], []
    for i, (first, n) in enumerate(_parts(a)):
        out = (*x[:dim], n, *x[dim + 1 :])
        outs.append(out)
        if prod(out):
            rename = (("out", f"out{i}"),)
            steps.append(copy_step(out, strides, strides_of(out), limits, in_base=first * strides[dim], rename=rename))
    return Plan(tuple(outs), tuple(steps), "strided" if steps else "empty")
