"""Reductions over any dims (max, min, sum, mean) or one (argmax, argmin): one workgroup per output element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..shapes import Array, Dims, prod, strides_of, wrap
from .copy import pad8
from .expression import extreme, in_dtype, numeric, wgsl_type
from .limits import Limits
from .plan import Plan, Step, fold, need
from .spec import Args, Case, op

WG = 64


def axes_of(a: Args) -> tuple[int, ...]:
    rank, dims = len(a["x"]), a.attrs.get("dims")
    return tuple(sorted({wrap(d, rank) for d in dims})) if dims and rank else tuple(range(rank))


def reduced(x: Dims, axes: tuple[int, ...], keep: bool) -> Dims:
    return tuple(1 if i in axes else d for i, d in enumerate(x) if keep or i not in axes)


def layout(x: Dims, axes: tuple[int, ...], out: Dims) -> tuple[tuple[str, int | tuple[int, ...]], ...]:
    """The uniforms that say where the elements of each output are."""
    strides, outer = strides_of(x), [i for i in range(len(x)) if i not in axes]
    return (
        ("count", prod(out)),
        ("size", prod(tuple(x[i] for i in axes))),
        ("outer_rank", len(outer)),
        ("rank", len(axes)),
        ("outer_dims", pad8(tuple(x[i] for i in outer), 1)),
        ("outer_strides", pad8(tuple(strides[i] for i in outer), 0)),
        ("dims", pad8(tuple(x[i] for i in axes), 1)),
        ("strides", pad8(tuple(strides[i] for i in axes), 0)),
    )


def reduction(names: str, schema: str, start: str, combine: str, f: Callable[..., Any], *, mean: bool = False) -> None:
    def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
        made = f(numeric(t["x"]), axis=axes_of(a), keepdims=bool(a.attrs.get("keep")))
        return [in_dtype(made, a.dtypes.get("out", "float32"))]

    @op(
        names,
        schema,
        reference=reference,
        cases=(
            Case({"x": (1, 13, 96)}, {"dims": (-1,), "keep": True}, ({"x": (1, 1, 96)}, {"x": (1, 5, 96)})),
            Case({"x": (3, 5, 7)}, {"dims": (0, 2), "keep": False}, ({"x": (2, 5, 7)}, {"x": (3, 1, 3)})),
            Case({"x": (5, 67)}, {"dims": (0,), "keep": False}),
        ),
    )
    def plan(a: Args, limits: Limits) -> Plan:
        x, axes = a["x"], axes_of(a)
        out = reduced(x, axes, bool(a.attrs.get("keep")))
        size = prod(tuple(x[i] for i in axes))
        need(size > 0, f"nothing to reduce in {list(x)}")
        if not prod(out):
            return Plan((out,), (), "empty")
        kind = wgsl_type(a.dtypes.get("x", "float32"))
        step = Step(
            "reduce",
            (*layout(x, axes, out), ("divide", float(size) if mean else 1.0)),
            fold(prod(out), limits, f"{prod(out)} outputs"),
            (
                ("WG", WG),
                ("KIND", kind),
                ("OUT", wgsl_type(a.dtypes.get("out", "float32"))),
                ("START", start),
                ("COMBINE", combine),
                ("FINAL", "value / KIND_T(params.divide)" if mean else "value"),
            ),
            work=(4 * prod(x), prod(x)),
        )
        return Plan((out,), (step,), "rows" if axes == (len(x) - 1,) else "strided")


reduction("aten.amax.default", "x/float|int dims?:ints keep:bool -> out/x", "t_x[base]", extreme("max"), np.max)
reduction("aten.amin.default", "x/float|int dims?:ints keep:bool -> out/x", "t_x[base]", extreme("min"), np.min)
reduction("aten.sum.dim_IntList", "x/any dims?:ints keep:bool _ -> out/float|int32", "0", "a + b", np.sum)
reduction("aten.mean.dim", "x dims?:ints keep:bool _ -> out", "0", "a + b", np.mean, mean=True)


def arg_extreme(name: str, sign: str, f: Callable[..., Any]) -> None:
    def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
        dim = a.attrs.get("dim")
        if dim is None:
            return [np.asarray(f(t["x"])).reshape((1,) * len(a["x"]) if a.attrs["keep"] else ())]
        return [np.asarray(f(t["x"], axis=dim, keepdims=bool(a.attrs["keep"])))]

    @op(
        f"aten.{name}.default",
        "x dim?:int keep:bool -> out/int32",
        reference=reference,
        cases=(
            Case(
                {"x": (1, 9, 200)}, {"dim": -1, "keep": False}, ({"x": (1, 1, 200)}, {"x": (1, 4, 7)}), {"out": "int32"}
            ),
            Case({"x": (3, 67, 5)}, {"dim": 1, "keep": True}, ({"x": (2, 1, 5)},), {"out": "int32"}),
            Case({"x": (5, 67)}, {"dim": None, "keep": False}, (), {"out": "int32"}),
        ),
    )
    def plan(a: Args, limits: Limits) -> Plan:
        x, dim = a["x"], a.attrs.get("dim")
        at = None if dim is None else wrap(int(dim), len(x))
        axes = tuple(range(len(x))) if at is None else (at,)
        out = reduced(x, axes, bool(a.attrs["keep"]))
        size, inner = (prod(x), 1) if at is None else (x[at] if x else 1, prod(x[at + 1 :]))
        need(size > 0, f"nothing to choose from in {list(x)}")
        if not prod(out):
            return Plan((out,), (), "empty")
        step = Step(
            "arg_extreme",
            (("rows", prod(out)), ("size", size), ("inner", inner)),
            fold(prod(out), limits, f"{prod(out)} rows"),
            (("WG", WG), ("SIGN", sign)),
            work=(4 * prod(x), prod(x)),
        )
        return Plan((out,), (step,), "rows" if inner == 1 else "strided")


arg_extreme("argmax", ">", np.argmax)
arg_extreme("argmin", "<", np.argmin)
