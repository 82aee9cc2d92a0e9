"""One delegate on the device: its resize engine and its executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..formats import pte
from ..gpu.callstats import CallStats
from ..gpu.device import Device
from ..gpu.executor import Executor, Ticket, Turn
from ..gpu.residency import ProgressCallback
from ..graph.lower import planned
from ..graph.passes.pick import PICK
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
        self.pick = last if last and last.op.name == PICK else None  # runs only where its id is asked for
        self.executor = Executor(self.engine, device, progress)
        self.delta = Delta({}, {}, {})
        self.visitor: Visitor | None = None  # runs the prepared graph in the executor's place, to look at every node

    def call(self, inputs: Sequence[Array], stats: CallStats, *, timed: bool = False) -> list[Array]:
        """Resize to these inputs, run, and return the outputs at their live shapes."""
        inputs = [*inputs, GREEDY] if self.pick else inputs
        self.delta = self.executor.make_ready(inputs, stats)
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
            self.delta = self.executor.make_ready(first, stats, there)
            turns = [Turn(feed if fed else ())]
        else:  # plans that fit the last fit them all, and slots and words are each one's own
            inputs = [first[0], *last[1:]]
            self.delta = self.executor.make_ready(inputs, stats, there | {how}, slots=False)
            turns = [
                Turn(feed if fed or k else (), self.engine.moved(given), ((how, given[-1]),))
                for k, given in enumerate(steps)
            ]
        self.executor.skip(frozenset())
        self.executor.readbacks = (chosen,)
        return self.executor.submit(stats, timed=timed, turns=turns)
