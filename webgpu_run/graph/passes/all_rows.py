"""Logits of every row: exporters select the last token before the final norm, because a reply needs no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...errors import UnsupportedError
from ...formats import pte
from ...formats.vkgraph import IntList, OperatorCall, SymInt, Value, ValueList, VkGraph, VkTensor
from .. import calls
from ..pattern import Call
from .tidy import SLICE, VIEW

MAX_LOGITS = 64 << 20  # bytes of logits per call: half of what every WebGPU device can bind
LAST_ROW = "aten.select_copy.int"
# What may follow the select, because it treats every row alike: norm, the linear to the vocabulary, a cap on logits.
PER_ROW = Call(
    "et_vk.rms_norm.default aten.linear.default aten.mm.default aten.addmm.default et_vk.linear_q4gsw.default "
    "et_vk.linear_qcs4w.default et_vk.linear_dq8ca_q4gsw.default et_vk.linear_q8ta_q8csw.default "
    "torchao.choose_qparams_affine.default aten.clone.default aten.mul.Tensor aten.add.Tensor aten.sub.Tensor "
    "aten.div.Tensor aten.tanh.default"
)


def all_rows(method: pte.Method) -> pte.Method:
    """The method with one row of logits per token, [rows, vocabulary], instead of the last token's only.

    A call may then take at most `rows` tokens, so that the logits stay below MAX_LOGITS; with more tokens, the rows
    are those of the last ones. A method that returns every row already is returned as it is.
    """
    tokens, logits = (method.values[ids[0]] if ids else None for ids in (method.inputs, method.outputs))
    if not isinstance(tokens, pte.Tensor) or not isinstance(logits, pte.Tensor) or not logits.dims:
        raise UnsupportedError(f"{method.name!r} does not turn tokens into logits")
    if tokens.dims[-1] == 1 or logits.dims[-2:-1] == tokens.dims[-1:]:
        return method
    rows = max(1, min(tokens.dims[-1], MAX_LOGITS // (4 * logits.dims[-1])))
    delegates = list(method.delegates)
    for step in method.instructions:
        if not isinstance(step, pte.DelegateCall) or method.outputs[0] not in step.args:
            continue
        graph = method.delegates[step.delegate].graph
        assert graph is not None  # another backend's delegate was refused before
        output = graph.output_ids[step.args.index(method.outputs[0]) - len(graph.input_ids)]
        delegates[step.delegate] = replace(delegates[step.delegate], graph=_graph_of_all_rows(graph, output, rows))
        break
    else:
        raise UnsupportedError(f"the logits of {method.name!r} are computed outside its delegates")
    values = list(method.values)
    values[method.outputs[0]] = replace(logits, dims=(rows, logits.dims[-1]), dynamism="bound")
    return replace(method, values=tuple(values), delegates=tuple(delegates))


def rows_on_demand(vk: VkGraph, rows: int) -> VkGraph:
    """The graph with one more input, a SymInt: -n asks for the logits of the last n tokens, at most `rows`.

    With -1 every plan is that of the graph as it was, except for the copy of the last row.
    """
    return _graph_of_all_rows(vk, vk.output_ids[0], rows, on_demand=True)


def returns_all_rows(vk: VkGraph) -> bool:
    """Whether the graph returns logits for each of its tokens already."""
    ids, logits = (vk.values[v[0]] if v else None for v in (vk.input_ids, vk.output_ids))
    is_known = isinstance(ids, VkTensor) and isinstance(logits, VkTensor)
    return is_known and ids.dims[-1] > 1 and logits.dims[-2:-1] == ids.dims[-1:]  # type: ignore[union-attr]


def _graph_of_all_rows(vk: VkGraph, output: int, rows: int, *, on_demand: bool = False) -> VkGraph:
    """The graph with a reshape to [rows, width] in the place of the select; what follows it gets `rows` rows.

    If `on_demand`, an input says where the rows begin.
    """
    at = last_row(vk, output)
    source = vk.values[calls.input_of(vk.chain[at], "x").id]
    assert isinstance(source, VkTensor)
    values = list(vk.values)
    chosen = calls.input_of(vk.chain[at], "x").id
    chain = list(vk.chain[:at])
    if rows < source.dims[1]:  # the last rows; all of them while a call has no more tokens
        inputs = {"x": chosen, "dim": _add(values, 1), "start": _add(values, -rows), "end": _add(values, None)}
        chosen = _add(values, replace(source, dims=(1, rows, source.dims[2])))
        chain.append(calls.make_call(SLICE, {**inputs, "step": _add(values, 1)}, chosen))
    given = vk.input_ids
    if on_demand:
        start, last_rows = _add(values, SymInt(0)), chosen
        given = (*given, start)
        chosen = _add(values, replace(source, dims=(1, min(rows, source.dims[1]), source.dims[2])))
        inputs = {"x": last_rows, "dim": _add(values, 1), "start": start, "end": _add(values, None)}
        chain.append(calls.make_call(SLICE, {**inputs, "step": _add(values, 1)}, chosen))
    dims = _add(values, IntList((-1, source.dims[2])))
    chain.append(calls.make_call(VIEW, {"x": chosen, "dims": dims}, calls.output_of(vk.chain[at])))
    computed = set(tensors_of(vk, vk.chain[at]))
    for call in vk.chain[at + 1 :]:
        chain.append(call)
        if any(v in computed for v in calls.reads(call)):
            if call.name not in PER_ROW.ops:
                raise UnsupportedError(f"{call.name} follows the select of the last row, and it may mix rows")
            computed.update(tensors_of(vk, call))
    for v in computed:
        tensor = vk.values[v]
        assert isinstance(tensor, VkTensor)
        values[v] = replace(tensor, dims=(rows, *tensor.dims[1:]))
    return replace(vk, values=tuple(values), chain=tuple(chain), input_ids=given)


def last_row(vk: VkGraph, output: int) -> int:
    """Index of the call x[:, -1] whose result the output is computed from."""
    needed = {output}
    for at in reversed(range(len(vk.chain))):
        call = vk.chain[at]
        if needed.isdisjoint(tensors_of(vk, call)):
            continue
        if call.name == LAST_ROW:
            x, dim, index = (vk.values[calls.input_of(call, name).id] for name in ("x", "dim", "index"))
            if isinstance(x, VkTensor) and len(x.dims) == 3 and x.dims[0] == 1 and (dim, index) == (1, -1):
                return at
        needed.update(calls.reads(call))
    raise UnsupportedError("the graph has no select of the last row that could be removed")


def tensors_of(vk: VkGraph, call: OperatorCall) -> Iterator[int]:
    """Ids of the tensors that the call computes."""
    output = calls.output_of(call)
    value = vk.values[output]
    for v in value.items if isinstance(value, ValueList) else (output,):
        if isinstance(vk.values[v], VkTensor):
            yield v


def _add(values: list[Value], value: Value) -> int:
    values.append(value)
    return len(values) - 1
