"""Weights that a graph computes from its constants, such as those of a weight norm, are computed once, at load.

Kernels pack weights into a layout of their own, so a weight must be a constant. Only what such a weight needs is
evaluated, with the references of the ops; any other graph is returned as it is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..formats.pte import Delegate
from ..formats.source import Span
from ..formats.vkgraph import Constant, OperatorCall, VkGraph, VkTensor
from ..ops.spec import load_all
from ..shapes import Array
from .calls import output_of, reads
from .graph import Graph


def fold_weights(delegate: Delegate) -> Delegate:
    """The delegate with a new constant for each weight that is computed from constants alone."""
    vk = delegate.graph
    if vk is None:
        return delegate
    producers = {output_of(call): index for index, call in enumerate(vk.chain)}
    needed: dict[int, set[int]] = {}  # weight -> the calls that compute it
    for call in vk.chain:
        for v in _weights(call):
            calls = _cone(vk, producers, v) if v in producers else None
            if calls:
                needed[v] = calls
    if not needed:
        return delegate
    chain = tuple(vk.chain[index] for index in sorted(set().union(*needed.values())))
    arrays = _evaluated(replace(vk, chain=chain, input_ids=(), output_ids=tuple(needed)), delegate)
    values, spans = list(vk.values), list(delegate.constants)
    for v in needed:
        tensor = vk.values[v]
        assert isinstance(tensor, VkTensor)
        values[v] = replace(tensor, constant_id=len(spans))
        spans.append(Span.of(arrays[v].astype(tensor.dtype).tobytes()))
    kept = tuple(call for call in vk.chain if output_of(call) not in needed)
    constants = vk.constants + tuple(Constant(span.nbytes, 0) for span in spans[len(vk.constants) :])
    graph = replace(vk, chain=_live(kept, vk), values=tuple(values), constants=constants)
    return replace(delegate, graph=graph, constants=tuple(spans))


def _weights(call: OperatorCall) -> list[int]:
    op = load_all().get(call.name)
    params = zip(op.params, call.args, strict=False) if op else ()
    return [v for param, v in params if param.kind == "tensor" and (param.constant or param.role == "weight")]


def _cone(vk: VkGraph, producers: dict[int, int], weight: int) -> set[int] | None:
    """The calls that compute a value; None if one of them reads more than constants, or has no reference."""
    calls: set[int] = set()
    waiting = [weight]
    while waiting:
        v = waiting.pop()
        value = vk.values[v]
        if v not in producers:
            if isinstance(value, VkTensor) and value.constant_id < 0:
                return None
            continue
        index = producers[v]
        op = load_all().get(vk.chain[index].name)
        if op is None or op.reference is None or op.out_kind != "tensor":
            return None
        if index not in calls:
            calls.add(index)
            waiting += reads(vk.chain[index])
    return calls


def _evaluated(vk: VkGraph, delegate: Delegate) -> dict[int, Array]:
    graph = Graph(vk, delegate.constant)
    arrays: dict[int, Array] = {}
    for node in graph.nodes:
        given = {n: arrays[v] if v in arrays else graph.constant(v) for n, v in node.tensors.items()}
        assert node.op.reference is not None
        with np.errstate(all="ignore"):
            (arrays[node.outs[0]],) = node.op.reference(node.args_at({}), given)
    return arrays


def _live(chain: tuple[OperatorCall, ...], vk: VkGraph) -> tuple[OperatorCall, ...]:
    """The chain without calls that nothing reads any more."""
    before = {v for call in vk.chain for v in reads(call)}
    while True:
        read = {v for call in chain for v in reads(call)} | set(vk.output_ids)
        kept = tuple(c for c in chain if output_of(c) in read or output_of(c) not in before)
        if len(kept) == len(chain):
            return kept
        chain = kept
