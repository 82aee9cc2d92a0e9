"""One delegate on the device: its graph, its resize engine and its executor."""

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
    """Runs one delegate of a method."""

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
        self.pick = last if last and last.op.name == PICK else None  # runs only if the next id is asked for
        self.executor = Executor(self.engine, device, progress)
        self.delta = Delta({}, {}, {})
        self.visitor: Visitor | None = None  # runs the prepared graph instead of the executor, to look at every node

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
        self, steps: Sequence[Sequence[Array]], stats: CallStats, *, from_device: bool = False, timed: bool = False
    ) -> Ticket:
        """Queue decode steps, each given by its inputs: ids, position, and the sampler words for the next id.

        Every step but the first takes the id that the step before it chose; so does the first if `from_device`.
        """
        assert self.pick is not None
        ids, *_, words = self.graph.input_ids
        chosen, first, last = self.pick.outs[0], steps[0], steps[-1]
        feed = ((chosen, ids),)
        on_device = {ids} if from_device else set()
        if len(steps) == 1:
            self.delta = self.executor.make_ready(first, stats, on_device)
            turns = [Turn(feed if from_device else ())]
        else:  # The plans for the last step fit all of them; each step has its own slot values and sampler words.
            inputs = [first[0], *last[1:]]
            self.delta = self.executor.make_ready(inputs, stats, on_device | {words}, slots=False)
            turns = [
                Turn(feed if from_device or k else (), self.engine.moved(step), ((words, step[-1]),))
                for k, step in enumerate(steps)
            ]
        self.executor.skip(frozenset())
        self.executor.readbacks = (chosen,)
        return self.executor.submit(stats, timed=timed, turns=turns)
