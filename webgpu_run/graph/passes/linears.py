"""4-bit linears: those that read the same rows become one call, which also takes in what comes before and after it."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops import q4_layout
from ...ops.limits import Limits
from ..pattern import Call, Is, matches
from ..rewrite import Input, NamedCall, Rewrite

LINEAR = "et_vk.linear_q4gsw.default"
FUSED_1, FUSED_2, FUSED_3 = FUSED = tuple(f"wr.linear_q4gsw.{n}" for n in (1, 2, 3))  # with as many outputs
ADD, MUL, SIGMOID = "aten.add.Tensor", "aten.mul.Tensor", "aten.sigmoid.default"
RMS_NORM = "et_vk.rms_norm.default"


def can_fuse(g: Rewrite, linears: Sequence[NamedCall], limits: Limits) -> bool:
    """Whether one kernel can compute them: same group size, a bias for all or none, and dims that it takes."""
    group = g.value(linears[0]["group"])
    tensors = [g.tensor(linears[0]["x"]), *(g.tensor(linear["w"]) for linear in linears)]
    x, *weights = [t.dims if t is not None else () for t in tensors]
    return (
        bool(x and all(weights))
        and isinstance(group, int)
        and group > 0
        and all(g.value(linear["group"]) == group for linear in linears)
        and len({g.value(linear["bias"]) is None for linear in linears}) == 1
        and q4_layout.fits(x[-1], group, [w[0] for w in weights], limits)
    )


def fused_inputs(g: Rewrite, linears: Sequence[NamedCall], *, swiglu: bool = False) -> dict[str, Input]:
    """Inputs of the fused linear for several that read the same rows."""
    biased = g.value(linears[0]["bias"]) is not None
    return {
        "x": linears[0]["x"],
        "w": [linear["w"] for linear in linears],
        "scales": [linear["scales"] for linear in linears],
        "group": linears[0]["group"],
        "bias": [linear["bias"] for linear in linears] if biased else [],
        "norm": None,
        "eps": 0.0,
        "res": None,
        "swiglu": swiglu,
        "rounded": False,
    }


_gate = Call(LINEAR, x="x", bias=Is(None))
_up = Call(LINEAR, x="x")
_silu = Call(MUL, a=_gate, b=Call(SIGMOID, x=_gate), commutes=True)
_swiglu = Call(MUL, a=_silu, b=_up, commutes=True)


def fuse_swiglu(g: Rewrite, limits: Limits) -> None:
    """silu(x gate) * (x up): two linears, a sigmoid and two muls become one linear."""
    for match in matches(g, _swiglu):
        linears = [match[_gate], match[_up]]
        if can_fuse(g, linears, limits):
            match.replace(FUSED_1, **fused_inputs(g, linears, swiglu=True))


def fuse_siblings(g: Rewrite, limits: Limits) -> None:
    """Up to three linears that read the same rows become one with an output each; a single one takes the same form."""
    siblings: dict[int, list[NamedCall]] = {}
    for match in matches(g, _up):
        siblings.setdefault(match["x"].id, []).append(match[_up])
    for linears in siblings.values():
        together = len(linears) <= len(FUSED) and can_fuse(g, linears, limits)
        for group in [linears] if together else [[linear] for linear in linears]:
            if together or can_fuse(g, group, limits):
                for linear in group:
                    g.remove(linear.index)
                outputs = [linear.outputs[0] for linear in group]
                g.put(group[0].index, FUSED[len(group) - 1], fused_inputs(g, group), outputs)


_linear = Call(FUSED_1, res=Is(None), swiglu=Is(False))
_sum = Call(ADD, a=_linear["out0"], b="residual", alpha=Is(1), commutes=True)


def fuse_residual(g: Rewrite, limits: Limits) -> None:
    """residual + linear(x): the linear adds where it writes."""
    for match in matches(g, _sum):
        linear = match[_linear]
        out, residual = g.tensor(linear.outputs[0]), g.tensor(match["residual"])
        if out is not None and residual is not None and out.dims == residual.dims:
            match.replace(linear.op, **linear.but(res=match["residual"]))


_norm = Call(RMS_NORM)
_normed = Call(" ".join(FUSED), x=_norm, norm=Is(None))


def fuse_norm(g: Rewrite, limits: Limits) -> None:
    """linear(rms_norm(x)): the linear scales its rows itself."""
    for match in matches(g, _normed):
        norm, linear = match[_norm], match[_normed]
        weight = g.tensor(norm["weight"])
        if weight is None or len(weight.dims) != 1:  # the factor of each row is no weight of columns
            continue
        match.replace(linear.op, **linear.but(x=norm["x"], norm=norm["weight"], eps=norm["eps"]))
