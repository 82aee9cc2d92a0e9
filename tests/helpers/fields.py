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

from helpers import fields_attention, fields_create, fields_moves, fields_q4, fields_rows, fields_strips
from helpers.fields_moves import Want, cat, moved, size, strides, up, words

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
    half = a.dtypes["table"] == "float16" and table[-1] % 2 == 0
    cell = 1 if half or width & 3 else 4
    params = {"count": size(out) // cell, "width": width // cell, "rows": table[dim], "picks": size(a[name])}
    parts = in_parts(size(table[: dim + 1]), width * (2 if half else 4), limits)
    own = {"HALF": int(half), "WIDE": cell}
    steps = [
        Want("gather_rows", {**params, "first": first, "held": held}, 0, size(out) // cell, own, at)
        for first, held, at in parts
    ]
    return "gather" + f" in {len(parts)} parts" * (len(parts) > 1), steps


def embedding_q4(a: Args, limits: Limits, plain: bool) -> Wanted:
    (vocab, half), group, tokens = a["w"], a.int("group"), size(a["index"])
    if plain:
        params = {"words": tokens * half // 4, "dim": 2 * half, "group": group, "vocab": vocab}
        return "plain", [Want("embedding_q4gsw", params, lanes=tokens * half // 4)]
    side, blocks, lanes = limits.profile.lanes, tokens * half // 16, fields_q4.lanes_of([vocab], limits)
    consts = {"WG": side, "K": 2 * half, "G": group, "LANES": lanes, "IMAGES": int(limits.profile.images)}
    consts["PARTS"] = fields_q4.parts(2 * half, group, lanes, limits)
    consts["TOGETHER"] = fields_q4.side(up(vocab, 4 * lanes), 2 * half, group, lanes, limits)
    params = {"count": blocks, "vocab": vocab}
    return "strips", [Want("embedding_q4gsw_strips", params, up(blocks, side), consts=consts)]


def rows_of_lane(m: int, limits: Limits) -> int:
    if m == 1:
        return 1
    return 8 if limits.profile.images and m >= 5 else 4


def matrix(op: Op, a: Args, out: Dims, limits: Limits) -> Wanted:
    if op.short == "linear":
        (n, k), m = a["w"], size(out[:-1])
        rows, cols = rows_of_lane(m, limits), 4 if limits.profile.images else 1
        if fields_strips.are_used(n, limits):
            return fields_strips.linear(a, rows, limits)
        name, wide = ("linear_vec4", k // 4) if k % 4 == 0 else ("linear", k)
        consts = {"ROWS": rows, "COLS": cols, "BIAS": int("bias" in a)}
        parts = in_parts(n, 4 * k, limits)
        steps = [
            Want(name, {"m": m, "n": n, "k": wide, "first": first, "cols": held}, 0, lanes, consts, at)
            for first, held, at in parts
            for lanes in [up(held, cols) * up(m, rows)]
        ]
        return ("gemm" if m > 1 else "gemv") + f" in {len(parts)} parts" * (len(parts) > 1), steps
    if op.short in ("_weight_int8pack_mm", "linear_q8csw"):
        n, m, k = a["w"][0], size(out[:-1]), a["x"][-1]
        rows, wide = 4 if m > 1 else 1, up(k, 4)
        parts = in_parts(n, 4 * wide, limits)
        consts = {"ROWS": rows, "BIAS": int("bias" in a)}
        fields: dict[str, Any] = {"m": m, "n": n, "k": k, "words": wide}
        steps = [
            Want("linear_q8w", {**fields, "first": first, "cols": held}, 0, held * up(m, rows), consts, at)
            for first, held, at in parts
        ]
        return ("gemm" if m > 1 else "gemv") + f" in {len(parts)} parts" * (len(parts) > 1), steps
    if op.short in ("linear_q8ta_q8csw", "q8ta_linear", "q8ta_linear_gemv"):
        n, m, k = a["w"][0], size(out[:-1]), a["x"][-1]
        fields = {"count": m * n, "n": n, "k": k, "words": up(k, 4), "zero": a.int("zero"), "scale": a.num("scale")}
        fields |= {"inverse": 1 / a.num("out_scale", 1.0), "out_zero": a.attrs.get("out_zero", 0)}
        consts = {"BIAS": int("bias" in a), "RELU": int(a.attrs.get("activation") == "relu")}
        want = Want("linear_q8csw", fields, lanes=m * n, consts={**consts, "QUANTIZED": int("out_zero" in a.attrs)})
        return "gemm" if m > 1 else "gemv", [want]
    (m, k), n = a["a"][-2:], a["b"][-1]
    rows, count = rows_of_lane(m, limits), size(a["a"][:-2])
    params: dict[str, Any] = {"batches": count, "m": m, "n": n, "k": k, "row": 0, "col": 0, "beta": 0, "alpha": 1}
    consts = {"ROWS": rows, "ADDED": int(op.short == "addmm"), "VEC": int(n % 4 == 0)}
    if op.short == "addmm":
        row, col = strides(np.broadcast_to(words(a["c"]), out))
        params |= {"row": row, "col": col, "beta": a.num("beta"), "alpha": a.num("alpha")}
    if limits.profile.shuffle:
        rows = 16 if m >= 33 else rows
        consts |= {"ROWS": rows, "EDGE": int(k / 8 != k // 8), "WG": 0}
        return "strips", [Want("matmul_strips", params, count * up(m, rows) * up(n, 32), consts=consts)]
    return "blocks", [Want("matmul", params, lanes=count * up(m, rows) * up(n, 4), consts=consts)]


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


def convolution(a: Args, out: Dims, limits: Limits) -> Wanted:
    x, w, groups, turned = a["x"], a["w"], a.int("groups"), bool(a.attrs.get("transposed"))
    params: dict[str, Any] = {**window(a, out, w[2:], len(x) - 2)}
    params["channels"] = (x[1] // groups, out[1] // groups, x[1], out[1])
    params |= {"low": a.num("low", -np.inf), "high": np.inf if a.num("high", np.inf) > 3.5e38 else a.num("high")}
    consts, mine = {"BIAS": int("bias" in a)}, out[1] // groups
    if turned or mine < 4:
        params["count"], consts["TRANSPOSED"] = size(out), int(turned)
        return "transposed" if turned else "direct", [Want("conv2d", params, lanes=size(out), consts=consts)]
    if fields_strips.are_used(mine, limits):
        return fields_strips.convolution(a, out, params, limits)
    if limits.profile.images:
        places, quarters = 8, 4 if mine >= 16 else 2 if mine >= 8 else 1
    else:
        places, quarters = 4, 1 if mine < 8 or mine >= 256 else 2
    each = up(size(out[2:]), places)
    lanes = out[0] * each
    wg = next(n for n in (8, 16, 32, 64) if n >= lanes or n == 64)
    params |= {"lanes": lanes, "per_image": each, "per_block": up(lanes, wg)}
    consts |= {"WG": wg, "PLACES": places, "CHANNELS": quarters}
    groups *= up(mine, 4 * quarters) * up(lanes, wg)
    return f"blocks of {4 * quarters}", [Want("conv2d_block", params, groups, consts=consts)]


def convolution_q8(a: Args, out: Dims) -> Wanted:
    x, kernel, groups, turned = a["x"], a.attrs["kernel"], a.int("groups"), "out_padding" in a.attrs
    params: dict[str, Any] = {"count": size(out), **window(a, out, kernel)}
    params["channels"] = (x[1] // groups, out[1] // groups, x[1], out[1])
    params |= {"words": up(size(kernel) * x[1] // groups, 4), "zero": a.int("zero"), "scale": a.num("scale")}
    floats = "out_scale" not in a.attrs
    params |= {"inverse": 1 / a.num("scale" if floats else "out_scale"), "out_zero": a.attrs.get("out_zero", 0)}
    consts = {"BIAS": int("bias" in a), "RELU": int(a.attrs.get("activation") == "relu")}
    consts |= {"TRANSPOSED": int(turned), "FLOATS": int(floats)}
    return "transposed" if turned else "direct", [Want("conv2d_q8", params, lanes=size(out), consts=consts)]


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
        else:
            consts = {"INDEX": int(name.endswith("indices"))}
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
    params: dict[str, Any] = {
        "count": size(out),
        "size": count,
        "rank": len(axes),
        "outer_rank": len(rest),
        "dims": within.shape[: len(axes)],
        "strides": strides(within)[: len(axes)],
        "outer_dims": outer.shape[: len(rest)],
        "outer_strides": strides(outer)[: len(rest)],
    }
    route = "rows" if axes == [x.ndim - 1] else "strided"
    if op.short == "var":
        freedom = count - a.num("unbiased" if "unbiased" in a.attrs else "correction")
        params["scale"] = 1 / freedom if freedom > 0 else np.inf
        return route, [Want("variance", params, size(out))]
    params["divide"] = count if op.short == "mean" else 1
    return route, [Want("reduce", params, size(out))]


def line(op: Op, a: Args, limits: Limits) -> Wanted:
    """Softmax and the place of an extreme: along one dim, or over all that there is."""
    x = words(a["x"])
    dim = a.attrs["dim"]
    x, at = (x.reshape(-1), 0) if dim is None else (x, dim % x.ndim)
    inner = size(x.shape[at + 1 :])
    rows = x.size // x.shape[at]
    softmax = "softmax" in op.short
    want = Want("softmax" if softmax else "arg_extreme", {"rows": rows, "size": x.shape[at], "inner": inner}, rows)
    if softmax:
        want.consts.update(LOG=int("log" in op.short), WG=64 if limits.profile.tiled else 8)
    return "strided" if inner > 1 else "rows", [want]


def norm(op: Op, a: Args, limits: Limits) -> Wanted:
    x, params = a["x"], {"eps": a.num("eps")}
    wg = {"WG": limits.profile.workgroup}
    if op.short == "rms_norm":
        column = len(a["weight"]) > 1
        four = x[-1] % 4 == 0 and not column
        rows, route = size(x[:-1]), "scalar per row" if column else "vec4" if four else "scalar"
        params |= {"rows": rows, "width": x[-1] // 4 if four else x[-1]}
        wg["PER_ROW"] = int(column)
        return route, [Want("rms_norm_vec4" if four else "rms_norm", params, rows, consts=wg)]
    wg = {"WG": 64 if limits.profile.tiled else 8}
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


def qparams(short: str, a: Args, limits: Limits) -> Wanted:
    x = words(a["x"])
    row = x.reshape(-1) if short == "choose_qparams" else x[(0,) * (x.ndim - 1)]
    params = {"width": row.size, "low": a.attrs.get("low", -128), "high": a.attrs.get("high", 127)}
    params |= {"rows": x.size // row.size, "eps": a.num("eps", 2.0**-23)}
    consts = {"WG": limits.profile.workgroup, "BALANCED": int("per_token" in short)}
    return "rows", [Want("choose_qparams", params, x.size // row.size, consts=consts)]


def quantize(short: str, a: Args) -> Wanted:
    """With scales that are a tensor; the elements of a channel are those that share a scale and follow each other."""
    x = words(a["x"])
    if short.endswith("channel"):
        axis = a.int("axis") % x.ndim
        channel, channels = x[(0,) * (axis + 1)].size, x.shape[axis]
    elif short.endswith("affine"):
        channel = int(np.prod(a.attrs["block"]))
        channels = x.size // channel
    else:
        channels = len(x.reshape(-1, x.shape[-1])) if short.endswith("token") else 1
        channel = x.size // channels
    params: dict[str, Any] = {"count": x.size, "channel": channel, "channels": channels}
    if short.startswith("de"):
        return "lanes", [Want("dequantize_channels", params, lanes=x.size, consts={"ZEROS": int("zeros" in a)})]
    low = {"uint8": 0}.get(a.dtypes["out"], -128)
    params |= {"low": a.attrs.get("low", low), "high": a.attrs.get("high", low + 255)}
    consts = {"ZEROS": int("zeros" in a), "TOGETHER": int(short.endswith("token"))}
    return "lanes", [Want("quantize_channels", params, lanes=x.size, consts=consts)]


def pick(a: Args, limits: Limits) -> Wanted:
    """Parts of whole vectors of four over the last row: as many as there may be, each as short as that allows.

    Recent tokens are lowered in a copy of the row, so what follows starts at 0.
    """
    *lead, count = a["x"]
    base, lanes = (size(lead) - 1) * count, limits.profile.workgroup
    most = 64 if limits.profile.tiled else 8
    is_drawn, is_repeat = a["how"][0] % 64 in (5, 7), a["how"][0] > 5
    copied = []
    if is_repeat:
        each = next(n for n in range(1, count + 1) if up(count, n) <= most)
        row = {"base": base, "count": count, "chunk": each, "recent": a["how"][0] - a["how"][0] % 64}
        copied = [Want("pick_repeat", row, up(count, each), consts={"WG": lanes, "AT": 5 * is_drawn})]
        base = 0
    fours = (base + count - 1) // 4 - base // 4 + 1
    most = min(most, up(fours, lanes))
    chunk = next(n for n in range(1, fours + 1) if up(fours, n) <= most)
    parts = len(range(0, fours, chunk))
    params = {"base": base, "count": count, "chunk": chunk, "parts": parts}

    def step(name: str, groups: int, **consts: int) -> Want:
        return Want(f"pick_{name}", params, groups, consts={"WG": lanes, **consts})

    more = "repeat+" * is_repeat
    if not is_drawn:
        return f"{more}greedy", [
            *copied,
            step("parts", parts, SUMS=0),
            step("best", 1, WG=0, IDS=int(a.attrs["feeds"])),
        ]
    draw = step("draw", 1, WG=64, IDS=int(a.attrs["feeds"]))
    drawn = [step("sums", parts), step("ends", 1), step("list", parts), draw]
    return f"{more}drawn", [*copied, step("parts", parts, SUMS=3 * 256), *drawn]


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
    if short == "sdpa":
        return fields_attention.masked(a, limits)
    if short in fields_attention.ALONE:
        return fields_attention.ALONE[short](a)
    if short == "split_with_sizes_copy":
        return "strided", fields_moves.split(a, words(a["x"]), plan.outs)
    if short == "q8ta_pixel_shuffle":
        lanes = size(out) // 4 if size(out) % 4 == 0 else size(out)
        there = fields_moves.pixel_shuffle(a, words(a["x"]), words(out))
        return "strided", [*there, Want("unary", {"count": lanes, "second": a.num("inverse")}, lanes=lanes)]
    if short in fields_create.FILLED:
        return fields_create.filled(short, a, out)
    if short == "arange":
        return fields_create.arange(a)
    if short == "gather":
        return fields_create.gather(a)
    if "table" in a:
        return gather(a, out, limits)
    if short == "embedding_4bit":
        (vocab, half), groups = a["w"], size(a["scales"][1:])
        params = {"count": size(out), "dim": 2 * half, "group": 2 * half // groups, "vocab": vocab}
        return "lanes", [Want("embedding_4bit", params, lanes=size(out), consts={"ZEROS": int("zeros" in a)})]
    if short == "embedding_q4gsw":
        return embedding_q4(a, limits, plain=not fields_q4.packable(2 * a["w"][1], a.int("group"), limits))
    if short.startswith(("q8ta_conv2d", "conv2d_q8ta")):
        return convolution_q8(a, out)
    if short in ("bmm", "mm", "addmm", "_weight_int8pack_mm") or ("linear" in short and "bilinear" not in short):
        return matrix(op, a, out, limits)
    if short == "conv2d_q8csw":
        taps = (a["w"][0], a["x"][1] // a.int("groups"), *a.attrs["kernel"])
        a = Args({**a.dims, "w": taps}, a.attrs)
    if short in ("convolution", "conv_with_clamp", "conv1d_dw", "conv2d_q8csw"):
        return convolution(a, out, limits)
    if "2d" in short or short == "grid_priors":
        return image(op, a, out)
    if short in ("amax", "amin", "sum", "mean", "var"):
        return reduction(op, a, out)
    if "softmax" in short or short in ("argmax", "argmin"):
        return line(op, a, limits)
    if short.endswith("_norm") or "batch_norm" in short:
        return norm(op, a, limits)
    if short == "pick":
        return pick(a, limits)
    if short == "pick_rows":
        return fields_rows.pick(a, limits)
    if short.startswith("choose_qparams"):
        return qparams(short, a, limits)
    if "scales" in a and ("quantize_per" in short or "quantize_affine" in short):
        return quantize(short, a)
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
    if op.short in fields_attention.CACHED and not (op.short == "custom_sdpa" and "mask" in a):
        fields_attention.check(op, a, plan, limits)
        return
    if op.short in fields_rows.ATTENTION:
        fields_rows.check(op, a, plan, limits)
        return
    found = wanted(op, a, plan, limits)
    assert found is not None, f"{op.name}: no one has worked out its plans a second time"
    route, steps = found
    assert plan.route == route, f"{op.name}: route {plan.route}, expected {route}"
    assert len(plan.steps) == len(steps), f"{op.name}: {len(plan.steps)} dispatches, expected {len(steps)}"
    for i, (step, want) in enumerate(zip(plan.steps, steps, strict=True)):
        check_step(step, want, limits, f"{op.name}, dispatch {i}")
