"""One delegate on the device: its resize engine and its executor."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from ..formats import pte
from ..gpu.callstats import CallStats, host_clock
from ..gpu.device import Device
from ..gpu.executor import Executor, Ticket, Turn
from ..gpu.residency import ProgressCallback
from ..graph import fuse as fusion
from ..graph.lower import planned
from ..graph.planner import Delta, Engine
from ..ops.choice import GREEDY
from ..shapes import Array

Visitor = Callable[["Runner", Sequence[Array], CallStats], list[Array]]


class Runner:
    """One delegate: its graph, resize engine and GPU state."""

    def __init__(
        self,
        delegate: pte.Delegate,
        device: Device,
        *,
        fuse: bool = True,
        progress: ProgressCallback | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.engine = engine or planned(delegate, device.limits, fuse=fuse)
        self.graph = self.engine.graph
        last = self.graph.nodes[-1] if self.graph.nodes else None
        self.pick = last if last and last.op.name == fusion.PICK else None  # runs only where its id is asked for
        self.executor = Executor(self.engine, device, progress)
        self.delta = Delta({}, {}, {})
        self.visitor: Visitor | None = None  # runs the prepared graph in the executor's place, to look at every node
        self._first = True

    def call(self, inputs: Sequence[Array], stats: CallStats, *, timed: bool = False) -> list[Array]:
        """Resize to these inputs, run, and return the outputs at their live shapes."""
        inputs = [*inputs, GREEDY] if self.pick else inputs
        self._ready(inputs, stats)
        self.executor.skip(frozenset((self.pick.index,) if self.pick else ()))
        self.executor.readbacks = self.graph.output_ids
        if self.visitor:
            return self.visitor(self, inputs, stats)
        return self.executor.execute(stats, timed=timed)

    def start(
        self, steps: Sequence[Sequence[Array]], stats: CallStats, *, fed: bool = False, timed: bool = False
    ) -> Ticket:
        """Queue calls that each give the next id, chosen as the last input says.

        All but the first take the id of the one before them; so does the first if `fed`.
        """
        assert self.pick is not None
        ids, *_, how = self.graph.input_ids
        chosen, first, last = self.pick.outs[0], steps[0], steps[-1]
        feed = ((chosen, ids),)
        there = {ids} if fed else set()
        if len(steps) == 1:
            self._ready(first, stats, there)
            turns = [Turn(feed if fed else ())]
        else:  # plans that fit the last fit them all, and slots and words are each one's own
            self._ready([first[0], *last[1:]], stats, there | {how}, slots=False)
            turns = [
                Turn(feed if fed or k else (), self.engine.moved(given), ((how, given[-1]),))
                for k, given in enumerate(steps)
            ]
        self.executor.skip(frozenset())
        self.executor.readbacks = (chosen,)
        return self.executor.submit(stats, timed=timed, turns=turns)

    def _ready(
        self, inputs: Sequence[Array], stats: CallStats, there: Collection[int] = (), *, slots: bool = True
    ) -> None:
        start, host = time.perf_counter_ns(), host_clock()
        self.delta = self.engine.resize(inputs, self._prepare)
        self.executor.commit()
        if self._first or self.delta.plans:
            stats.compile_ns += time.perf_counter_ns() - start
            stats.host_ns -= host_clock() - host
        self._first = False
        self.executor.upload(inputs, stats, there)
        self.executor.write_arena(stats, slots=slots)

    def _prepare(self, delta: Delta) -> None:
        if self._first:  # nothing has been prepared yet: build made the plans, this makes what they need
            plans = {i: delta.plans.get(i, plan) for i, plan in enumerate(self.engine.plans)}
            delta = Delta(plans, delta.dims, delta.syms)
        self.executor.prepare(delta)
