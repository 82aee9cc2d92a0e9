"""The arena: the one uniform buffer of a graph, with the areas of the turns and the parameters of all dispatches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import RunError
from ..graph.graph import Node
from ..graph.planner import Engine
from ..ops.plan import Step
from ..shapes import align
from .callstats import CallStats
from .device import Device
from .turns import AREAS

OF_ANY_ROUTE = 8  # dispatches that a node has room for, because another route may have more than its first plan


class Arena:
    """The arena on the device, and the host's copy of it. `write` makes them equal again."""

    def __init__(self, engine: Engine, device: Device) -> None:
        self.device, self._align = device, device.limits.uniform_align
        self._offsets: list[int] = []  # of each node's parameters
        least = max(OF_ANY_ROUTE * self._align, 256)
        end = align(AREAS, self._align)
        for plan in engine.plans:
            self._offsets.append(end)
            end += max(least, sum(map(self._uniform_bytes, plan.steps)))
        self._offsets.append(end)
        self.data = memoryview(bytearray(end))
        self.buffer = device.buffer(end, "parameters")
        self._changed: tuple[int, int] | None = (0, end)

    def _uniform_bytes(self, step: Step) -> int:
        return align(len(step.uniform()), self._align)

    def places(self, node: Node, steps: Sequence[Step]) -> Iterator[int]:
        """The offset of the parameters of each of a node's dispatches."""
        at, end = self._offsets[node.index : node.index + 2]
        for step in steps:
            size = self._uniform_bytes(step)
            if at + size > end:
                raise RunError(f"{node.label}: the uniforms of {len(steps)} dispatches are over their room")
            yield at
            at += size

    def put(self, at: int, data: bytes) -> None:
        """Set bytes; if they differ, the next `write` covers them."""
        end = at + len(data)
        if self.data[at:end] != data:
            self.data[at:end] = data
            lo, hi = self._changed or (at, end)
            self._changed = (min(lo, at), max(hi, end))

    def write_all(self) -> None:
        """Let the next `write` cover everything."""
        self._changed = (0, self.data.nbytes)

    def write(self, stats: CallStats) -> None:
        """Write the changed range in one piece."""
        if self._changed:
            lo, hi = self._changed[0] & ~3, align(self._changed[1], 4)
            self.device.write(self.buffer, self.data[lo:hi], lo)
            stats.arena_bytes += hi - lo
            self._changed = None  # after the write: one that failed is repeated by the next call
