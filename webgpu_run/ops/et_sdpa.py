"""et_vk.sdpa: attention without a cache, softmax(q k^T * scale + mask) v, every dim live.

With many queries an invocation computes several of them, with few a workgroup computes one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, broadcast, broadcast_strides, ceil_div, prod
from .limits import Limits
from .plan import Plan, Step, fold, need
from .spec import Args, Case, op

WG = 32
# With fewer queries a workgroup serves one. Registers hold a query and its sum, WIDEST elements each at most.
FEW, FEW_SOFTWARE, WIDEST = 2048, 64, 128


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    q, k, v = (t[n].astype(np.float64) for n in "qkv")
    scores = q @ k.swapaxes(-1, -2) * a.num("scale", q.shape[-1] ** -0.5)
    if "mask" in a:
        scores = scores + t["mask"]
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return [p / p.sum(-1, keepdims=True) @ v]


def _dims(b: int, h: int, s: int, c: int, d: int) -> dict[str, tuple[int, ...]]:
    return {"q": (b, h, s, d), "k": (b, h, c, d), "v": (b, h, c, d)}


@op(
    "et_vk.sdpa.default",
    "q k v mask?:mask scale?:num -> out",
    reference=reference,
    cases=(
        Case(_dims(2, 3, 61, 7, 16), live=(_dims(1, 3, 1, 7, 16), _dims(2, 3, 30, 5, 16))),
        Case(_dims(1, 2, 70, 9, 24) | {"mask": (1, 2, 70, 9)}, {"scale": 0.3}),
        Case(_dims(1, 3, 11, 37, 16), live=(_dims(1, 3, 1, 37, 16), _dims(1, 3, 4, 5, 16))),
        Case(
            _dims(2, 2, 5, 9, 24) | {"mask": (1, 1, 5, 9)},
            {"scale": 0.3},
            (_dims(1, 2, 3, 9, 24) | {"mask": (1, 1, 3, 9)},),
        ),
    ),
)
def sdpa(a: Args, limits: Limits) -> Plan:
    q, k, v = a["q"], a["k"], a["v"]
    need(
        len(q) == len(k) == 4 and k == v,
        f"q {list(q)}, k {list(k)}, v {list(v)}: expected [batch, heads, rows, head_dim]",
    )
    need(q[:2] == k[:2] and q[3] == k[3], f"q {list(q)} and k {list(k)} do not fit")
    need(k[2] > 0, "there is no key to attend to")
    if not prod(q):
        return Plan((q,), (), "empty")
    scores = (*q[:3], k[2])
    mask = a.get("mask") or ()
    need(broadcast(scores, mask) == scores, f"the mask has dims {list(mask)}, the scores {list(scores)}")
    strides = broadcast_strides(mask, scores)
    name, work = "masked" if "mask" in a else "online", (4 * (2 * prod(q) + 2 * prod(k)), 4 * prod(scores) * q[3])
    few = FEW_SOFTWARE if limits.profile.images else FEW
    if prod(q[:3]) >= few and q[3] % 4 == 0 and q[3] <= WIDEST:
        rows = min(4, q[2]) if limits.profile.images else 1
        items = prod(q[:2]) * ceil_div(q[2], rows)
        lanes = (("items", items), ("heads", q[1]), ("rows", q[2]), ("keys", k[2]))
        step = Step(
            "et_sdpa_rows",
            (*lanes, ("scale", a.num("scale", q[3] ** -0.5)), ("mask_strides", strides)),
            fold(ceil_div(items, WG), limits, f"{prod(q[:3])} queries"),
            (("WG", WG), ("ROWS", rows), ("CELLS", q[3] // 4), ("MASK", int("mask" in a))),
            work=work,
        )
        return Plan((q,), (step,), f"{name} rows")
    step = Step(
        "et_sdpa",
        (
            ("queries", prod(q[:3])),
            ("heads", q[1]),
            ("rows", q[2]),
            ("keys", k[2]),
            ("share", 1),
            ("scale", a.num("scale", q[3] ** -0.5)),
            ("mask_strides", strides),
        ),
        fold(prod(q[:3]), limits, f"{prod(q[:3])} queries"),
        (("WG", WG), ("DIM", q[3]), ("MASK", int("mask" in a)), ("ROWS_FIRST", 0)),
        rename=() if "mask" in a else (("mask", "q"),),
        work=work,
    )
    return Plan((q,), (step,), name)
