"""The choice of the next token: greedy, or drawn with temperature, top-k, top-p and min-p from a seeded generator.

All of a draw but two roundings is arithmetic on whole numbers, which the kernels of ops/pick.py repeat: the host and
any device choose the same id of the same logits. A logit is held as its distance from the largest one in steps of 2^-19
octaves, `t`; its weight is 2^31 * 2^-(t / 2^19), to 1e-5 and a rounding. Of equal `t` the lower id comes first.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass

import numpy as np

from .op import Array

STEPS = 1 << 19  # an octave of probability
FAR = (1 << 24) - 1  # 32 octaves down: never chosen
WHOLE = 1 << 31  # a top-p of 1
WORDS = 5  # what a draw takes: steps a unit of logit (as f32), last t of min-p, top-k, top-p of WHOLE, the draw of 2^32
NOTHING = (1 << 31) - 1  # instead of an id, where the largest logit is not finite
# 2^-x on [0, 1] as 1 - x (c1 - x (c2 - ...)), of 2^31: good to 1e-7
OCTAVE = (1488521729, 515857119, 118988976, 20066583, 2155280)


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
        """The most likely token is taken, whatever the seed."""
        return self.temp == 0 or self.top_k == 1

    def words(self, index: int) -> Array:
        """What chooses token number `index` of the reply, as the device takes it; nothing at all if greedy."""
        if self.greedy:
            return np.zeros(0, np.int32)
        # Within these any logits are all alike, or only the largest counts; and no product is 0 x infinity.
        scale = min(max(STEPS / (max(self.temp, 1e-99) * math.log(2)), 1e-30), 1e30)
        last = -math.log2(self.min_p) * STEPS if self.min_p > 0 else FAR
        # A counter-based generator: the draw of a token has its own place in the stream of this seed.
        draw = int(np.random.Philox(key=self.seed, counter=index).random_raw()) >> 32
        made = (
            int(np.float32(scale).view(np.uint32)),
            int(min(max(last, 0), FAR - 1)),
            min(self.top_k, NOTHING) or NOTHING,
            round(min(max(self.top_p, 0.0), 1.0) * WHOLE),
            draw,
        )
        return np.asarray(made, np.uint32).view(np.int32)

    def pick(self, logits: Array, index: int) -> int:
        """The id of token number `index` of the reply."""
        return choose(logits, self.words(index))

    def candidates(self, logits: Array) -> tuple[Array, Array]:
        """Ids that may be chosen, most likely first, and their probabilities."""
        ids, total = kept(logits.reshape(-1), self.words(0).view(np.uint32))
        return ids, np.diff(total, prepend=np.uint64(0)) / float(total[-1])


def choose(logits: Array, words: Array) -> int:
    """The id that `words` choose, or NOTHING where there is NaN or the largest logit is not finite."""
    row = np.asarray(logits, np.float32).reshape(-1)
    if not np.isfinite(row.max()):
        return NOTHING
    if not words.size:
        return int(row.argmax())
    how = words.view(np.uint32)
    ids, total = kept(row, how)
    return int(ids[np.searchsorted(total, np.uint64(int(total[-1]) * int(how[4]) >> 32), "right")])


def kept(row: Array, how: Array) -> tuple[Array, Array]:
    """Ids that may be chosen, most likely first and of equals the lower, and the sum of weights up to each."""
    last, top_k, top_p = (int(n) for n in how[1:4])
    t = steps(row, how[:1].view(np.float32)[0])
    ids = np.flatnonzero(t < FAR)
    if top_k < len(ids):
        ids = ids[t[ids] <= np.partition(t[ids], top_k - 1)[top_k - 1]]
    keys = np.sort(t[ids].astype(np.uint64) << np.uint64(32) | ids.astype(np.uint64))[:top_k]
    t, ids = (keys >> np.uint64(32)).astype(np.uint32), (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
    total = np.cumsum(weights(t), dtype=np.uint64)
    reach = max(1, int(total[-1]) * top_p // WHOLE)
    keep = int(np.searchsorted(total, np.uint64(reach))) + 1  # up to and with the one that reaches top-p
    keep = min(keep, int(np.searchsorted(t, last, "right")))
    return ids[:keep], total[:keep]


def steps(row: Array, scale: np.float32) -> Array:
    """How far each logit is below the largest."""
    with np.errstate(over="ignore"):
        far: Array = np.minimum(np.abs(row.max() - row) * scale, np.float32(FAR))
    return far.astype(np.uint32)


def weights(t: Array) -> Array:
    """2^31 * 2^-(t / STEPS), rounded, as uint64."""
    octaves, x = (t >> 19).astype(np.uint64), (t >> 3 & 0xFFFF).astype(np.uint64)
    made = np.zeros_like(x)
    for c in reversed((1 << 31, *OCTAVE)):
        made = np.uint64(c) - (made * x >> np.uint64(16))
    half = np.uint64(1) << octaves >> np.uint64(1)
    return (made + half) >> octaves


def random_seed() -> int:
    """A seed short enough to type again."""
    return secrets.randbelow(2**32)
