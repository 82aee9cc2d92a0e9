"""Which tensors share a buffer."""

from __future__ import annotations

from collections.abc import Mapping

from .graph import Graph


class Memory:
    """Which roots share a buffer, so that no live tensor is ever overwritten.

    The largest choose first: a buffer is as large as its first tensor, and smaller ones fill the gaps in its time.
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
        held: list[list[tuple[int, int]]] = []  # when each buffer is in use
        roots = [root for root in alive if graph.tensors[root].constant < 0]
        for root in sorted(roots, key=lambda r: (-sizes[r], r)):
            start, end = alive[root]
            free = (b for b, spans in enumerate(held) if all(end < first or last < start for first, last in spans))
            b = next(free, len(held))
            if b == len(held):
                held.append([])
                self.sizes.append(sizes[root])
            held[b].append((start, end))
            self.place[root] = b
