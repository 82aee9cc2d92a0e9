"""Sampling: greedy, or random with temperature, top-k, top-p and min-p from a seeded generator."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np

from ..ops.choice import GREEDY, choose, draw_words, kept
from ..shapes import Array


@dataclass(frozen=True, slots=True)
class Sampler:
    """Sampling settings. A choice depends only on the logits, the seed and the index, never on earlier choices."""

    temp: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        """True if the most likely token is always taken, so that the seed has no effect."""
        return self.temp == 0 or self.top_k == 1

    def words(self, index: int) -> Array:
        """The settings for token number `index` of the reply, packed as the device's sampler reads them."""
        if self.greedy:
            return GREEDY
        return draw_words(self.temp, self.top_k, self.top_p, self.min_p, self.seed, index)

    def pick(self, logits: Array, index: int) -> int:
        """Choose token number `index` of the reply."""
        return choose(logits, self.words(index))

    def candidates(self, logits: Array) -> tuple[Array, Array]:
        """The ids that may be chosen, most likely first, and their probabilities."""
        ids, total = kept(logits.reshape(-1), self.words(0).view(np.uint32))
        return ids, np.diff(total, prepend=np.uint64(0)) / float(total[-1])


def random_seed() -> int:
    """A random seed that is short enough to type."""
    return secrets.randbelow(2**32)
