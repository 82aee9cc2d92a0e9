"""Which tensors share a buffer."""

from __future__ import annotations

import bisect
from collections.abc import Mapping

from .graph import Graph

MAX_CHOICES = 64  # buffers that a tensor tries before it gets one of its own


class Memory:
    """Which root tensors share a buffer. Two that are alive at the same time never do.

    Tensors are placed by falling size, so that a buffer is as large as its first tensor, and later ones use it at
    times when it is free.
    """

    def __init__(self, graph: Graph, sizes: Mapping[int, int]) -> None:
        # The last node may choose ids, which are read only after all turns of a submission.
        ends = (*graph.input_ids, *graph.output_ids, *(graph.nodes[-1].outs if graph.nodes else ()))
        always = (-1, len(graph.nodes))
        alive = {graph.tensors[v].root: always for v in ends if v in graph.tensors}
        for node in graph.nodes:
            for v in (*node.tensors.values(), *node.outs):
                if v in graph.tensors:
                    first, last = alive.get(graph.tensors[v].root, (node.index, node.index))
                    alive[graph.tensors[v].root] = first, max(last, node.index)
        self.place: dict[int, int] = {}  # root -> buffer
        self.sizes: list[int] = []
        roots = [root for root in alive if graph.tensors[root].constant < 0]
        shared: list[_Buffer] = []  # that are free at some time
        for root in sorted(roots, key=lambda r: (-sizes[r], r)):
            first, last = alive[root]
            free = (buffer for buffer in shared[:MAX_CHOICES] if buffer.is_free(first, last))
            buffer = next(free, None)
            if buffer is None:
                buffer = _Buffer(len(self.sizes))
                self.sizes.append(sizes[root])
                if (first, last) != always:
                    shared.append(buffer)
            buffer.take(first, last)
            self.place[root] = buffer.index


class _Buffer:
    """When a buffer is in use: spans of nodes that do not overlap, in order."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def is_free(self, first: int, last: int) -> bool:
        at = bisect.bisect_right(self._firsts, last)
        return at == 0 or self._lasts[at - 1] < first

    def take(self, first: int, last: int) -> None:
        at = bisect.bisect(self._firsts, first)
        self._firsts.insert(at, first)
        self._lasts.insert(at, last)
