"""wr.pick_rows: the id of the next token from every row of logits, each by the sampler words of its own row.

If any row is drawn, all rows of `how` have the words of choice.draw_words, where a top-k of 0 means the largest logit.
If any row lowers recent tokens, all rows have words of choice.repeat_words, padded with the id -1.

If it `feeds` the next step, the chosen ids also become the first tokens of the graph's first input, as in pick.py. Then
row i of the logits must be that of token i.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..shapes import Array, prod
from .choice import GREEDY, RECENT, WORDS, choose, draw_words, parts_of, repeat_words
from .limits import Limits
from .plan import Plan, Step, fold, need
from .spec import Args, Case, Resource, op

TOP_K = 2  # the word with the top-k


def rows_of_words(words: Sequence[Array]) -> Array:
    """The words of several samplers as rows of `how`, all of the length that the longest needs."""
    parts = [parts_of(row.size) for row in words]
    draw, recent = (max((part[i] for part in parts), default=0) for i in (0, 1))
    how = np.full((len(words), draw + (2 + recent if recent else 0)), -1, np.int32)
    for out, row, (own_draw, own) in zip(how, words, parts, strict=True):
        out[:draw] = row[:draw] if own_draw else 0
        if recent:
            out[draw : draw + 2] = np.ones(2, np.float32).view(np.int32)
            if own:
                out[draw : draw + 2 + own] = row[own_draw:]
    return how


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    chosen, width = [], parts_of(a["how"][1])[0]
    for row, how in zip(t["x"], t["how"], strict=True):
        draw = how[:width] if width and how[TOP_K] else GREEDY
        chosen.append(choose(row, np.concatenate((draw, how[width:]))))
    return [np.asarray(chosen, np.int32)]


def make(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Mostly sorted logits, some of them equal, and rows with different samplers; at least every third is greedy."""
    (rows, count), words = a["x"], a["how"][1]
    draw, recent = parts_of(words)
    x = np.sort(rng.standard_normal((rows, count)).astype(np.float32).round(2) * 3)
    x[1::2, -3:] = x[1::2, -1:]  # several are the largest, for different lanes
    x[2::3, : count // 2 : 64] = x[2::3, -1:]  # and for one lane
    samplers = (
        (0.8, 40, 0.95, 0.01),
        (1.0, 0, 0.9, 0.0),
        (1.0, 3, 1.0, 0.0),
        (100.0, 0, 1.0, 0.95),  # min-p ends among hundreds of logits
        (1.5, 0, 1.0, 0.0),
    )
    how = []
    for i in range(rows):
        temp, top_k, top_p, min_p = samplers[i % len(samplers)]
        is_drawn = draw and i % 3 != 2
        own = draw_words(temp, top_k, top_p, min_p, i, int(rng.integers(1000))) if is_drawn else GREEDY
        if recent:  # the likeliest are among the recent tokens
            ids = np.arange(count)[::-7][: min(recent, RECENT * (1 + i % 2))]
            own = np.concatenate((own, repeat_words(1.3, ids)))
        how.append(own)
    made = rows_of_words(how)
    return {"x": x, "how": np.pad(made, ((0, 0), (0, words - made.shape[1])), constant_values=-1)}


def resources(a: Args, limits: Limits) -> dict[str, Resource]:
    return {"list": Resource(8 * prod(a["x"])), "lowered": Resource(4 * prod(a["x"]))}


def _case(rows: int, count: int, *live: int) -> Case:
    most = WORDS + 2 + 2 * RECENT
    sizes = [(n, words) for n in (rows, *live) for words in (most, most - RECENT, WORDS, most - WORDS, 0)][1:]
    small = tuple({"x": (n, count), "how": (n, words)} for n, words in sizes)
    return Case({"x": (rows, count), "how": (rows, most)}, {"feeds": False}, small, {"how": "int32", "out": "int32"})


@op(
    "wr.pick_rows",
    "x how/int32 feeds:bool -> out/int32",
    reference=reference,
    resources=resources,
    make=make,
    cases=(_case(7, 509, 1, 5), _case(2, 7, 1), _case(5, 9001, 3)),
)
def pick_rows(a: Args, limits: Limits) -> Plan:
    x, how = a["x"], a["how"]
    need(
        len(x) == len(how) == 2 and x[0] == how[0], f"x has dims {list(x)}, how {list(how)}: a row of how per row of x"
    )
    rows, count = x
    draw, recent = parts_of(how[1])
    need(
        how[1] == draw + (recent + 2 if recent else 0) and draw in (0, WORDS),
        f"how has dims {list(how)}, a draw takes {WORDS} words, and repeats take 2 + {RECENT}n",
    )
    if not rows:
        return Plan(((0,),), (), "empty")
    need(0 < count < 1 << 24, f"x has {count} columns, ids have 24 bits")
    params = (("rows", rows), ("count", count), ("words", how[1]))
    grid, lanes = fold(rows, limits), ("WG", limits.profile.workgroup)
    # Bound as t_words: a binding with the name `how` has another offset in each turn, for the words of wr.pick.
    own, lowered = ("words", "how"), (("x", "lowered"),) if recent else ()
    lower = Step("pick_rows_lower", params, grid, (lanes, ("DRAW", draw)), rename=(own,), work=(8 * prod(x), 0))
    consts = (lanes, ("IDS", int(a.attrs["feeds"])))
    kernel, rename = ("pick_rows", (own, *lowered)) if draw else ("pick_rows_best", lowered)
    pick = Step(kernel, params, grid, consts, rename=rename, work=(4 * prod(x), 0))
    return Plan(((rows,),), (lower, pick) if recent else (pick,), "repeat" if recent else "rows")
