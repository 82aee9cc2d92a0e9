"""wr.pick: the id of the next token from the last row of logits, so that decoding reads four bytes, not the vocabulary.

If it `feeds` the next step, the chosen id also becomes the first token of the graph's first input. That is no argument,
because its length would then decide about the plan.

`how` comes from choice.draw_words: without words the largest logit is taken, with all words one is drawn. Words of
choice.repeat_words may follow; then all of this reads a copy of the row in which recent tokens are lowered. A draw does
not sort. It counts logits in bins by their distance from the largest, lists those in the few bins where top-k, top-p,
min-p and the draw end, and finds the exact ends among the listed logits in the last dispatch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, align, ceil_div, prod, rows_of
from .choice import RECENT, WORDS, choose, draw_words, parts_of, repeat_words
from .limits import Limits
from .plan import Plan, Step, fold, need
from .spec import Args, Case, Resource, op

PARTS = 64  # chunks per row, at most
SUMS = 3 * 256  # words: count and weight (two words) of 256 bins
ENDS = 8  # words of t_ends, see pick_ends.wgsl


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    return [np.asarray([choose(t["x"].reshape(-1, a["x"][-1])[-1], t["how"])], np.int32)]


def make(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Sorted logits, the likeliest last, so that no part of the row can be skipped; some are equal."""
    x = np.sort(rng.standard_normal(a["x"]).astype(np.float32).round(2) * 3)
    temp, top_k, top_p, min_p = a.attrs.get("sampler", (1.0, 0, 1.0, 0.0))
    draw, recent = parts_of(a["how"][0])
    words = draw_words(temp, int(top_k), top_p, min_p, 0, int(rng.integers(1000)))[:draw]
    if recent:  # the likeliest are among the recent tokens
        ids = np.arange(x.shape[-1])[::-7][:recent]
        words = np.concatenate((words, repeat_words(1.3, ids), np.full(recent, -1, np.int32)))
    return {"x": x, "how": words[: a["how"][0]]}


def resources(a: Args, limits: Limits) -> dict[str, Resource]:
    words = {"best": PARTS * 3, "sums": SUMS, "ends": ENDS, "list": a["x"][-1] * 2}
    words["lowered"] = align(a["x"][-1], 4)
    return {name: Resource(4 * count) for name, count in words.items()}


def _case(*x: int, live: tuple[tuple[int, ...], ...] = (), sampler: tuple[float, ...] = ()) -> Case:
    sizes = (0, WORDS, 2 + RECENT, most := WORDS + 2 + 2 * RECENT)
    top = {"x": x, "how": (most,)}
    small = tuple({"x": dims, "how": (how,)} for dims in (x, *live) for how in sizes if (dims, how) != (x, most))
    attrs = {"feeds": False} | ({"sampler": sampler} if sampler else {})
    return Case(top, attrs, small, {"how": "int32", "out": "int32"})


@op(
    "wr.pick",
    "x how/int32 feeds:bool -> out/int32",
    reference=reference,
    resources=resources,
    make=make,
    cases=(
        _case(1, 5, 509, live=((1, 1, 509), (1, 3, 509)), sampler=(0.8, 40, 0.95, 0.01)),
        _case(1, 7),
        _case(1, 9000, sampler=(1.0, 0, 0.9, 0.0)),
        _case(1, 5000, sampler=(100.0, 0, 1.0, 0.95)),  # min-p ends among hundreds of nearly equal logits
    ),
)
def pick(a: Args, limits: Limits) -> Plan:
    x, how = a["x"], a["how"]
    need(prod(x) > 0, f"x has dims {list(x)}: nothing to choose from")
    draw, recent = parts_of(prod(how))
    whole = draw + (recent + 2 if recent else 0)
    need(
        how == (whole,), f"how has dims {list(how)}, a choice takes no words or {WORDS}, and 2 + {RECENT}n for repeats"
    )
    count, base = x[-1], (rows_of(x) - 1) * x[-1]
    need(count < 1 << 24, f"x has {count} columns, ids have 24 bits")
    lanes = limits.profile.workgroup
    before: tuple[Step, ...] = ()
    if recent:
        each = ceil_div(count, PARTS if limits.profile.tiled else PARTS // 8)
        row = (("base", base), ("count", count), ("chunk", each), ("recent", recent))
        consts = (("WG", lanes), ("AT", draw))
        before = (Step("pick_repeat", row, fold(ceil_div(count, each), limits), consts, work=(8 * count, recent)),)
        base = 0
    rename = (("x", "lowered"),) if recent else ()
    fours = ceil_div(base % 4 + count, 4)
    # On a software adapter starting a workgroup costs more than running a hundred lanes, so it gets fewer chunks.
    chunk = ceil_div(fours, min(PARTS if limits.profile.tiled else PARTS // 8, ceil_div(fours, lanes)))
    parts = ceil_div(fours, chunk)
    params = (("base", base), ("count", count), ("chunk", chunk), ("parts", parts))
    ids = ("IDS", int(a.attrs["feeds"]))
    grid, one, wg = fold(parts, limits), (1, 1, 1), ("WG", lanes)
    consts = (wg, ("SUMS", SUMS if draw else 0))
    first = Step("pick_parts", params, grid, consts, rename=rename, work=(4 * count, 0))
    more = "repeat+" if recent else ""
    if not draw:
        best = Step("pick_best", params, one, (ids,), work=(12 * parts, 0))
        return Plan(((1,),), (*before, first, best), f"{more}greedy")
    steps = (
        *before,
        first,
        Step("pick_sums", params, grid, (wg,), rename=rename, work=(4 * count, 0)),
        Step("pick_ends", params, one, (wg,), work=(8 * SUMS, 0)),
        Step("pick_list", params, grid, (wg,), rename=rename, work=(4 * count, 0)),
        Step("pick_draw", params, one, (("WG", 64), ids), work=(4 * SUMS, 0)),
    )
    return Plan(((1,),), steps, f"{more}drawn")
