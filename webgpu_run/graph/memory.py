"""Which tensors share a buffer."""

from __future__ import annotations

from collections.abc import Mapping

from .graph import Graph


class Memory:
    """Which root tensors share a buffer. Two that are alive at the same time never do.

    Tensors are placed by falling size, so that a buffer is as large as its first tensor, and later ones use it at
    times when it is free.
    """

    def __init__(self, graph: Graph, sizes: Mapping[int, int]) -> None:
        ends = (*graph.input_ids, *graph.output_ids)
        alive = {graph.tensors[v].root: (-1, len(graph.nodes)) for v in ends if v in graph.tensors}
        for node in graph.nodes:
            for v in (*node.tensors.values(), *node.outs):
                if v in graph.tensors:
                    first, last = alive.get(graph.tensors[v].root, (node.index, node.index))
                    alive[graph.tensors[v].root] = first, max(last, node.index)
        self.place: dict[int, int] = {}  # root -> buffer
        self.sizes: list[int] = []
        busy: list[list[tuple[int, int]]] = []  # per buffer: (first node, last node) of its tensors
        roots = [root for root in alive if graph.tensors[root].constant < 0]
        for root in sorted(roots, key=lambda r: (-sizes[r], r)):
            start, end = alive[root]
            free = (b for b, spans in enumerate(busy) if all(end < first or last < start for first, last in spans))
            b = next(free, len(busy))
            if b == len(busy):
                busy.append([])
                self.sizes.append(sizes[root])
            busy[b].append((start, end))
            self.place[root] = b
