"""A batch of sequences in one graph: every row of a call is a token of some sequence at some position.

The graph of a language model treats all rows alike except in its attention and in the select of the last row. Here the
attention finds the sequence and position of each row in an input, and the select becomes a choice of rows by another.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import UnsupportedError
from ...formats.vkgraph import IntList, OperatorCall, SymInt, Value, VkGraph, VkTensor
from ...ops.choice import MOST_RECENT, WORDS
from ...ops.limits import Limits
from ...ops.plan import TURNS
from .. import calls
from ..fuse import PASSES, fuse
from ..pattern import Call, Is, matches
from ..rewrite import Rewrite
from .all_rows import PER_ROW, last_row, tensors_of
from .attention import (
    ATTENTION,
    ATTENTION_ROWS,
    PROJECTED_ATTENTION_ROWS,
    fuse_projection,
    fuse_projection_rows,
)
from .linears import FUSED_1, FUSED_2, FUSED_3
from .tidy import CLONE, SELECT, SIZE, SLICE, VIEW, drop_unused

PICK_ROWS, TAKE = "wr.pick_rows", "aten.index_select.default"
# Ops that treat every row alike, or only move what is no row: besides those of `PER_ROW`.
_OF_ROWS = frozenset((ATTENTION_ROWS, PROJECTED_ATTENTION_ROWS))
_ALIKE = (
    _OF_ROWS
    | PER_ROW.ops
    | frozenset(
        f"{VIEW} {CLONE} {SELECT} {SIZE} {SLICE} {FUSED_1} {FUSED_2} {FUSED_3} {TAKE} add "
        "et_vk.prepack.default et_vk.embedding_q4gsw.default aten.embedding.default aten.sigmoid.default "
        "aten.gelu.default aten.relu.default aten.native_layer_norm.default".split()
    )
)
_attention = Call(ATTENTION, absolute=Is(True))


def batched(vk: VkGraph, limits: Limits, sequences: int) -> VkGraph:
    """The fused graph for `sequences` sequences; UnsupportedError if the graph does not have the form for it.

    Inputs are the tokens [1, S], the largest position [1], the `rows` [S, 4] of wr.attention_rows, the indices [P] of
    the rows whose next token is wanted, and their sampler words [P, W]. It computes the logits [P, vocabulary], which
    are its output, and the chosen ids [P], the result of its last call. These are also the first P tokens of the next
    turn of a submission.
    """
    if not _takes_tokens(vk):
        raise UnsupportedError("it does not turn tokens and a position into logits")
    values = list(vk.values)
    tokens = vk.values[vk.input_ids[0]]
    assert isinstance(tokens, VkTensor)
    most = min(tokens.dims[1], sequences)
    rows, wanted = (_add(values, VkTensor("int32", dims)) for dims in ((tokens.dims[1], 4), (most,)))
    how = _add(values, VkTensor("int32", (most, WORDS + 2 + MOST_RECENT)))
    vk = replace(vk, values=tuple(values), input_ids=(*vk.input_ids, rows, wanted, how))
    vk = fuse(_choose_rows(vk, wanted, most), limits, [p for p in PASSES if p is not fuse_projection])
    g = Rewrite(vk)
    for match in matches(g, _attention):
        call = match[_attention]
        inputs = call.some("xq", "xk", "v", "kc", "vc", "pos", "cos", "sin", "halves", "scale")
        if g.value(call["mask"]) is None and g.value(call["causal"]) is True:
            match.replace(ATTENTION_ROWS, **inputs, rows=calls.Ref(rows), sequences=sequences)
    drop_unused(g, limits)
    fuse_projection_rows(g, limits)
    vk = g.finish()
    _check(vk)
    values = list(vk.values)
    chosen = _add(values, VkTensor("int32", (TURNS * most,)))  # each turn of a submission has a place for its ids
    pick = calls.make_call(PICK_ROWS, {"x": vk.output_ids[0], "how": how, "feeds": _add(values, True)}, chosen)
    return replace(vk, values=tuple(values), chain=(*vk.chain, pick))


def _takes_tokens(vk: VkGraph) -> bool:
    if len(vk.input_ids) != 2 or len(vk.output_ids) != 1:
        return False
    tokens, position, logits = (vk.values[v] for v in (*vk.input_ids, vk.output_ids[0]))
    return (
        isinstance(tokens, VkTensor)
        and isinstance(position, VkTensor)
        and isinstance(logits, VkTensor)
        and (tokens.dtype, tokens.dims[:-1], position.dims) == ("int32", (1,), (1,))
        and logits.dtype.startswith("float")
        and logits.dims[:1] == (1,)
    )


def _choose_rows(vk: VkGraph, wanted: int, most: int) -> VkGraph:
    """The graph with a choice of rows in the place of the select of the last one, or of all logits at the end."""
    values, (output,) = list(vk.values), vk.output_ids
    try:
        at = last_row(vk, output)
    except UnsupportedError:
        at = len(vk.chain)
    source = calls.input_of(vk.chain[at], "x").id if at < len(vk.chain) else output
    tensor = vk.values[source]
    assert isinstance(tensor, VkTensor)
    if len(tensor.dims) != 3:
        raise UnsupportedError(f"its logits have dims {list(tensor.dims)}, expected one row per token")
    taken = _add(values, replace(tensor, dims=(1, most, tensor.dims[2])))
    take = calls.make_call(TAKE, {"table": source, "dim": _add(values, 1), "index": wanted}, taken)
    target = calls.output_of(vk.chain[at]) if at < len(vk.chain) else _add(values, tensor)
    values[target] = replace(tensor, dims=(most, tensor.dims[2]))
    view = calls.make_call(VIEW, {"x": taken, "dims": _add(values, IntList((-1, tensor.dims[2])))}, target)
    computed, chain = {target}, [*vk.chain[:at], take, view]
    for call in vk.chain[at + 1 :]:
        chain.append(call)
        if any(v in computed for v in calls.reads(call)):
            if call.name not in PER_ROW.ops:
                raise UnsupportedError(f"{call.name} follows the select of the last row")
            for v in tensors_of(vk, call):
                old = values[v]
                assert isinstance(old, VkTensor)
                values[v] = replace(old, dims=(most, *old.dims[1:]))
                computed.add(v)
    outputs = (target if at == len(vk.chain) else output,)
    return replace(vk, values=tuple(values), chain=tuple(chain), output_ids=outputs)


def _check(vk: VkGraph) -> None:
    """Refuse a graph in which anything but the attention of a batch may depend on the position or on other rows."""
    positions: set[int] = set()
    for call in vk.chain:
        if call.name not in _ALIKE:
            raise UnsupportedError(f"{call.name} may mix rows")
        is_symint = isinstance(vk.values[calls.output_of(call)], SymInt)
        if call.name == SELECT or (is_symint and not positions.isdisjoint(calls.reads(call))):
            positions.add(calls.output_of(call))
        elif call.name not in _OF_ROWS and not positions.isdisjoint(calls.reads(call)):
            raise UnsupportedError(f"{call.name} reads the position")
        elif call.name == SLICE and not _is_slice_of_columns(vk, call):
            raise UnsupportedError(f"{call.name} may mix rows")
    if not any(call.name in _OF_ROWS for call in vk.chain):
        raise UnsupportedError("it has no attention over KV caches that a batch could share")


def _is_slice_of_columns(vk: VkGraph, call: OperatorCall) -> bool:
    x, dim = (vk.values[calls.input_of(call, name).id] for name in ("x", "dim"))
    return isinstance(x, VkTensor) and (x.constant_id >= 0 or dim in (-1, len(x.dims) - 1))


def _add(values: list[Value], value: Value) -> int:
    values.append(value)
    return len(values) - 1
