"""Sampling: greedy, or random with temperature, top-k, top-p and min-p from a seeded generator; repeat penalty."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import UsageError
from ..ops.choice import GREEDY, MOST_RECENT, choose, draw_words, kept, repeat_words
from ..shapes import Array


@dataclass(frozen=True, slots=True)
class Sampler:
    """Sampling settings. A choice depends only on the logits, the seed, the index, and with a repeat penalty on the
    last `repeat_last_n` tokens.
    """

    temp: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64

    def check(self) -> None:
        """Refuse settings that mean nothing."""
        for name, value, is_valid in (
            ("temperature", self.temp, 0 <= self.temp < math.inf),
            ("top_k", self.top_k, self.top_k >= 0),
            ("top_p", self.top_p, 0 < self.top_p <= 1),
            ("min_p", self.min_p, 0 <= self.min_p <= 1),
            ("seed", self.seed, 0 <= self.seed < 2**64),
            ("repeat_penalty", self.repeat_penalty, 0.01 <= self.repeat_penalty <= 100),
            ("repeat_last_n", self.repeat_last_n, 0 <= self.repeat_last_n <= MOST_RECENT),
        ):
            if not is_valid:
                raise UsageError(f"{name} cannot be {value}")

    @property
    def greedy(self) -> bool:
        """True if the most likely token is always taken, so that the seed has no effect."""
        return self.temp == 0 or self.top_k == 1

    @property
    def recalls(self) -> bool:
        """True if a choice depends on the tokens before it."""
        return self.repeat_penalty != 1 and self.repeat_last_n > 0

    def words(self, index: int, before: Sequence[int] = ()) -> Array:
        """The settings for token number `index` of the reply, packed as the device's sampler reads them.

        `before` are the tokens of prompt and reply up to there.
        """
        words = GREEDY
        if not self.greedy:
            words = draw_words(self.temp, self.top_k, self.top_p, self.min_p, self.seed, index)
        if self.recalls:
            repeats = repeat_words(self.repeat_penalty, before[-self.repeat_last_n :])
            words = np.concatenate((words, repeats))
        return words

    def pick(self, logits: Array, index: int, before: Sequence[int] = ()) -> int:
        """Choose token number `index` of the reply, which follows the tokens `before`."""
        return choose(logits, self.words(index, before))

    def candidates(self, logits: Array) -> tuple[Array, Array]:
        """The ids that may be chosen, most likely first, and their probabilities."""
        words = draw_words(self.temp, self.top_k, self.top_p, self.min_p, self.seed, 0)
        ids, total = kept(logits.reshape(-1), words.view(np.uint32))
        return ids, np.diff(total, prepend=np.uint64(0)) / float(total[-1])


def random_seed() -> int:
    """A random seed that is short enough to type."""
    return secrets.randbelow(2**32)
