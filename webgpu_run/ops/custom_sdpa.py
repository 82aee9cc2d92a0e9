"""llama.custom_sdpa: attention over caches that other ops have written, causal or with a mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..shapes import Array, Dims, broadcast, broadcast_strides, prod
from . import et_sdpa, sdpa, sdpa_shares
from .limits import Limits
from .plan import Bound, Plan, Step, fold, need, unsupported
from .spec import Args, Case, op


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    q, scale = t["q"][0], a.num("scale", a["q"][3] ** -0.5)
    if "mask" not in a:
        return [sdpa.attention(q, t["kc"][0], t["vc"][0], int(a.attrs.get("pos") or 0), scale)[None]]
    k, v = (np.repeat(t[n][0].astype(np.float64), q.shape[1] // t[n].shape[2], 1) for n in ("kc", "vc"))
    scores = np.einsum("shd,chd->hsc", q.astype(np.float64), k) * scale + t["mask"]
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return [np.einsum("hsc,chd->shd", p / p.sum(-1, keepdims=True), v)[None]]


def _case(s: int, c: int, q: int, kv: int, d: int, pos: int, *live: int, mask: bool = False) -> Case:
    dims: dict[str, Dims] = {"q": (1, s, q, d), "kc": (1, c, kv, d), "vc": (1, c, kv, d)}
    dims |= {"mask": (s, c)} if mask else {}
    lives = [{"q": (1, n, q, d)} | ({"mask": (n, c)} if mask else {}) for n in live]
    return Case(dims, {"pos": pos, "causal": not mask, "scale": 0.3 if mask else None}, tuple(lives))


@op(
    "llama.custom_sdpa.default",
    "q kc:cache vc:cache pos:slot mask?:mask _dropout causal:bool scale?:num -> out",
    reference=reference,
    resources=lambda a, limits: sdpa_shares.part_resources(a["q"], a["kc"], limits),
    cases=(
        _case(13, 40, 6, 2, 16, 27, 1, 5),
        _case(5, 9, 2, 1, 128, 1, 1, 3),
        _case(5, 37, 6, 2, 12, 0, 1, 3, mask=True),
        _case(3, 8, 2, 2, 16, 2, mask=True),
    ),
)
def custom_sdpa(a: Args, limits: Limits) -> Plan:
    """With a mask every row of the caches is seen, and the position does not count."""
    q, cache = a["q"], a["kc"]
    for name in ("q", "kc", "vc"):
        need(
            len(a[name]) == 4 and a[name][0] == 1,
            f"{name} has dims {list(a[name])}, expected [1, rows, heads, head_dim]",
        )
    need(cache == a["vc"] and q[3] == cache[3], f"q {list(q)} and the caches {list(cache)}, {list(a['vc'])} do not fit")
    need(cache[2] > 0 and q[2] % cache[2] == 0, f"{q[2]} query heads can't share {cache[2]} key heads")
    need(q[1] <= cache[1], f"{q[1]} rows, the cache holds {cache[1]}")
    unsupported(
        bool(a.attrs.get("causal")) != ("mask" in a), "attention needs to be causal or to have a mask, not both"
    )
    bound = Bound("pos", cache[1] - q[1], f"the KV cache holds {cache[1]} positions, {q[1]} more are asked for")
    if not prod(q):
        return Plan((q,), (), "empty", (bound,))
    if "mask" not in a:
        steps = sdpa.attend_steps(a, q, replace(limits, kv="f32"))  # the file's own caches are f32
        return Plan((q,), steps, sdpa.route_of("online", steps), (bound,))
    scores = (1, q[2], q[1], cache[1])
    need(broadcast(scores, a["mask"]) == scores, f"the mask has dims {list(a['mask'])}, the scores {list(scores)}")
    step = Step(
        "et_sdpa",
        (
            ("queries", q[1] * q[2]),
            ("heads", q[2]),
            ("rows", q[1]),
            ("keys", cache[1]),
            ("share", q[2] // cache[2]),
            ("scale", a.num("scale", q[3] ** -0.5)),
            ("mask_strides", broadcast_strides(a["mask"], scores)),
        ),
        fold(q[1] * q[2], limits, f"{q[1]} queries of {q[2]} heads"),
        (("WG", et_sdpa.WG), ("DIM", q[3]), ("MASK", 1), ("ROWS_FIRST", 1)),
        rename=(("k", "kc"), ("v", "vc")),
        work=(4 * (2 * prod(q) + 2 * prod(cache)), 4 * prod(scores) * q[3]),
    )
    return Plan((q,), (step,), "masked", (bound,))
