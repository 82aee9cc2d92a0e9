"""From a delegate to a planned graph."""

from __future__ import annotations

from ..errors import UnsupportedError
from ..formats.pte import VULKAN, Delegate
from ..ops.limits import Limits
from .boundary import graph_errors
from .fuse import fuse as fuse_all
from .graph import Graph
from .passes.pick import add_pick
from .planner import Engine


def planned(delegate: Delegate, limits: Limits, *, fuse: bool = True) -> Engine:
    """The delegate's graph with every node planned at its largest dims; nothing is allocated."""
    if delegate.graph is None:
        raise UnsupportedError(f"a part of the model was lowered to {delegate.id}, only {VULKAN} can run here")
    with graph_errors("the graph"):
        vk = add_pick(fuse_all(delegate.graph, limits)) if fuse else delegate.graph
        return Engine(Graph(vk, delegate.constant), limits)
