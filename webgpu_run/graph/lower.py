"""From a delegate to a planned graph."""

from __future__ import annotations

from ..errors import UnsupportedError
from ..formats.pte import VULKAN, Delegate
from ..ops.limits import Limits
from .boundary import graph_errors
from .fuse import fuse as fuse_all
from .graph import Graph
from .passes.all_rows import returns_all_rows, rows_on_demand
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
