"""An independent computation of the dispatches of a batch: attention and choice per row."""

from __future__ import annotations

from typing import Any

import numpy as np

from webgpu_run.ops.limits import Limits
from webgpu_run.ops.plan import Plan, Reach
from webgpu_run.ops.spec import Args, Op

from helpers.fields_moves import Want, size, up
from helpers.fields_q4 import spread

HALVES = "vec4(unpack2x16float(pack2x16float(v.xy)), unpack2x16float(pack2x16float(v.zw)))"


def attention(a: Args, limits: Limits) -> tuple[str, list[dict[str, Any]], Reach | None]:
    """Keys and values are stored by one dispatch, and every row attends by another."""
    _, rows, heads, dim = a["xq"]
    context, kv, sequences = a["kc"][1], a["kc"][2], a.int("sequences")
    slot, scale = a.slots["pos"], a.num("scale", 1 / dim**0.5)
    half = limits.kv == "f16"
    shape = {"HEADS": heads, "KV_HEADS": kv, "D": dim, "TABLE": a["cos"][1]}
    shape |= {"HALVES": int(a.attrs["halves"]), "SEQUENCES": sequences}
    quads, each = size(a["xk"]) // 4, heads // kv
    stored = {"quads": quads, "pos_slot": slot}
    # The fewest blocks that fill 16 rows of a layer and leave no more layers than there may be.
    blocks = up(context, 8)
    held = next(
        n for n in range(1, blocks + 1) if n == blocks or (n * sequences >= 16 and up(blocks, n) <= limits.max_layers)
    )
    if limits.profile.image_cache and max(held * sequences, 2 * kv * dim) <= limits.max_texture:
        layer = {"LAYER_ROWS": held * sequences, "CACHE": "rgba16float" if half else "rgba32float"}
        share = each if each <= 4 else 1
        store = ("rows_store_texture", stored, (*spread(up(2 * quads, 8), limits), 1))
        attend = ("sdpa_batch_texture", {"pos_slot": slot, "scale": scale}, (heads // share, rows, 1))
        consts = [{"WG": 8, **shape, **layer, "HELD": HALVES if half else "v"}, {**shape, **layer, "SHARE": share}]
        return (
            "texture",
            [_step(*s, c) for s, c in zip((store, attend), consts, strict=True)],
            Reach("pos", 1, 8 * held),
        )
    lanes = limits.profile.workgroup
    share = max(n for n in range(1, each + 1) if each % n == 0 and (n == 1 or n * dim // 4 <= 4 * lanes))
    packed = {"CELL": "vec2<u32>", "HELD": "vec2(pack2x16float(v.xy), pack2x16float(v.zw))"}
    wide = "vec4(unpack2x16float(cell.x), unpack2x16float(cell.y))" if half else "cell"
    cell = packed if half else {"CELL": "vec4<f32>", "HELD": "v"}
    store = ("rows_store", stored, (*spread(up(2 * quads, 64), limits), 1))
    params = {"rows": rows, "pos_slot": slot, "scale": scale}
    attend = ("sdpa_batch", params, (*spread(rows * heads // share, limits), 1))
    consts = [{"WG": 64, **shape, **cell}, {**shape, "SHARE": share, "WG": lanes, "CELL": cell["CELL"], "WIDE": wide}]
    return "buffer", [_step(*s, c) for s, c in zip((store, attend), consts, strict=True)], None


def _step(kernel: str, params: dict[str, Any], grid: tuple[int, ...], consts: dict[str, Any]) -> dict[str, Any]:
    return {"kernel": kernel, "params": params, "grid": grid, "consts": consts}


def check(op: Op, a: Args, plan: Plan, limits: Limits) -> None:
    """The plan of a batch's attention is the one that its shapes need."""
    route, want, reach = attention(a, limits)
    assert (plan.route, plan.reach) == (route, reach), f"{op.name}: {plan.route}, {plan.reach}, not {route}, {reach}"
    found = [_step(s.kernel, dict(s.params), s.grid, dict(s.consts)) for s in plan.steps]
    for steps in (found, want):  # as uniforms hold them
        for step in steps:
            params = step["params"].items()
            step["params"] = {n: np.float32(v) if isinstance(v, float) else v for n, v in params}
    assert found == want, f"{op.name}: {found}, expected {want}"
    assert [s.rename for s in plan.steps] == [(("x", "xk"),), (("x", "xq"),)]
    assert {b.high for b in plan.bounds} == {a["kc"][1] - 1, a["cos"][0] - 1}
    assert not any(s.windows for s in plan.steps)


def pick(a: Args, limits: Limits) -> tuple[str, list[Want]]:
    """A workgroup per row; recent tokens are lowered in a copy before."""
    (rows, count), lanes = a["x"], limits.profile.workgroup
    params = {"rows": rows, "count": count, "words": a["how"][1]}
    steps = [Want("pick_rows", params, rows, consts={"WG": lanes})]
    if a["how"][1] == 5:
        return "rows", steps
    return "repeat", [Want("pick_rows_lower", params, rows, consts={"WG": lanes, "DRAW": 5}), *steps]
