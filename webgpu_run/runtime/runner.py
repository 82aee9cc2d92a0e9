"""One delegate on the device: its graph, its resize engine and its executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..formats import pte
from ..gpu.callstats import CallStats
from ..gpu.device import Device
from ..gpu.executor import Executor, Ticket, Watch
from ..gpu.residency import ProgressCallback
from ..gpu.turns import Turn
from ..graph.lower import planned
from ..graph.passes.pick import PICK
from ..graph.planner import Delta, Engine
from ..ops.choice import GREEDY
from ..shapes import Array

# Returns the tensors among the outputs.
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

    def call(
        self, given: Sequence[Any], stats: CallStats, *, timed: bool = False, watch: Watch | None = None
    ) -> list[Any]:
        """Resize to these inputs, run, and return the outputs at their live shapes. A SymInt is an integer.

        `watch` is as in `Executor.execute`.
        """
        inputs = [*map(np.asarray, given), *([GREEDY] if self.pick else [])]
        self.delta = self.executor.make_ready(inputs, stats)
        self.executor.skip(frozenset((self.pick.index,) if self.pick else ()))
        self.executor.readbacks = self.executor.tensor_outputs
        if self.visitor:
            outs = iter(self.visitor(self, inputs, stats))
        else:
            outs = iter(self.executor.execute(stats, timed=timed, watch=watch))
        return [next(outs) if v in self.graph.tensors else self.engine.syms[v] for v in self.graph.output_ids]

    def start(
        self, steps: Sequence[Sequence[Array]], stats: CallStats, *, from_device: bool = False, timed: bool = False
    ) -> Ticket:
        """Queue decode steps, each given by its inputs: ids, position, and the sampler words for the next id.

        Every step but the first takes the id that the step before it chose; so does the first if `from_device`. The
        kernel that chooses an id writes it to where the next step reads its token.
        """
        assert self.pick is not None
        ids, *others = self.graph.input_ids
        first, last = steps[0], steps[-1]
        on_device = {ids} if from_device else set()
        if len(steps) == 1:
            self.delta = self.executor.make_ready(first, stats, on_device)
            turns = [Turn()]
        else:  # The plans for the last step fit all of them; each step has its own slot values and inputs.
            inputs = [first[0], *last[1:]]
            self.delta = self.executor.make_ready(inputs, stats, on_device | {*others}, turns=len(steps))
            turns = [
                Turn(
                    self.engine.moved(step),
                    tuple(self.executor.as_stored(dict(zip(others, step[1:], strict=True)))),
                )
                for step in steps
            ]
        self.executor.skip(frozenset())
        self.executor.readbacks = (self.pick.outs[0],)
        return self.executor.submit(stats, timed=timed, turns=turns)
