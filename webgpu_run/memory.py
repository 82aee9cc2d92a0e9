"""Which tensors share a buffer."""

from __future__ import annotations

from collections.abc import Mapping

from .graph import Graph


class Memory:
    """Which roots share a buffer: greedy by lifetime, so that no live tensor is ever overwritten."""

    def __init__(self, graph: Graph, sizes: Mapping[int, int]) -> None:
        last: dict[int, int] = {}
        for node in graph.nodes:
            for v in (*node.tensors.values(), *node.outs):
                if v in graph.tensors:
                    last[graph.tensors[v].root] = node.index
        own = {graph.tensors[v].root for v in (*graph.input_ids, *graph.output_ids) if v in graph.tensors}
        self.place: dict[int, int] = {}  # root -> buffer
        self.sizes: list[int] = []
        free: list[int] = []

        def take(root: int, shared: bool) -> None:
            size = sizes[root]
            fits = [b for b in free if shared]
            if fits:  # the smallest that holds it, else the largest, grown
                best = min(fits, key=lambda b: (self.sizes[b] < size, abs(self.sizes[b] - size)))
                free.remove(best)
                self.sizes[best] = max(self.sizes[best], size)
                self.place[root] = best
            else:
                self.place[root] = len(self.sizes)
                self.sizes.append(size)

        for root in sorted(own):
            if graph.tensors[root].constant < 0:
                take(root, False)
        for node in graph.nodes:
            roots = [graph.tensors[v].root for v in node.outs if v in graph.tensors]
            for root in roots:
                if root not in self.place and graph.tensors[root].constant < 0:
                    take(root, True)
            for v in {*node.tensors.values(), *node.outs}:
                root = graph.tensors[v].root if v in graph.tensors else -1
                if root in self.place and root not in own and last[root] == node.index and self.place[root] not in free:
                    free.append(self.place[root])
