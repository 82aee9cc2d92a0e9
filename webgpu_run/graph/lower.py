"""From a delegate to a planned graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import UnsupportedError
from ..formats.pte import VULKAN, Delegate
from ..formats.vkgraph import VkTensor
from ..ops.limits import Limits
from ..ops.plan import TURNS
from .boundary import graph_errors
from .fuse import fuse as fuse_all
from .graph import Graph
from .passes.all_rows import returns_all_rows, rows_on_demand
from .passes.batch import batched
from .passes.pick import add_pick
from .planner import Engine


def planned(delegate: Delegate, limits: Limits, *, fuse: bool = True, rows: int = 0) -> Engine:
    """The delegate's graph with every node planned at its largest dims; nothing is allocated.

    With `rows`, a language model can return the logits of so many last tokens: see `rows_on_demand`.
    """
    if delegate.graph is None:
        raise UnsupportedError(f"a part of the model was lowered to {delegate.id}, only {VULKAN} can run here")
    with graph_errors("the graph"):
        vk = delegate.graph
        if rows and not returns_all_rows(vk):
            vk = rows_on_demand(vk, rows)
        vk = add_pick(fuse_all(vk, limits), rows) if fuse else vk
        return Engine(Graph(vk, delegate.constant), limits)


def planned_batch(delegate: Delegate, limits: Limits, sequences: int, rows: int) -> Engine:
    """The delegate's graph for a batch of sequences, with every node planned for at most `rows` rows per call."""
    if delegate.graph is None:
        raise UnsupportedError(f"a part of the model was lowered to {delegate.id}, only {VULKAN} can run here")
    with graph_errors("the graph"):
        vk = batched(delegate.graph, limits, sequences)
        engine = Engine(Graph(vk, delegate.constant), limits)
        dims = [engine.live[v] for v in vk.input_ids]
        rows = min(rows, dims[0][1])
        dims[0], dims[2], dims[3], dims[4] = (
            (1, rows),
            (rows, 4),
            (min(rows, *dims[3]),),
            (min(rows, *dims[3]), dims[4][1]),
        )
        engine.resize([np.zeros(d, np.int32) for d in dims])
        values, (ids,) = list(vk.values), engine.graph.nodes[-1].outs
        for v, live in engine.live.items():
            tensor = values[v]
            assert isinstance(tensor, VkTensor)
            values[v] = replace(tensor, dims=(TURNS * live[0],) if v == ids else live)
        return Engine(Graph(replace(vk, values=tuple(values)), delegate.constant), limits)
