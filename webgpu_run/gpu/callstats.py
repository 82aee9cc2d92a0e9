"""Where the time of one call went."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, fields

from ..shapes import Dims

# Processor time of this thread: on a software adapter the device's threads compete with it for the cores, and wall time
# would count that as ours. Windows measures a thread's time in ticks of 16 ms, which is too coarse.
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

    host_ns: int = 0  # processor time of this thread, without waiting and without compile_ns
    wait_ns: int = 0
    compile_ns: int = 0  # making new plans, their pipelines and their bind groups
    gpu_ns: int = 0  # sum over the dispatches, if they are timed
    arena_bytes: int = 0
    upload_bytes: int = 0
    read_bytes: int = 0
    dispatches: int = 0
    timed: list[TimedDispatch] = field(default_factory=list)

    def share(self, turns: int) -> CallStats:
        """The average share of one turn in a submission of several."""
        if turns == 1:
            return self
        counts = {f.name: getattr(self, f.name) // turns for f in fields(self) if f.name != "timed"}
        return CallStats(**counts)
