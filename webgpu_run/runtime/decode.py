"""Decode steps whose ids the device chooses: several in one submission, which then shares what a submission costs.

On a device that works while the host does, the next submission is in the queue before this one is read.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ..gpu.callstats import CallStats
from ..shapes import Array
from .model import Model, Started

TOGETHER_NS = 66_000_000  # what tokens that come together may take: text still grows fifteen times a second
AHEAD_NS = TOGETHER_NS // 4  # the same where the host's work is hidden, and more than these are run in vain at an end


@dataclass(frozen=True, slots=True)
class Token:
    """What one step chose, and its share of the submission it was in."""

    id: int
    start_ns: int
    wall_ns: int
    stats: CallStats


class Decoder:
    """Steps of a model that `chooses`, one asked for after another."""

    def __init__(self, model: Model, ahead: bool | None = None) -> None:
        self.model = model
        self.ahead = model.device.overlaps if ahead is None else ahead
        self._chosen: deque[Token] = deque()
        self._queued: Started | None = None  # takes the last id of the submission before it
        self._free_ns = 0  # when that one ended
        self._step_ns = 0  # what its steps took

    def next(
        self, token: int, position: int, words: Callable[[int], Array], *, left: int = 0, timed: bool = False
    ) -> Token:
        """The id after this one; `words(k)` says how the k-th from here is chosen.

        As many as `left` steps after it may be run before it is known here: they take the ids that are chosen.
        """
        if not self._chosen:
            # What is queued has been under way since that before it ended.
            start = self._free_ns if self._queued else time.perf_counter_ns()
            started, self._queued = self._queued, None
            if not started:
                started = self.model.start([token], position, self._words(words, 0, left + 1), timed=timed)
            if self.ahead and left >= started.turns:
                coming = self._words(words, started.turns, left + 1)
                self._queued = self.model.start(None, position + started.turns, coming)
            ids = self.model.finish(started)
            self._free_ns = time.perf_counter_ns()
            self._step_ns = (self._free_ns - start) // len(ids)
            stats = started.stats.share(len(ids))
            for k, chosen in enumerate(ids):
                self._chosen.append(Token(chosen, start + k * self._step_ns, self._step_ns, stats))
        return self._chosen.popleft()

    def settle(self) -> None:
        """Forget steps that turned out not to be needed: what they wrote lies past the position."""
        self._chosen.clear()
        queued, self._queued = self._queued, None
        if queued:
            self.model.finish(queued)

    def _words(self, words: Callable[[int], Array], first: int, end: int) -> list[Array]:
        """Of the steps from here that go together; the very first, which may compile, goes alone."""
        count = (AHEAD_NS if self.ahead else TOGETHER_NS) // self._step_ns if self._step_ns else 1
        return [words(k) for k in range(first, min(end, first + max(1, min(count, self.model.most_turns))))]
