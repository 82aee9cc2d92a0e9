"""Fusion: several ops of the exporter become one op of ours with the same meaning.

The ops that passes create are named `wr.*` and live in ops/. A value that the graph returns, or that a call outside
the fused ones reads, is never folded away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..formats.vkgraph import VkGraph
from ..ops.limits import Limits
from .boundary import graph_errors
from .calls import has_all_arguments
from .passes.attention import fuse_attention, fuse_projection
from .passes.last_row import fuse_last_row
from .passes.linears import fuse_norm, fuse_residual, fuse_siblings, fuse_swiglu
from .passes.rounding import fold_rounding, round_rows
from .passes.tidy import drop_unused, drop_views, merge_symints
from .rewrite import Rewrite

Pass = Callable[[Rewrite, Limits], None]

PASSES: tuple[Pass, ...] = (
    merge_symints,
    drop_views,
    round_rows,
    fuse_swiglu,
    fuse_siblings,
    fold_rounding,
    fuse_residual,
    fuse_norm,
    fuse_last_row,
    fuse_attention,
    drop_unused,
    fuse_projection,
)


def fuse(vk: VkGraph, limits: Limits, passes: Iterable[Pass] = PASSES) -> VkGraph:
    """Run the passes. A graph with a call that lacks arguments stays as it is, because Graph refuses it by name."""
    if not all(map(has_all_arguments, vk.chain)):
        return vk
    g = Rewrite(vk)
    with graph_errors(g.place):
        for run in passes:
            run(g, limits)
    return g.finish()
