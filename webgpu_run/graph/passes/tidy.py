"""Calls that repeat another call, change nothing, or compute what nothing reads."""

from __future__ import annotations

from ...formats.vkgraph import VkTensor
from ...ops.limits import Limits
from ..calls import Ref
from ..pattern import Call, matches
from ..rewrite import NamedCall, Rewrite

SELECT, SIZE = "et_vk.select_as_symint.default", "sym_size.int"
VIEW, CLONE, SLICE = "aten.view_copy.default", "aten.clone.default", "aten.slice_copy.Tensor"
PURE = Call(f"{SLICE} {CLONE} {VIEW} {SIZE} add")  # the ops that passes may leave without a reader

_symint = Call(f"{SELECT} {SIZE}")
_view = Call(VIEW, x="x")


def merge_symints(g: Rewrite, limits: Limits) -> None:
    """One SymInt per number: the same element of the same input, or the same live dim, is read only once."""
    first: dict[tuple[object, ...], Ref] = {}
    duplicates: dict[Ref, Ref] = {}
    for match in matches(g, _symint):
        call = match[_symint]
        number = _number(g, call)
        if number is not None and (symint := first.setdefault(number, call.outputs[0])) != call.outputs[0]:
            duplicates[call.outputs[0]] = symint
            g.remove(call.index)
    g.redirect(duplicates)


def _number(g: Rewrite, call: NamedCall) -> tuple[object, ...] | None:
    """What a SymInt is read from; equal for two calls that read the same number."""
    x, dim = g.tensor(call["x"]), g.value(call["dim"])
    index = g.value(call["index"]) if call.op == SELECT else 0
    if x is None or not isinstance(dim, int) or not isinstance(index, int) or not -len(x.dims) <= dim < len(x.dims):
        return None
    is_last = call.op == SELECT and index == -1 and x.dims[dim] == 1
    return call.op, call["x"], dim, 0 if is_last else index


def drop_views(g: Rewrite, limits: Limits) -> None:
    """Reshapes to the shape that a tensor already has, which the exporter leaves around 2-D matmuls."""
    views: dict[Ref, Ref] = {}
    for match in matches(g, _view):
        view = match[_view]
        x, out = g.value(match["x"]), g.value(view.outputs[0])
        is_same = isinstance(x, VkTensor) and isinstance(out, VkTensor) and (x.dims, x.dtype) == (out.dims, out.dtype)
        if is_same and not g.is_returned(view.outputs[0]):
            views[view.outputs[0]] = match["x"]
            g.remove(view.index)
    g.redirect(views)


def drop_unused(g: Rewrite, limits: Limits) -> None:
    """Copies, slices and SymInts that nothing reads, from the end of the chain to its start."""
    for index in reversed(range(len(g.chain))):
        call = g.chain[index]
        if call is not None and call.name in PURE.ops and not any(map(g.read_count, g.outputs(call))):
            g.remove(index)
