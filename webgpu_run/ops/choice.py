"""The choice of the next token in integers, on the host exactly as in the kernels of ops/pick.py.

A draw is integer arithmetic except for two roundings, so the host and any device choose the same id from the same
logits. A logit is represented by its distance `t` below the largest one, in steps of 2^-19 octaves; its weight is
2^31 * 2^-(t / 2^19), to 1e-5 and a rounding. Of equal `t` the lower id comes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ..shapes import Array

STEPS = 1 << 19  # per octave (a factor of 2 in probability)
FAR = (1 << 24) - 1  # 32 octaves below the largest: never chosen
WHOLE = 1 << 31  # a top-p of 1
WORDS = 5  # what a draw takes: steps a unit of logit (as f32), last t of min-p, top-k, top-p of WHOLE, the draw of 2^32
RECENT = 64  # ids in a list of recent tokens are padded to a multiple of this, so that plans rarely change
MOST_RECENT = 1024
MOST_WORDS = WORDS + 2 + MOST_RECENT
NOTHING = (1 << 31) - 1  # instead of an id, where the largest logit is not finite


# 2^-x on [0, 1] as 1 - x (c1 - x (c2 - ...)), of 2^31: good to 1e-7
OCTAVE = (1488521729, 515857119, 118988976, 20066583, 2155280)
GREEDY = np.zeros(0, np.int32)  # no words at all: the largest logit is taken


def draw_words(temp: float, top_k: int, top_p: float, min_p: float, seed: int, index: int) -> Array:
    """What draws token number `index` of a reply, in the form the device takes; `index` selects the place in the seed's
    random stream."""
    # Within these any logits are all alike, or only the largest counts; and no product is 0 x infinity.
    scale = min(max(STEPS / (max(temp, 1e-99) * math.log(2)), 1e-30), 1e30)
    last = -math.log2(min_p) * STEPS if min_p > 0 else FAR
    # A counter-based generator: the draw of a token has its own place in the stream of this seed.
    draw = int(np.random.Philox(key=seed, counter=index).random_raw()) >> 32
    made = (
        int(np.float32(scale).view(np.uint32)),
        int(min(max(last, 0), FAR - 1)),
        min(top_k, NOTHING) or NOTHING,
        round(min(max(top_p, 0.0), 1.0) * WHOLE),
        draw,
    )
    return np.asarray(made, np.uint32).view(np.int32)


def repeat_words(penalty: float, recent: Iterable[int]) -> Array:
    """What lowers the logits of recent tokens: the penalty, its inverse and the ids, each once, padded with -1.

    These words follow those of a draw, if there are any.
    """
    factors = np.asarray((penalty, 1 / penalty), np.float32).view(np.int32)
    ids = np.unique(np.fromiter(recent, np.int32))
    return np.concatenate((factors, ids, np.full(-len(ids) % RECENT or RECENT * (not len(ids)), -1, np.int32)))


def parts_of(size: int) -> tuple[int, int]:
    """Of so many words: how many are a draw's, and how many are recent ids."""
    recent = size // RECENT * RECENT
    return (size - recent) // WORDS * WORDS, recent


def lowered(row: Array, words: Array) -> Array:
    """The logits with those of recent tokens lowered. Products are rounded alike everywhere, quotients are not."""
    draw, recent = parts_of(words.size)
    if not recent:
        return row
    penalty, inverse = words[draw : draw + 2].view(np.float32)
    ids = words[draw + 2 :]
    ids = ids[(ids >= 0) & (ids < row.size)]
    row = row.copy()
    with np.errstate(over="ignore"):
        row[ids] *= np.where(row[ids] > 0, inverse, penalty)
    return row


def choose(logits: Array, words: Array) -> int:
    """The id that `words` choose, or NOTHING where there is NaN or the largest logit is not finite."""
    row = lowered(np.asarray(logits, np.float32).reshape(-1), words)
    words = words[: parts_of(words.size)[0]]
    if not np.isfinite(row.max()):
        return NOTHING
    if not words.size:
        return int(row.argmax())
    how = words.view(np.uint32)
    ids, total = kept(row, how)
    return int(ids[np.searchsorted(total, np.uint64(int(total[-1]) * int(how[4]) >> 32), "right")])


def choose_surely(logits: Array, words: Array, error: float) -> int | None:
    """The id that `choose` gives for these logits, and for all that differ by at most `error` times the largest.

    None if another id is possible, or if there are recent tokens among the words.
    """
    row = np.asarray(logits, np.float32).reshape(-1)
    most = float(np.abs(row).max())
    if not np.isfinite(most) or parts_of(words.size)[1]:
        return None
    if not words.size:
        best = int(row.argmax())
        second = max(row[:best].max(initial=-np.inf), row[best + 1 :].max(initial=-np.inf))
        return best if row[best] - second > 2 * error * most else None
    how = words.view(np.uint32)
    scale = float(how[:1].view(np.float32)[0])
    if error * most * scale > STEPS:  # weights are known to no better than an octave
        return None
    t, ids, total = _ranked(row, how)
    last, top_k, top_p, draw = (int(n) for n in how[1:5])
    # The logit of each rank, and so the distance from the largest, differs by no more than this many steps, and sums of
    # weights differ by this factor. The second term is the error of the weights themselves.
    apart = int(2 * error * most * scale) + 2
    factor = 2.0 ** (apart / STEPS) * (1 + 4e-5)
    reach = max(1.0, float(total[-1]) * top_p / WHOLE)
    few, many = (np.searchsorted(total, r) + 1 for r in (reach / factor**2, reach * factor**2))
    few = max(1, min(few, np.searchsorted(t, max(last - apart, 0), "right")))
    many = min(many, np.searchsorted(t, last + apart, "right"), len(t))
    share = draw / 2**32
    rank = int(np.searchsorted(total, share * float(total[few - 1]) / factor**2, "right"))
    if rank >= few or total[rank] <= share * float(total[many - 1]) * factor**2 or len(t) == top_k == rank + 1:
        return None
    near = np.diff(t[max(rank - 1, 0) : rank + 2].astype(np.int64))  # to the ranks before and after
    return int(ids[rank]) if (near > 2 * apart).all() else None


def kept(row: Array, how: Array) -> tuple[Array, Array]:
    """Ids that may be chosen, most likely first and of equals the lower, and the sum of weights up to each."""
    last, top_p = int(how[1]), int(how[3])
    t, ids, total = _ranked(row, how)
    reach = max(1, int(total[-1]) * top_p // WHOLE)
    keep = int(np.searchsorted(total, np.uint64(reach))) + 1  # up to and with the one that reaches top-p
    keep = min(keep, int(np.searchsorted(t, last, "right")))
    return ids[:keep], total[:keep]


def _ranked(row: Array, how: Array) -> tuple[Array, Array, Array]:
    """The top-k logits, most likely first: distance from the largest, ids, and the sum of weights up to each."""
    top_k = int(how[2])
    t = steps(row, how[:1].view(np.float32)[0])
    ids = np.flatnonzero(t < FAR)
    if top_k < len(ids):
        ids = ids[t[ids] <= np.partition(t[ids], top_k - 1)[top_k - 1]]
    keys = np.sort(t[ids].astype(np.uint64) << np.uint64(32) | ids.astype(np.uint64))[:top_k]
    t, ids = (keys >> np.uint64(32)).astype(np.uint32), (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return t, ids, np.cumsum(weights(t), dtype=np.uint64)


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
