"""The choice of the next token: greedy, or drawn with temperature, top-k, top-p and min-p from a seeded generator."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np

from .op import Array


@dataclass(frozen=True, slots=True)
class Sampler:
    """How to choose. `pick` depends on the logits, the seed and the index only, never on what was drawn before."""

    temp: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        """The most likely token is taken, so logits need not leave the device."""
        return self.temp == 0 or self.top_k == 1

    def pick(self, logits: Array, index: int) -> int:
        """The id of token number `index` of the reply."""
        row = logits.reshape(-1)
        if self.greedy:
            return int(row.argmax())
        ids, p = self.candidates(row)
        # A counter-based generator: the draw of a token has its own place in the stream of this seed.
        draw = np.random.Generator(np.random.Philox(key=self.seed, counter=index)).random()
        total = np.cumsum(p)
        return int(ids[min(int(np.searchsorted(total, draw * total[-1], "right")), len(ids) - 1)])

    def candidates(self, logits: Array) -> tuple[Array, Array]:
        """Ids that may be chosen, most likely first, and their probabilities."""
        scaled = logits.astype(np.float64) / max(self.temp, 1e-9)
        ids = np.argsort(-scaled, kind="stable")
        if self.top_k:
            ids = ids[: self.top_k]
        p = np.exp(scaled[ids] - scaled[ids[0]])
        p /= p.sum()
        keep = len(ids)
        if self.top_p < 1:
            keep = int(np.searchsorted(np.cumsum(p), self.top_p)) + 1  # up to and with the one that reaches top_p
        if self.min_p > 0:
            keep = min(keep, int((p >= self.min_p * p[0]).sum()))
        keep = max(1, min(keep, len(ids)))
        return ids[:keep], p[:keep] / p[:keep].sum()


def random_seed() -> int:
    """A seed short enough to type again."""
    return secrets.randbelow(2**32)
