"""Where the time of one call went."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, fields

from ..shapes import Dims

# On a software adapter the device takes the processor from us: that is waiting too, and wall time would call it ours.
# (Windows counts a thread's time in ticks of 16 ms.)
host_clock = time.perf_counter_ns if os.name == "nt" else time.thread_time_ns


@dataclass(slots=True)
class TimedDispatch:
    """One measured dispatch."""

    node: int
    op: str
    kernel: str
    route: str
    grid: tuple[int, int, int]
    gpu_ns: int
    work: tuple[int, int]
    live_dims: Dims = ()
    begin_ns: int = 0


@dataclass(slots=True)
class CallStats:
    """Where one call's time went."""

    host_ns: int = 0  # of this thread's processor, without waiting and without what compile_ns holds
    wait_ns: int = 0
    compile_ns: int = 0  # new plans, with the pipelines and bind groups they needed
    gpu_ns: int = 0  # sum of dispatches, when timed
    arena_bytes: int = 0
    upload_bytes: int = 0
    read_bytes: int = 0
    dispatches: int = 0
    timed: list[TimedDispatch] = field(default_factory=list)

    def share(self, turns: int) -> CallStats:
        """What one of so many turns, all alike, took."""
        if turns == 1:
            return self
        counts = {f.name: getattr(self, f.name) // turns for f in fields(self) if f.name != "timed"}
        return CallStats(**counts)
