"""Timestamps: each dispatch is a pass of its own, with a timestamp at its beginning and at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..shapes import Array
from .device import Device
from .native import RecordedPass, handle

_QUERIES = 4096  # the largest query set that WebGPU allows
_PER_SET = _QUERIES // 2  # dispatches


class Stamps:
    """Query sets and the buffers they are resolved to, enough for the largest call so far."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._sets: list[tuple[Any, Any]] = []

    def submit(self, part: RecordedPass, objects: Sequence[tuple[Any, Any]]) -> Any:
        """Submit a pass whose dispatches have these pipelines and bind groups. Returns the submission index."""
        before, dispatches, after = part
        encoder = self._device.handle.create_command_encoder()
        for copy in before:
            encoder.copy_buffer_to_buffer(*copy)
        for i, ((_, _, *grid, staging, offsets), (pipeline, group)) in enumerate(zip(dispatches, objects, strict=True)):
            writes = {
                "query_set": self._sets[i // _PER_SET][0],
                "beginning_of_pass_write_index": i % _PER_SET * 2,
                "end_of_pass_write_index": i % _PER_SET * 2 + 1,
            }
            self._device.native.stage(handle(encoder), staging)
            compute = encoder.begin_compute_pass(timestamp_writes=writes)
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, group, list(offsets[1]) if offsets[0] else [])
            compute.dispatch_workgroups(*grid)
            compute.end()
        for (queries, resolved), count in self._used(len(objects)):
            encoder.resolve_query_set(queries, 0, count, resolved, 0)
        for copy in after:
            encoder.copy_buffer_to_buffer(*copy)
        return self._device.submit(encoder)

    def ready(self, count: int) -> bool:
        """Create the query sets for `count` dispatches. Returns False if there were none before."""
        use, handle, has_sets = self._device.wgpu.BufferUsage, self._device.handle, bool(self._sets)
        while len(self._sets) * _PER_SET < count:
            resolved = handle.create_buffer(size=_QUERIES * 8, usage=use.QUERY_RESOLVE | use.COPY_SRC)
            self._sets.append((handle.create_query_set(type="timestamp", count=_QUERIES), resolved))
        return has_sets

    def read(self, count: int) -> Array:
        """(begin, end) of each dispatch of the last submission, in nanoseconds."""
        queue = self._device.handle.queue
        data = b"".join(bytes(queue.read_buffer(resolved, 0, 8 * n)) for (_, resolved), n in self._used(count))
        return np.frombuffer(data, np.uint64).reshape(-1, 2)

    def _used(self, count: int) -> Iterator[tuple[tuple[Any, Any], int]]:
        """The query sets that `count` dispatches use, each with its number of timestamps."""
        for query_set, first in zip(self._sets, range(0, count, _PER_SET), strict=False):
            yield query_set, 2 * min(_PER_SET, count - first)
