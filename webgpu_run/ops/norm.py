"""Layer, group and batch norm. Layer and group norm take one workgroup per row or group."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, ceil_div, prod
from .limits import Limits
from .plan import Plan, Step, fold, need
from .spec import Args, Case, op

WG = 64


def normalised(x: Array, eps: float) -> tuple[Array, Array, Array]:
    """Rows [R, W] in float64: (x - mean) * rstd, mean, rstd."""
    mean = x.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(-1, keepdims=True) + eps)
    return (x - mean) * rstd, mean, rstd


def _affine(a: Args, t: Mapping[str, Array], y: Array) -> Array:
    if "weight" in a:
        y = y * t["weight"].astype(np.float64)
    return y + t["bias"].astype(np.float64) if "bias" in a else y


def layer_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    x, width = t["x"].astype(np.float64), prod(a.attrs["shape"])
    y, mean, rstd = normalised(x.reshape(-1, width), a.num("eps"))
    lead = (*a["x"][: len(a["x"]) - len(a.attrs["shape"])], *(1,) * len(a.attrs["shape"]))
    return [_affine(a, t, y.reshape(x.shape)), mean.reshape(lead), rstd.reshape(lead)]


def _step(a: Args, rows: int, width: int, channel: int, channels: int, limits: Limits) -> Step:
    """One workgroup per row; element i of row r has weight and bias number (r * width + i) / channel % channels."""
    rename = tuple((n, "x") for n in ("weight", "bias") if n not in a)
    return Step(
        "layer_norm",
        (("rows", rows), ("width", width), ("channel", channel), ("channels", channels), ("eps", a.num("eps"))),
        fold(rows, limits, f"{rows} rows"),
        (("WG", limits.profile.row_lanes), ("WEIGHT", int("weight" in a)), ("BIAS", int("bias" in a))),
        rename=rename,
        work=(8 * rows * width, 6 * rows * width),
    )


@op(
    "aten.native_layer_norm.default",
    "x shape:shape weight?:norm bias?:norm eps:num -> [out,mean,rstd]",
    reference=layer_reference,
    cases=(
        Case(
            {"x": (1, 11, 96), "weight": (96,), "bias": (96,)},
            {"shape": (96,), "eps": 1e-5},
            ({"x": (1, 1, 96)}, {"x": (1, 6, 96)}),
        ),
        Case({"x": (7, 37)}, {"shape": (37,), "eps": 1e-5}),
        Case({"x": (3, 5, 7), "weight": (5, 7)}, {"shape": (5, 7), "eps": 1e-3}, ({"x": (1, 5, 7)},)),
    ),
)
def layer_norm(a: Args, limits: Limits) -> Plan:
    x, shape = a["x"], a.attrs["shape"]
    need(len(shape) > 0 and x[-len(shape) :] == tuple(shape), f"x has dims {list(x)}, the norm is over {list(shape)}")
    for name in ("weight", "bias"):
        need(name not in a or a[name] == tuple(shape), f"{name} does not have dims {list(shape)}")
    width = prod(tuple(shape))
    rows = prod(x) // width if width else 0
    lead = (*x[: len(x) - len(shape)], *(1,) * len(shape))
    if not rows:
        return Plan((x, lead, lead), (), "empty")
    return Plan((x, lead, lead), (_step(a, rows, width, 1, width, limits),), "rows")


def group_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    n, c, groups = a["x"][0], a["x"][1], a.int("groups")
    y, mean, rstd = normalised(t["x"].astype(np.float64).reshape(n * groups, -1), a.num("eps"))
    per = {k: v.reshape(1, c, 1) for k, v in t.items() if k != "x"}
    return [_affine(a, per, y.reshape(n, c, -1)).reshape(a["x"]), mean.reshape(n, groups), rstd.reshape(n, groups)]


@op(
    "aten.native_group_norm.default",
    "x weight?:norm bias?:norm _ _ _ groups:int eps:num -> [out,mean,rstd]",
    reference=group_reference,
    cases=(
        Case({"x": (2, 6, 3, 5), "weight": (6,), "bias": (6,)}, {"groups": 3, "eps": 1e-5}, ({"x": (1, 6, 2, 5)},)),
        Case({"x": (1, 4, 7)}, {"groups": 1, "eps": 1e-5}),
        Case({"x": (2, 10, 3)}, {"groups": 5, "eps": 1e-5}, ({"x": (1, 10, 3)},)),
    ),
)
def group_norm(a: Args, limits: Limits) -> Plan:
    x, groups = a["x"], a.int("groups")
    need(len(x) >= 2 and groups > 0 and x[1] % groups == 0, f"{list(x)} has no {groups} groups of channels")
    for name in ("weight", "bias"):
        need(name not in a or a[name] == x[1:2], f"{name} does not have {x[1]} elements")
    stats = (x[0], groups)
    if not prod(x):
        return Plan((x, stats, stats), (), "empty")
    rows = x[0] * groups
    return Plan((x, stats, stats), (_step(a, rows, prod(x) // rows, prod(x[2:]), x[1], limits),), "groups")


def batch_reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    lead = (1, -1, *(1,) * (len(a["x"]) - 2))
    per = {k: v.astype(np.float64).reshape(lead) for k, v in t.items() if k != "x"}
    y = (t["x"].astype(np.float64) - per["mean"]) / np.sqrt(per["var"] + a.num("eps"))
    return [_affine(a, per, y), np.empty(0, np.float32), np.empty(0, np.float32)]


def batch_make(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    return {"var": rng.uniform(0.1, 4, a["var"]).astype(np.float32)}


@op(
    "aten._native_batch_norm_legit_no_training.default",
    "x weight?:norm bias?:norm mean:norm var:norm _ eps:num -> [out,saved_mean,saved_rstd]",
    reference=batch_reference,
    make=batch_make,
    cases=(
        Case(
            {"x": (2, 6, 3, 5), "weight": (6,), "bias": (6,), "mean": (6,), "var": (6,)},
            {"eps": 1e-5},
            ({"x": (1, 6, 2, 5)}, {"x": (2, 6, 1, 1)}),
        ),
        Case({"x": (3, 37), "mean": (37,), "var": (37,)}, {"eps": 1e-3}, ({"x": (1, 37)},)),
    ),
)
def batch_norm(a: Args, limits: Limits) -> Plan:
    """Inference only: the mean and variance are those of training, and the statistics of this batch are empty."""
    x = a["x"]
    need(len(x) >= 2, f"{list(x)} has no channels")
    for name in ("weight", "bias", "mean", "var"):
        need(name not in a or a[name] == x[1:2], f"{name} does not have {x[1]} elements")
    outs = (x, (0,), (0,))
    if not prod(x):
        return Plan(outs, (), "empty")
    step = Step(
        "batch_norm",
        (("count", prod(x)), ("channel", prod(x[2:])), ("channels", x[1]), ("eps", a.num("eps"))),
        fold(ceil_div(prod(x), WG), limits, f"{prod(x)} elements"),
        (("WG", WG), ("WEIGHT", int("weight" in a)), ("BIAS", int("bias" in a))),
        rename=tuple((n, "mean") for n in ("weight", "bias") if n not in a),
        work=(8 * prod(x), 4 * prod(x)),
    )
    return Plan(outs, (step,), "lanes")
