"""From a delegate to a planned graph."""

from __future__ import annotations

from ..errors import UnsupportedError
from ..formats.pte import VULKAN, Delegate
from ..ops.limits import Limits
from . import fuse as fuser
from .graph import Graph
from .planner import Engine


def planned(delegate: Delegate, limits: Limits, *, fuse: bool = True) -> Engine:
    """A delegate's graph with every node planned at its largest; nothing is allocated."""
    if delegate.graph is None:
        raise UnsupportedError(f"a part of the model was lowered to {delegate.id}, only {VULKAN} can run here")
    vk = fuser.add_pick(fuser.fuse(delegate.graph, limits)) if fuse else delegate.graph
    return Engine(Graph(vk, delegate.constant), limits)
