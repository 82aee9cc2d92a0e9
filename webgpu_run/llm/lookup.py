"""Speculation by lookup: the text itself is searched for a guess at what comes next, and one call verifies it.

A guess is what followed the last few tokens where they appeared before, in the prompt or in the reply. A call with the
current token and the guess returns logits for each of them. The sampler chooses an id from each row, exactly as it
would have one step at a time, and the guess is right as far as the ids agree with it. Cache rows of wrong guesses lie
beyond the position and will be overwritten.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence

from ..ops.choice import choose_surely
from ..runtime.decode import Decoder, Token
from ..runtime.model import Model
from ..shapes import Array

MOST_ROWS = 8  # tokens in a call that verifies: the current one and seven guesses
ROWS = (4, 8)
# Few-row kernels may add in another order than those for one row. Where that could change the choice, an ordinary step
# makes it. The bound is relative to the largest logit, and more than ten times the difference that was seen.
ROUTE_ERROR = {"f32": 2.0**-14, "f16": 2.0**-9}
SHORTEST, LONGEST = 2, 16  # tokens that must agree before a guess, and that are compared at most
RECENT = 8  # earlier places of the last tokens that are compared
LOSS = 0.005  # share of the decode time that wrong guesses may cost
FIRST_LOSS = 3.0  # and the steps that they may cost besides
LEAST_GAIN = 1.2  # expected speed of a guess over ordinary steps
FORGET = 0.9  # how much of what is known about guesses remains after each one


class Guesser:
    """Finds where the last tokens of a text appeared before."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._after: dict[tuple[int, int], list[int]] = {}  # pair of tokens -> positions after it

    def guess(self, ids: Sequence[int], count: int) -> tuple[list[int], int]:
        """Up to `count` tokens that may follow, and how many tokens before them agree with an earlier place."""
        self._follow(ids)
        text, end = self._ids, len(self._ids)
        best, agreeing = 0, 0
        for at in reversed(self._after.get((text[-2], text[-1]), ())[-RECENT - 1 :] if end > 1 else ()):
            if at == end:
                continue
            same = SHORTEST
            while same < min(LONGEST, at) and text[at - 1 - same] == text[end - 1 - same]:
                same += 1
            if same > agreeing:
                best, agreeing = at, same
        if not agreeing:
            return [], 0
        guess: list[int] = []
        for at in range(best, best + count):  # a guess that reaches the end of the text repeats itself
            guess.append(text[at] if at < end else guess[at - end])
        return guess, agreeing

    def _follow(self, ids: Sequence[int]) -> None:
        """Index the tokens that were added since the last call, or all of a text that is another."""
        known = len(self._ids)
        if list(ids[:known]) != self._ids:
            self._ids, self._after, known = [], {}, 0
        self._ids += ids[known:]
        for at in range(max(known, 1), len(self._ids)):
            self._after.setdefault((self._ids[at - 1], self._ids[at]), []).append(at + 1)


class Gate:
    """Decides whether a guess is worth a call, by the calls and the guesses so far.

    It learns from every guess, whether or not a call verified it: the ids of ordinary steps show what a guess would
    have been worth, and cost nothing.
    """

    def __init__(self) -> None:
        self._right: dict[int, tuple[float, float]] = {}  # tokens that agree -> right guesses, all guesses
        # (rows, whether a guess came before) -> time per call, in ordinary steps
        self._costs: dict[tuple[int, bool], deque[float]] = {}
        self._steps: deque[int] = deque(maxlen=15)  # time of ordinary steps
        self._submissions = 0
        self._switch: deque[int] = deque(maxlen=9)  # time to go back to ordinary steps
        self.balance = 0.0  # ordinary steps saved in this reply, less those that wrong guesses cost
        self.guessed = self.accepted = self.calls = self.unsure = 0

    def __str__(self) -> str:
        return f"lookup: {self.accepted} of {self.guessed} guessed tokens were right, in {self.calls} calls"

    def begin(self) -> None:
        """A reply begins. It does not spend what others have saved, but makes up for a part of what they have lost."""
        self.balance = min(self.balance, 0.0) / 2

    @property
    def step_ns(self) -> float:
        """The time of an ordinary step; 0 if none has been seen."""
        return _middle(self._steps)

    def stepped(self, spent_ns: int, turns: int, *, after_guess: bool) -> None:
        """An ordinary submission of `turns` steps has ended; the first after a guess includes the way back."""
        if after_guess:
            if self._steps:
                self._switch.append(max(0, spent_ns - int(turns * self.step_ns)))
                self.balance -= self._way_back()
            return
        self._steps.append(spent_ns // turns)
        self._submissions += 1
        if self._submissions % 50 == 0:  # a cost that was measured at a bad moment must not close the gate for good
            for times in self._costs.values():
                times.popleft()
            self._costs = {key: times for key, times in self._costs.items() if times}
        self.balance += LOSS * turns

    def learn(self, agreeing: int, right: int, tested: int) -> None:
        """So many tokens of a guess were right, of those that were put to the test."""
        good, total = self._right.get(_kind(agreeing), (0.0, 0.0))
        self._right[_kind(agreeing)] = good * FORGET + right, total * FORGET + tested

    def rows(self, agreeing: int, most: int, *, after_guess: bool) -> int:
        """How many rows the call should have; 0 if the guess is not worth one."""
        if not self._steps or most < 2:
            return 0
        share = self._share(agreeing)
        # Another number of rows than that of the last call takes new plans, and so does the way back.
        way_back = 0.0 if after_guess else self._way_back()
        best, gain = 0, LEAST_GAIN
        for rows in ROWS:
            cost = self._cost(rows, after_guess) + way_back
            expected = sum(share**k for k in range(rows))
            can_lose = self.balance - (cost - 1) > -FIRST_LOSS
            if rows <= most and expected / cost > gain and can_lose:
                best, gain = rows, expected / cost
        return best

    def verified(
        self, agreeing: int, rows: int, right: int, chosen: int, spent_ns: int, *, is_first: bool, after_guess: bool
    ) -> None:
        """A call with so many rows has ended: `right` guesses were right, and `chosen` ids came of it."""
        self.learn(agreeing, right, min(right + 1, rows - 1))  # those after the first wrong one were not tested
        self.calls, self.guessed, self.accepted = self.calls + 1, self.guessed + rows - 1, self.accepted + right
        if is_first or not self._steps:  # kernels were compiled, or there is nothing to compare with
            return
        self._costs.setdefault((rows, after_guess), deque(maxlen=9)).append(spent_ns / self.step_ns)
        # By what such calls usually take: what else the machine does in this one says nothing about guesses.
        self.balance += chosen - (1 - LOSS) * self._cost(rows, after_guess)

    def _share(self, agreeing: int) -> float:
        """The share of guesses that will be right: those seen, and one before them as if seen."""
        good, total = self._right.get(_kind(agreeing), (0.0, 0.0))
        return (good + PRIOR[_kind(agreeing)]) / (total + 1)

    def _way_back(self) -> float:
        """What the first ordinary step after a guess costs more than others, in steps."""
        return min(1.0, _middle(self._switch) / self.step_ns)

    def _cost(self, rows: int, after_guess: bool) -> float:
        """What a call takes, in ordinary steps: as measured, or in proportion to another that was measured."""
        for key in ((rows, after_guess), (rows, not after_guess), *self._costs):
            if key in self._costs:
                return 1 + max(0.0, _middle(self._costs[key]) - 1) * (rows - 1) / (key[0] - 1)
        return 1 + 0.25 * (rows - 1)


PRIOR = {2: 0.1, 3: 0.2, 4: 0.3, 8: 0.5}


def _kind(agreeing: int) -> int:
    return max(n for n in PRIOR if n <= agreeing)


def _middle(times: Sequence[float]) -> float:
    return statistics.median(times) if times else 0.0


class LookupDecoder(Decoder):
    """Decode steps, several at once where the text repeats itself. `text` gives the tokens before the current one."""

    def __init__(self, model: Model, text: Callable[[], Sequence[int]], ahead: bool | None = None) -> None:
        super().__init__(model, ahead)
        self.gate = Gate()
        self._text = text
        self._guesser = Guesser()
        self._error = ROUTE_ERROR[model.device.limits.kv]
        # The work of a software adapter is processor time of this process, which other programs do not change.
        self._clock = time.process_time_ns if model.device.limits.software else time.perf_counter_ns
        self._compiled: set[int] = set()  # numbers of rows whose kernels are compiled
        self._was_guess = False  # whether the last call verified a guess

    def settle(self) -> None:
        super().settle()
        self.gate.begin()

    def next(
        self, token: int, position: int, words: Callable[[int], Array], *, left: int = 0, timed: bool = False
    ) -> Token:
        """As in Decoder. Without `left`, nothing is guessed."""
        if position != self._position:
            self.settle()
            self._position = position
        if self._chosen or not left:
            return super().next(token, position, words, left=left, timed=timed)
        ids, agreeing, rows = self._guess(token, left)
        if rows and self._queued:
            left = 0  # the steps that are queued are read first, and no others are queued
        elif rows and self._verify([token, *ids[: rows - 1]], agreeing, position, words):
            return super().next(token, position, words)
        start = self._clock()
        chosen = super().next(token, position, words, left=left, timed=timed)
        turns = 1 + len(self._chosen)
        if self._was_guess or not chosen.stats.compile_ns:
            spent = chosen.wall_ns * turns if self.ahead else self._clock() - start
            self.gate.stepped(spent, turns, after_guess=self._was_guess)
        self._was_guess = False
        self._compare(token, [chosen.id, *(later.id for later in self._chosen)])
        return chosen

    def _guess(self, token: int, left: int) -> tuple[list[int], int, int]:
        """A guess, how many tokens before it agree, and how many rows a call with it should have."""
        ids, agreeing = self._guesser.guess([*self._text(), token], MOST_ROWS - 1)
        most = min(left + 1, self.model.most_verified)
        return ids, agreeing, self.gate.rows(agreeing, most, after_guess=self._was_guess) if ids else 0

    def _compare(self, token: int, chosen: Sequence[int]) -> None:
        """Learn from the ids of ordinary steps what guesses would have been worth."""
        text = [*self._text(), token]
        for k in range(len(chosen)):
            ids, agreeing = self._guesser.guess([*text, *chosen[:k]], MOST_ROWS - 1)
            tested = min(len(ids), len(chosen) - k)
            right = next((i for i in range(tested) if ids[i] != chosen[k + i]), tested)
            if ids:
                self.gate.learn(agreeing, right, min(right + 1, tested))

    def _verify(self, ids: Sequence[int], agreeing: int, position: int, words: Callable[[int], Array]) -> bool:
        """Run the current token and a guess, and queue the ids that they give. False if not even the first is sure."""
        start, clock = time.perf_counter_ns(), self._clock()
        self._position = -1
        logits = self.model.verify(ids, position)
        chosen: list[int] = []
        for k, row in enumerate(logits):
            choice = choose_surely(row, words(k), self._error)
            if choice is None:
                self.gate.unsure += 1
                break
            chosen.append(choice)
            if [choice] != list(ids[k + 1 : k + 2]):
                break
        wall_ns = time.perf_counter_ns() - start
        right = sum(choice == guess for choice, guess in zip(chosen, ids[1:], strict=False))
        is_first = len(ids) not in self._compiled
        self._compiled.add(len(ids))
        spent_ns, after_guess = self._clock() - clock, self._was_guess
        self.gate.verified(agreeing, len(ids), right, len(chosen), spent_ns, is_first=is_first, after_guess=after_guess)
        self._was_guess, self._position = True, position
        each, stats = wall_ns // max(1, len(chosen)), self.model.stats.share(max(1, len(chosen)))
        self._chosen.extend(Token(choice, start + k * each, each, stats) for k, choice in enumerate(chosen))
        return bool(chosen)
