"""Linears whose activations are quantized to 8 bits per row: the fused 4-bit linear rounds its rows itself."""

from __future__ import annotations

from ...formats.vkgraph import IntList, VkTensor
from ...ops import q8
from ...ops.limits import Limits
from ..calls import ROUND, Ref
from ..pattern import Call, Is, computed_by, matches
from ..rewrite import Rewrite
from .linears import FUSED, LINEAR, can_fuse

DYNAMIC = "et_vk.linear_dq8ca_q4gsw.default"
CHOOSE = "torchao.choose_qparams_affine.default"

_choose = Call(
    CHOOSE, x="x", mode=Is("ASYMMETRIC"), block="block", low=Is(q8.LOW), high=Is(q8.HIGH), eps=Is(None, q8.EPS)
)
_dynamic = Call(DYNAMIC, x="x", scale=_choose["scale"], zero=_choose["zero"])


def round_rows(g: Rewrite, limits: Limits) -> None:
    """A linear with 8-bit rows becomes a plain one of rounded rows; linears of the same rows share one rounding."""
    rounded: dict[Ref, Ref] = {}
    for match in matches(g, _dynamic):
        linear, choose, x = match[_dynamic], match[_choose], g.tensor(match["x"])
        if x is None or g.value(match["block"]) != IntList((1,) * (len(x.dims) - 1) + x.dims[-1:]):
            continue
        if not can_fuse(g, [linear], limits):
            continue
        is_shared = match["x"] in rounded
        if not is_shared:
            rounded[match["x"]] = g.add(VkTensor(x.dtype, x.dims))
        rows = rounded[match["x"]]
        match.replace(LINEAR, x=rows, **linear.some("w", "scales", "group", "bias"))
        if not is_shared:
            g.put(choose.index, ROUND, {"x": match["x"]}, [rows])


_linear = Call(" ".join(FUSED), x="rows")
_round = Call(ROUND, x="x")


def fold_rounding(g: Rewrite, limits: Limits) -> None:
    """Every fused linear of rounded rows rounds them itself; the shared rounding goes with its last reader."""
    for match in matches(g, _linear):
        rounding = computed_by(g, match["rows"], _round)
        if rounding is not None:
            linear = match[_linear]
            match.replace(linear.op, **linear.but(x=rounding["x"], rounded=True))
            if not g.read_count(match["rows"]):
                g.remove(rounding[_round].index)
