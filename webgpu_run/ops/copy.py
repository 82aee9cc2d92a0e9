"""Ops that only move elements. A reshape shares the memory of its input; each of the others is one strided copy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, Dims, broadcast_strides, ceil_div, prod, strides_of, wrap
from .limits import Limits
from .plan import Plan, Step, fold, need
from .spec import Args, Case, op

WG = 64


def pad8(dims: Dims, fill: int) -> Dims:
    return dims + (fill,) * (8 - len(dims))


def copy_step(
    dims: Dims,
    in_strides: Dims,
    out_strides: Dims,
    limits: Limits,
    *,
    in_base: int = 0,
    out_base: int = 0,
    rename: tuple[tuple[str, str], ...] = (),
) -> Step:
    """Copy a block of `dims` elements between two strided layouts."""
    count = prod(dims)
    return Step(
        "copy_strided",
        (
            ("count", count),
            ("rank", len(dims)),
            ("in_base", in_base),
            ("out_base", out_base),
            ("dims", pad8(dims, 1)),
            ("in_strides", pad8(in_strides, 0)),
            ("out_strides", pad8(out_strides, 0)),
        ),
        fold(ceil_div(count, WG), limits, f"copy of {count} elements"),
        (("WG", WG),),
        rename=rename,
        work=(8 * count, 0),
    )


def copied(a: Args, out: Dims, limits: Limits) -> Plan:
    """The plan of a reshape: no dispatch if the output shares the memory of the input, else a copy."""
    if a.attrs.get("aliased"):
        return Plan((out,), (), "alias")
    n = prod(out)
    return Plan((out,), (copy_step((n,), (1,), (1,), limits),), "copy") if n else Plan((out,), (), "empty")


def same(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return [t["x"]]


@op("et_vk.prepack.default aten.alias_copy.default", "x/any -> out/x", alias="x", reference=same)
@op("aten.clone.default", "x/any _ -> out/x", alias="x", reference=same)
@op("dim_order_ops._clone_dim_order.default", "x/any _ _ -> out/x", alias="x", reference=same)
def clone(a: Args, limits: Limits) -> Plan:
    return copied(a, a["x"], limits)


@op("aten.copy.default", "_ x/any _ -> out/x", alias="x", reference=same, cases=(Case({"x": (5, 3)}),))
def copy(a: Args, limits: Limits) -> Plan:
    """The second argument, in place of the first; the exporter delegates it only if both have the same dims."""
    return copied(a, a["x"], limits)


def view_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return [t["x"].reshape(a.attrs["dims"])]


@op("aten.view_copy.default", "x/any dims:shape -> out/x", alias="x", reference=view_reference)
def view_copy(a: Args, limits: Limits) -> Plan:
    dims: Dims = a.attrs["dims"]
    count = prod(a["x"])
    if -1 in dims:
        rest = prod(tuple(d for d in dims if d != -1))
        need(rest > 0 and count % rest == 0, f"{list(a['x'])} can't be viewed as {list(dims)}")
        dims = tuple(count // rest if d == -1 else d for d in dims)
    need(prod(dims) == count, f"{list(a['x'])} can't be viewed as {list(dims)}")
    return copied(a, dims, limits)


@op(
    "aten.squeeze_copy.dims",
    "x/any dims:ints -> out/x",
    alias="x",
    reference=lambda a, t: [t["x"].squeeze(_removed(a))],
)
def squeeze_copy(a: Args, limits: Limits) -> Plan:
    removed = _removed(a)
    return copied(a, tuple(d for i, d in enumerate(a["x"]) if i not in removed), limits)


def _removed(a: Args) -> tuple[int, ...]:
    x = a["x"]
    return tuple({i for i in (wrap(d, len(x)) for d in a.attrs["dims"]) if x[i] == 1})


@op(
    "aten.unsqueeze_copy.default",
    "x/any dim:int -> out/x",
    alias="x",
    reference=lambda a, t: [np.expand_dims(t["x"], a.int("dim"))],
)
def unsqueeze_copy(a: Args, limits: Limits) -> Plan:
    x = a["x"]
    at = wrap(a.int("dim"), len(x) + 1)
    return copied(a, (*x[:at], 1, *x[at:]), limits)


def _slice_range(a: Args) -> tuple[int, int, int, int]:
    """(dim, first index, number of indices, step), with Python's rules for bounds that are negative or too large."""
    dim = wrap(a.int("dim"), len(a["x"]))
    size, by = a["x"][dim], a.int("step")
    need(by > 0, f"slice step {by}")
    picked = range(size)[slice(a.attrs.get("start"), a.attrs.get("end"), by)]
    return dim, picked.start, len(picked), by


def slice_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    dim, start, count, by = _slice_range(a)
    return [t["x"].take(np.arange(count) * by + start, dim)]


@op(
    "aten.slice_copy.Tensor aten.slice.Tensor",
    "x/any dim:int start:sym end:sym step:int -> out/x",
    reference=slice_reference,
    cases=(
        Case({"x": (13, 5)}, {"dim": 0, "start": 2, "end": 9, "step": 1}),
        Case({"x": (3, 17, 4)}, {"dim": 1, "start": 1, "end": None, "step": 3}, ({"x": (3, 5, 4)}, {"x": (1, 17, 4)})),
        Case({"x": (3, 8)}, {"dim": -1, "start": -3, "end": 9223372036854775807, "step": 1}),
    ),
)
def slice_copy(a: Args, limits: Limits) -> Plan:
    dim, start, count, by = _slice_range(a)
    x = a["x"]
    strides = strides_of(x)
    out = (*x[:dim], count, *x[dim + 1 :])
    if not prod(out):
        return Plan((out,), (), "empty")
    steps = (*strides[:dim], strides[dim] * by, *strides[dim + 1 :])
    return Plan((out,), (copy_step(out, steps, strides_of(out), limits, in_base=start * strides[dim]),), "strided")


@op(
    "aten.select_copy.int aten.select.int",
    "x/any dim:int index:sym -> out/x",
    reference=lambda a, t: [t["x"].take(a.int("index"), a.int("dim"))],
    cases=(
        Case({"x": (1, 19, 24)}, {"dim": 1, "index": -1}, ({"x": (1, 1, 24)}, {"x": (1, 7, 24)})),
        Case({"x": (3, 5, 7)}, {"dim": 2, "index": 4}),
    ),
)
def select_copy(a: Args, limits: Limits) -> Plan:
    x = a["x"]
    dim = wrap(a.int("dim"), len(x))
    index = a.int("index")
    need(-x[dim] <= index < x[dim], f"index {index} is outside dim {dim} of {list(x)}")
    strides = strides_of(x)
    out = (*x[:dim], *x[dim + 1 :])
    if not prod(out):
        return Plan((out,), (), "empty")
    base = (index + x[dim] if index < 0 else index) * strides[dim]
    return Plan(
        (out,),
        (copy_step(out, (*strides[:dim], *strides[dim + 1 :]), strides_of(out), limits, in_base=base),),
        "strided",
    )


@op(
    "aten.permute_copy.default aten.permute.default",
    "x/any order:ints -> out/x",
    reference=lambda a, t: [t["x"].transpose(a.attrs["order"])],
    cases=(Case({"x": (3, 5, 7)}, {"order": (2, 0, 1)}, ({"x": (2, 5, 1)},)),),
)
def permute_copy(a: Args, limits: Limits) -> Plan:
    x = a["x"]
    order = [wrap(d, len(x)) for d in a.attrs["order"]]
    need(sorted(order) == list(range(len(x))), f"{order} is not an order of {len(x)} dims")
    strides = strides_of(x)
    out = tuple(x[d] for d in order)
    if not prod(out):
        return Plan((out,), (), "empty")
    return Plan((out,), (copy_step(out, tuple(strides[d] for d in order), strides_of(out), limits),), "strided")


@op(
    "aten.t_copy.default",
    "x/any -> out/x",
    reference=lambda a, t: [t["x"].T],
    cases=(Case({"x": (13, 5)}, live=({"x": (1, 5)}, {"x": (7, 3)})), Case({"x": (3,)})),
)
def t_copy(a: Args, limits: Limits) -> Plan:
    x = a["x"]
    need(len(x) <= 2, f"{list(x)} has more than two dims")
    out = x[::-1]
    if not prod(out):
        return Plan((out,), (), "empty")
    return Plan((out,), (copy_step(out, strides_of(x)[::-1], strides_of(out), limits),), "strided")


@op(
    "aten.expand_copy.default",
    "x/any dims:shape _ -> out/x",
    reference=lambda a, t: [np.broadcast_to(t["x"], _expanded(a))],
    cases=(Case({"x": (3, 1, 5)}, {"dims": (2, -1, 4, 5)}, ({"x": (2, 1, 5)},)),),
)
def expand_copy(a: Args, limits: Limits) -> Plan:
    out = _expanded(a)
    if not prod(out):
        return Plan((out,), (), "empty")
    return Plan((out,), (copy_step(out, broadcast_strides(a["x"], out), strides_of(out), limits),), "strided")


def _expanded(a: Args) -> Dims:
    x, dims = a["x"], a.attrs["dims"]
    pad = len(dims) - len(x)
    need(pad >= 0, f"{list(x)} can't be expanded to {list(dims)}")
    out = tuple(x[i - pad] if d == -1 else d for i, d in enumerate(dims))
    need(all(d in (1, out[i + pad]) for i, d in enumerate(x)), f"{list(x)} can't be expanded to {list(dims)}")
    return out


def cat_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return [np.concatenate([t[f"xs{i}"] for i in range(len(a.attrs["xs"]))], a.int("dim"))]


@op(
    "aten.cat.default",
    "xs:activation[]/any dim:int -> out/xs",
    reference=cat_reference,
    cases=(Case({"xs0": (3, 5), "xs1": (3, 2), "xs2": (3, 1)}, {"xs": (True,) * 3, "dim": -1}, ({"xs1": (3, 1)},)),),
)
def cat(a: Args, limits: Limits) -> Plan:
    parts = [a[f"xs{i}"] for i in range(len(a.attrs["xs"]))]
    need(bool(parts), "nothing to concatenate")
    dim = wrap(a.int("dim"), len(parts[0]))
    for p in parts:
        fits = len(p) == len(parts[0]) and all(i == dim or d == parts[0][i] for i, d in enumerate(p))
        need(fits, f"{list(p)} can't be concatenated to {list(parts[0])} at dim {dim}")
    out = (*parts[0][:dim], sum(p[dim] for p in parts), *parts[0][dim + 1 :])
    strides, at, steps = strides_of(out), 0, []
    for i, p in enumerate(parts):
        if prod(p):
            steps.append(copy_step(p, strides_of(p), strides, limits, out_base=at, rename=(("x", f"xs{i}"),)))
        at += p[dim] * strides[dim]
    return Plan((out,), tuple(steps), "strided")
