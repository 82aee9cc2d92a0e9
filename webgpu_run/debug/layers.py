"""Which layer of a transformer a node belongs to, derived from how the graph repeats."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from ..graph.graph import Graph

_ANCHORS = ("attention", "sdpa", "update_cache")


def layers_of(graph: Graph, count: int | None = None) -> list[int]:
    """The layer of each node, or -1 if it is in none."""
    # SymInt nodes run once; the exporter places them inside the first layer.
    nodes = [node for node in graph.nodes if node.op.out_kind != "symint"]
    out = [-1] * len(graph.nodes)
    layers = repeated([node.op.name for node in nodes], _anchors([node.op.short for node in nodes], count))
    for node, layer in zip(nodes, layers, strict=True):
        out[node.index] = layer
    return out


def _anchors(shorts: Sequence[str], count: int | None) -> list[int]:
    """One node per layer: attention, or else an op that occurs `count` times."""
    times = Counter(shorts)
    for anchor in _ANCHORS:
        candidates = [name for name in times if anchor in name and (count is None or times[name] == count)]
        if candidates:
            return [i for i, name in enumerate(shorts) if name == candidates[0]]
    candidates = [name for name, n in times.items() if count and n == count]
    return [i for i, name in enumerate(shorts) if candidates and name == candidates[0]]


def repeated(names: Sequence[str], anchors: Sequence[int]) -> list[int]:
    """Layer numbers: the longest sequence of ops around the anchors that repeats at their distance."""
    out = [-1] * len(names)
    if len(anchors) < 2:
        return out
    gaps = {b - a for a, b in itertools.pairwise(anchors)}
    if len(gaps) > 1:  # layers have different lengths: each ends with its anchor
        starts = [0, *(a + 1 for a in anchors[:-1])]
        for layer, (a, b) in enumerate(zip(starts, anchors, strict=True)):
            out[a : b + 1] = [layer] * (b + 1 - a)
        return out
    period, n = gaps.pop(), len(anchors)
    start = anchors[0]
    while start > 0 and anchors[0] - start < period - 1 and names[start - 1] == names[start - 1 + period]:
        start -= 1
    for layer in range(n):
        a = start + layer * period
        out[a : min(a + period, len(names))] = [layer] * (min(a + period, len(names)) - a)
    return out
