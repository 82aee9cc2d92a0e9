"""An independent computation of every field of an op's dispatches, from its shapes and attributes.

A run cannot see a field that does not change the numbers: one loop too many over a dim of 1, a bound that the grid
keeps anyway, a constant of a branch not taken. `check` compares each field of each dispatch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from webgpu_run.ops.limits import Limits
from webgpu_run.ops.plan import Plan, Step
from webgpu_run.ops.spec import Args, Op
from webgpu_run.shapes import Dims

from helpers import fields_attention, fields_moves, fields_q4
from helpers.fields_moves import Want, cat, moved, size, strides, up, words

TOP = float(np.float32(3.4028234e38))


Wanted = tuple[str, list[Want]]


# -- elements that are computed ----------------------------------------------------------------------------------------


def broadcast(kernel: str, a: Args, names: Sequence[str], out: Dims) -> Want:
    through = {f"{n}_strides": strides(np.broadcast_to(words(a[n]), out)) for n in names}
    return Want(kernel, {"count": size(out), "rank": len(out), "dims": out, **through}, lanes=size(out))


def elementwise(op: Op, a: Args, out: Dims) -> Wanted:
    if "cond" in a:
        return "broadcast", [broadcast("where", a, ("cond", "a", "b"), out)]
    four = size(out) % 4 == 0
    if "b" not in a:
        route = {"_to_dim_order_copy": "cast"}
        route |= dict.fromkeys(("quantize_per_tensor", "dequantize_per_tensor", "q8ta_relu"), "lanes")
        lanes = size(out) // 4 if four else size(out)
        return route.get(op.short, "vec4" if four else "scalar"), [Want("unary", {"count": lanes}, lanes=lanes)]
    floats = any(a.dtypes.get(n, "float32").startswith("float") for n in ("a", "b", "out"))
    alpha = {"first" if floats else "int_first": a.num("alpha", 1.0)} if op.short in ("add", "sub") else {}
    if op.short == "q8ta_add":
        alpha = {"first": a.num("alpha")}
    if a["a"] == a["b"] and four:
        lanes = size(out) // 4
        return "vec4", [Want("binary_vec4", {"count": lanes, **alpha}, lanes=lanes)]
    want = broadcast("binary", a, ("a", "b"), out)
    want.params.update(alpha)
    return "broadcast", [want]


def in_parts(rows: int, nbytes: int, limits: Limits) -> list[tuple[int, int, tuple[int, int] | None]]:
    """First row, rows and window of each part of a table of rows of so many bytes, as much as can be bound in each."""
    if rows * nbytes <= limits.max_binding:
        return [(0, rows, None)]
    starts = [n for n in range(1, rows) if n * nbytes % limits.storage_align == 0]  # where a binding may start
    most = max(n for n in starts if n * nbytes <= limits.max_binding)
    parts = [(first, min(most, rows - first)) for first in range(0, rows, most)]
    return [(first, held, (first * nbytes, held * nbytes)) for first, held in parts]


def gather(a: Args, out: Dims, limits: Limits) -> Wanted:
    name = next(n for n in a.dims if n != "table")
    dim = int(name[2:]) if name != "index" else a.attrs.get("dim", 0) % len(a["table"])
    table = a["table"]
    width = strides(words((*table, 2)))[dim] // 2
    params = {"count": size(out), "width": width, "rows": table[dim], "picks": size(a[name])}
    half = a.dtypes["table"] == "float16" and table[-1] % 2 == 0
    parts = in_parts(size(table[: dim + 1]), width * (2 if half else 4), limits)
    steps = [
        Want("gather_rows", {**params, "first": first, "held": held}, 0, size(out), {"HALF": int(half)}, at)
        for first, held, at in parts
    ]
    return "gather" + f" in {len(parts)} parts" * (len(parts) > 1), steps


def embedding_q4(a: Args, limits: Limits, plain: bool) -> Wanted:
    (vocab, half), group, tokens = a["w"], a.int("group"), size(a["index"])
    if plain:
        params = {"words": tokens * half // 4, "dim": 2 * half, "group": group, "vocab": vocab}
        return "plain", [Want("embedding_q4gsw", params, lanes=tokens * half // 4)]
    lanes, blocks = limits.profile.lanes, tokens * half // 16
    consts = {"WG": lanes, "K": 2 * half, "G": group, "LANES": lanes, "IMAGES": int(limits.profile.images)}
    consts["PARTS"] = fields_q4.parts(2 * half, group, limits)
    consts["TOGETHER"] = fields_q4.side(up(vocab, 4 * lanes), 2 * half, group, limits)
    params = {"count": blocks, "vocab": vocab}
    return "strips", [Want("embedding_q4gsw_strips", params, up(blocks, lanes), consts=consts)]


def matrix(op: Op, a: Args, out: Dims, limits: Limits) -> Wanted:
    if op.short == "linear":
        (n, k), m = a["w"], size(out[:-1])
        rows = 4 if m > 1 else 1
        name, wide = ("linear_vec4", k // 4) if k % 4 == 0 else ("linear", k)
        consts = {"ROWS": rows, "BIAS": int("bias" in a)}
        parts = in_parts(n, 4 * k, limits)
        steps = [
            Want(name, {"m": m, "n": n, "k": wide, "first": first, "cols": held}, 0, held * up(m, rows), consts, at)
            for first, held, at in parts
        ]
        return ("gemm" if m > 1 else "gemv") + f" in {len(parts)} parts" * (len(parts) > 1), steps
    if op.short == "linear_q8ta_q8csw":
        (n, k), m = a["w"], size(out[:-1])
        fields = {"count": m * n, "n": n, "k": k, "zero": a.int("zero"), "scale": a.num("scale")}
        want = Want("linear_q8csw", fields, lanes=m * n, consts={"BIAS": int("bias" in a)})
        return "gemm" if m > 1 else "gemv", [want]
    (m, k), n = a["a"][-2:], a["b"][-1]
    params: dict[str, Any] = {"count": size(out), "n": n, "k": k}
    if op.short != "addmm":
        return "naive", [Want("bmm", {**params, "m": m}, lanes=size(out))]
    row, col = strides(np.broadcast_to(words(a["c"]), out))
    params |= {"row": row, "col": col, "beta": a.num("beta"), "alpha": a.num("alpha")}
    return "naive", [Want("addmm", params, lanes=size(out))]


# -- windows over images -----------------------------------------------------------------------------------------------


def pair(values: Sequence[int], rank: int, fill: int) -> Dims:
    """One entry a spatial dim, and `fill` for the height of what is a line."""
    spread = tuple(values) * (rank if len(values) == 1 else 1)
    return (fill, *spread) if rank == 1 else spread


def window(a: Args, out: Dims, kernel: Sequence[int], rank: int = 2, other: Sequence[int] = ()) -> dict[str, Dims]:
    by = {n: a.attrs.get(n) or d for n, d in (("stride", other), ("padding", (0,)), ("dilation", (1,)))}
    stride, padding, dilation = pair(by["stride"], rank, 1), pair(by["padding"], rank, 0), pair(by["dilation"], rank, 1)
    around = (*pair(a["x"][-rank:], rank, 1), *pair(out[-rank:], rank, 1))
    return {"size": around, "taps": (*pair(kernel, rank, 1), *dilation), "shift": (*stride, *padding)}


def convolution(a: Args, out: Dims) -> Wanted:
    x, w, groups, turned = a["x"], a["w"], a.int("groups"), bool(a.attrs["transposed"])
    params: dict[str, Any] = {"count": size(out), **window(a, out, w[2:], len(x) - 2)}
    params["channels"] = (x[1] // groups, out[1] // groups, x[1], out[1])
    params |= {"low": a.num("low", -TOP), "high": a.num("high", TOP)}
    consts = {"BIAS": int("bias" in a), "TRANSPOSED": int(turned)}
    return "transposed" if turned else "direct", [Want("conv2d", params, lanes=size(out), consts=consts)]


def resize_steps(a: Args, out: Dims) -> list[float]:
    """Input elements per output element: the given scale decides, not the ratio of sizes."""
    steps = []
    for i in (0, 1):
        n, m, corners = a["x"][2 + i], out[2 + i], a.attrs.get("corners")
        ratio = (n - 1) / max(m - 1, 1) * (m > 1) if corners else n / m
        counts = a.attrs["scales"] and not corners and m != n and (corners is False or m != 2 * n)
        steps.append(1 / a.attrs["scales"][i] if counts else ratio)
    return steps


def image(op: Op, a: Args, out: Dims) -> Wanted:
    params: dict[str, Any] = {"count": size(out)}
    consts: dict[str, int] = {}
    name = op.short
    if "pool" in name:
        kernel = pair(a.attrs["kernel"], 2, 1)
        params |= window(a, out, kernel, other=kernel)
        if name == "avg_pool2d":
            consts = {"DIVISOR": a.attrs["divisor"] or 0, "INCLUDE": int(a.attrs["include"])}
        name = name.removesuffix("_with_indices")
    elif name == "grid_priors":
        params |= {"width": a["x"][-1], "stride": a.num("stride"), "offset": a.num("offset")}
    else:
        params["size"] = (*a["x"][2:], *out[2:])
        if name == "grid_sampler_2d":
            params["channels"] = a["x"][1]
        else:
            consts = {"BILINEAR": int("bilinear" in name), "CORNERS": int(a.attrs.get("corners", False))}
            params |= dict(zip(("step_y", "step_x"), resize_steps(a, out), strict=True))
            name = "resize2d"
    return "lanes", [Want(name, params, lanes=size(out), consts=consts)]


# -- rows --------------------------------------------------------------------------------------------------------------


def reduction(op: Op, a: Args, out: Dims) -> Wanted:
    x = words(a["x"])
    axes = sorted(d % x.ndim for d in (a.attrs["dims"] or range(x.ndim)))
    rest = [i for i in range(x.ndim) if i not in axes]
    within, outer = x.transpose(axes + rest), x.transpose(rest + axes)
    count = size([x.shape[i] for i in axes])
    params = {
        "count": size(out),
        "size": count,
        "rank": len(axes),
        "outer_rank": len(rest),
        "divide": count if op.short == "mean" else 1,
        "dims": within.shape[: len(axes)],
        "strides": strides(within)[: len(axes)],
        "outer_dims": outer.shape[: len(rest)],
        "outer_strides": strides(outer)[: len(rest)],
    }
    return "rows" if axes == [x.ndim - 1] else "strided", [Want("reduce", params, size(out))]


def line(op: Op, a: Args) -> Wanted:
    """Softmax and the place of an extreme: along one dim, or over all that there is."""
    x = words(a["x"])
    dim = a.attrs["dim"]
    x, at = (x.reshape(-1), 0) if dim is None else (x, dim % x.ndim)
    inner = size(x.shape[at + 1 :])
    rows = x.size // x.shape[at]
    softmax = "softmax" in op.short
    want = Want("softmax" if softmax else "arg_extreme", {"rows": rows, "size": x.shape[at], "inner": inner}, rows)
    if softmax:
        want.consts["LOG"] = int("log" in op.short)
    return "strided" if inner > 1 else "rows", [want]


def norm(op: Op, a: Args, limits: Limits) -> Wanted:
    x, params = a["x"], {"eps": a.num("eps")}
    wg = {"WG": limits.profile.workgroup}
    if op.short == "rms_norm":
        four = x[-1] % 4 == 0
        rows = size(x[:-1])
        params |= {"rows": rows, "width": x[-1] // 4 if four else x[-1]}
        return ("vec4" if four else "scalar"), [Want("rms_norm_vec4" if four else "rms_norm", params, rows, consts=wg)]
    consts = wg | {"WEIGHT": int("weight" in a), "BIAS": int("bias" in a)}
    if "batch" in op.short:
        params |= {"count": size(x), "channel": size(x[2:]), "channels": x[1]}
        return "lanes", [Want("batch_norm", params, lanes=size(x), consts=consts | {"WG": 64})]
    if op.short == "native_group_norm":
        rows, channel, channels = x[0] * a.int("groups"), size(x[2:]), x[1]
    else:
        rows, channel, channels = size(x[: -len(a.attrs["shape"])]), 1, size(a.attrs["shape"])
    params |= {"rows": rows, "width": size(x) // rows, "channel": channel, "channels": channels}
    route = "groups" if op.short == "native_group_norm" else "rows"
    return route, [Want("layer_norm", params, rows, consts=consts)]


def qparams(a: Args, limits: Limits) -> Wanted:
    x, wg = a["x"], limits.profile.workgroup
    rows = size(x[:-1])
    params = {"rows": rows, "width": x[-1], "low": -128, "high": 127, "eps": a.num("eps", 2.0**-23)}
    return "rows", [Want("choose_qparams", params, rows, consts={"WG": wg})]


def pick(a: Args, limits: Limits) -> Wanted:
    """Parts of whole vectors of four over the last row: as many as there may be, each as short as that allows."""
    *lead, count = a["x"]
    base, lanes = (size(lead) - 1) * count, limits.profile.workgroup
    fours = (base + count - 1) // 4 - base // 4 + 1
    most = min(64 if limits.profile.tiled else 8, up(fours, lanes))
    chunk = next(n for n in range(1, fours + 1) if up(fours, n) <= most)
    parts = len(range(0, fours, chunk))
    params = {"base": base, "count": count, "chunk": chunk, "parts": parts}

    def step(name: str, groups: int, **consts: int) -> Want:
        return Want(f"pick_{name}", params, groups, consts={"WG": lanes, **consts})

    if a["how"] == (0,):
        return "greedy", [step("parts", parts, SUMS=0), step("best", 1, WG=0)]
    drawn = [step("sums", parts), step("ends", 1), step("list", parts), step("draw", 1, WG=64)]
    return "drawn", [step("parts", parts, SUMS=3 * 256), *drawn]


def wanted(op: Op, a: Args, plan: Plan, limits: Limits) -> Wanted | None:
    """Route and dispatches; None where another file works them out."""
    out, short = plan.outs[0], op.short
    if not size(out):
        return "empty", []
    if op.alias and not (short == "_to_dim_order_copy" and plan.steps):
        return ("copy", [moved(x := words((size(out),)), x, words((size(out),)))]) if plan.steps else ("alias", [])
    if short in fields_moves.MOVES:
        return "strided", fields_moves.MOVES[short](a, words(a["x"]), words(out))
    if short == "cat":
        return "strided", cat(a, words(out))
    if short in fields_attention.ALONE:
        return fields_attention.ALONE[short](a)
    if short == "split_with_sizes_copy":
        return "strided", fields_moves.split(a, words(a["x"]), plan.outs)
    if short == "q8ta_pixel_shuffle":
        lanes = size(out) // 4 if size(out) % 4 == 0 else size(out)
        there = fields_moves.pixel_shuffle(a, words(a["x"]), words(out))
        return "strided", [*there, Want("unary", {"count": lanes, "second": a.num("inverse")}, lanes=lanes)]
    if "table" in a:
        return gather(a, out, limits)
    if short == "embedding_q4gsw":
        return embedding_q4(a, limits, plain=not fields_q4.packable(2 * a["w"][1], a.int("group"), limits))
    if short in ("linear", "linear_q8ta_q8csw", "bmm", "mm", "addmm"):
        return matrix(op, a, out, limits)
    if short in ("convolution", "conv_with_clamp"):
        return convolution(a, out)
    if "2d" in short or short == "grid_priors":
        return image(op, a, out)
    if short in ("amax", "amin", "sum", "mean"):
        return reduction(op, a, out)
    if "softmax" in short or short in ("argmax", "argmin"):
        return line(op, a)
    if short.endswith("_norm") or "batch_norm" in short:
        return norm(op, a, limits)
    if short == "pick":
        return pick(a, limits)
    if short == "choose_qparams_affine":
        return qparams(a, limits)
    kernels = {s.kernel for s in plan.steps}
    return elementwise(op, a, out) if kernels <= {"unary", "binary", "binary_vec4", "where"} else None


# -- the check ---------------------------------------------------------------------------------------------------------


def folded(groups: int, most: int) -> tuple[int, int, int]:
    """The fewest rows of workgroups that hold them, as short as can be."""
    rows = up(groups, most)
    return (groups if rows == 1 else up(groups, rows), rows, 1)


def same(name: str, got: Any, want: Any) -> bool:
    """Equal, but for strides that reach nothing; past its dims a shape has ones, and strides are zero."""
    if isinstance(want, tuple):
        rest = (int(name.endswith("dims")),) * (len(got) - len(want))
        return all(w in (-1, g) for g, w in zip(got, (*want, *rest), strict=True))
    return bool(want in (-1, got) or (isinstance(want, float) and abs(got - want) <= 1e-6 * abs(want)))


def check_step(step: Step, want: Want, limits: Limits, what: str) -> None:
    assert step.kernel == want.kernel, f"{what}: {step.kernel}, expected {want.kernel}"
    params = dict(step.params)
    for name, value in want.params.items():
        assert same(name, params[name], value), f"{what}: {name} = {params[name]}, expected {value}"
    grid = folded(want.groups or up(want.lanes, 64), limits.max_workgroups)
    assert step.grid == grid, f"{what}: grid {step.grid}, expected {grid}"
    windows = [(w.offset, w.nbytes) for _, w in step.windows]
    assert windows == ([want.window] if want.window else []), f"{what}: binds {windows}, expected {want.window}"
    numbers = {name: value for name, value in step.consts if not isinstance(value, str)}
    known = {name: n for name, n in ({"WG": 64} | want.consts).items() if n or name != "WG"}  # 0: it has one lane
    assert numbers == known, f"{what}: constants {numbers}, expected {known}"


def check(op: Op, a: Args, plan: Plan, limits: Limits) -> None:
    """The plan is the one that these shapes need, field by field."""
    if op.short in fields_q4.LINEAR:
        fields_q4.check(op, a, plan, limits)
        return
    if op.short in fields_attention.CACHED:
        fields_attention.check(op, a, plan, limits)
        return
    found = wanted(op, a, plan, limits)
    assert found is not None, f"{op.name}: no one has worked out its plans a second time"
    route, steps = found
    assert plan.route == route, f"{op.name}: route {plan.route}, expected {route}"
    assert len(plan.steps) == len(steps), f"{op.name}: {len(plan.steps)} dispatches, expected {len(steps)}"
    for i, (step, want) in enumerate(zip(plan.steps, steps, strict=True)):
        check_step(step, want, limits, f"{op.name}, dispatch {i}")
