"""The choice of the next token as a part of the graph."""

from __future__ import annotations

from dataclasses import replace

from ...formats.vkgraph import VkGraph, VkTensor
from ...ops.choice import MOST_WORDS
from ...ops.plan import TURNS
from .. import calls

PICK = "wr.pick"


def add_pick(vk: VkGraph) -> VkGraph:
    """Append a `pick` node that turns logits into the next token id.

    It adds one input, the sampler's settings, and applies to graphs that take ids and return logits. Each of the turns
    of a submission has a place for its id.
    """
    ids, logits = (vk.values[v[0]] if v else None for v in (vk.input_ids, vk.output_ids))
    if not (
        isinstance(ids, VkTensor)
        and isinstance(logits, VkTensor)
        and (ids.dtype, len(ids.dims), ids.dims[:1]) == ("int32", 2, (1,))
        and logits.dtype.startswith("float")
        and len(logits.dims) in (2, 3)
        and logits.dims[0] == 1
    ):
        return vk
    settings, chosen, feeds = range(len(vk.values), len(vk.values) + 3)
    inputs = {"x": vk.output_ids[0], "how": settings, "feeds": feeds}
    values = (*vk.values, VkTensor("int32", (MOST_WORDS,)), VkTensor("int32", (TURNS,)), True)
    call = calls.make_call(PICK, inputs, chosen)
    return replace(vk, values=values, chain=(*vk.chain, call), input_ids=(*vk.input_ids, settings))
