"""Decode steps whose token ids the device chooses. Several steps share one submission, and so its fixed cost.

On a device that runs while the host works, the next submission is queued before the host has read the current one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ..gpu.callstats import CallStats
from ..shapes import Array
from .model import Model, Started

TOGETHER_NS = 66_000_000  # longest submission: text still appears fifteen times per second
# The same on a device that overlaps with the host: there a longer submission gains less, and at the end of a reply it
# wastes more steps.
AHEAD_NS = TOGETHER_NS // 4


@dataclass(frozen=True, slots=True)
class Token:
    """The id that one step chose, and the step's share of its submission."""

    id: int
    start_ns: int
    wall_ns: int
    stats: CallStats


class Decoder:
    """Decode steps of a model that `chooses`, requested one at a time."""

    def __init__(self, model: Model, ahead: bool | None = None) -> None:
        self.model = model
        self.ahead = model.device.overlaps if ahead is None else ahead
        self._chosen: deque[Token] = deque()
        self._queued: Started | None = None  # its first step takes the last id of the submission before it
        self._position = -1  # where the next of them starts; unknown while a step is being made
        self._free_ns = 0  # when the last submission that was read had ended
        self._step_ns = 0  # time per step in it

    def next(
        self, token: int, position: int, words: Callable[[int], Array], *, left: int = 0, timed: bool = False
    ) -> Token:
        """The id after `token`. `words(k)` are the sampler words for the k-th step from here.

        Up to `left` further steps may be run before this id is known here: each takes the id the device just chose.
        """
        if position != self._position:  # a step was interrupted after it had been read
            self.settle()
        self._position = -1
        if not self._chosen:
            # A queued submission starts when the previous one ends.
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
        first = self._chosen.popleft()
        self._position = position + 1
        return first

    def settle(self) -> None:
        """Discard steps that turned out not to be needed. The cache rows they wrote lie beyond the current position."""
        self._chosen.clear()
        queued, self._queued = self._queued, None
        if queued:
            self.model.finish(queued)

    def _words(self, words: Callable[[int], Array], first: int, end: int) -> list[Array]:
        """Sampler words for the next submission's steps. The first step is alone because it may compile kernels."""
        count = (AHEAD_NS if self.ahead else TOGETHER_NS) // self._step_ns if self._step_ns else 1
        return [words(k) for k in range(first, min(end, first + max(1, min(count, self.model.most_turns))))]
