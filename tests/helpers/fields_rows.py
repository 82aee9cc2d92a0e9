"""An independent computation of the dispatches of a batch: attention and choice per row."""

from __future__ import annotations

from typing import Any

from webgpu_run.ops.limits import Limits
from webgpu_run.ops.plan import Plan, Reach
from webgpu_run.ops.spec import Args, Op

from helpers.fields_attention import dispatch, over_textures, projected, same_steps, texels, textures, turned
from helpers.fields_moves import Want, size, up
from helpers.fields_q4 import spread

ATTENTION = ("attention_rows", "attention_rows_q4gsw")


def over_buffers(a: Args, limits: Limits) -> list[dict[str, Any]]:
    """Keys and values are stored by one dispatch, and every row attends by another."""
    _, rows, heads, dim = a["xq"]
    kv, slot, lanes = a["kc"][2], a.slots["pos"], limits.profile.workgroup
    half, each, quads = limits.kv == "f16", heads // kv, size(a["xk"]) // 4
    shape = {"HEADS": heads, "KV_HEADS": kv, "D": dim, "TABLE": a["cos"][1], "HALVES": int(a.attrs["halves"])}
    shape |= {"SEQUENCES": a.int("sequences")}
    share = max(n for n in range(1, each + 1) if each % n == 0 and (n == 1 or n * dim // 4 <= 4 * lanes))
    packed = {"CELL": "vec2<u32>", "HELD": "vec2(pack2x16float(v.xy), pack2x16float(v.zw))"}
    wide = "vec4(unpack2x16float(cell.x), unpack2x16float(cell.y))" if half else "cell"
    cell = packed if half else {"CELL": "vec4<f32>", "HELD": "v"}
    stored = {"quads": quads, "pos_slot": slot}
    params = {"rows": rows, "pos_slot": slot, "scale": a.num("scale", 1 / dim**0.5)}
    own = {"SHARE": share, "WG": lanes, "CELL": cell["CELL"], "WIDE": wide}
    return [
        dispatch("rows_store", stored, (*spread(up(2 * quads, 64), limits), 1), WG=64, **shape, **cell),
        dispatch("sdpa_batch", params, (*spread(rows * heads // share, limits), 1), **shape, **own),
    ]


def check(op: Op, a: Args, plan: Plan, limits: Limits) -> None:
    """The plan of a batch's attention is the one that its shapes need."""
    cache, slot, sequences = a["kc"], a.slots["pos"], a.int("sequences")
    fused, dim = op.short == "attention_rows_q4gsw", cache[3]
    rows, heads = a["rows"][0], a["w0"][0] // dim if fused else a["xq"][2]
    assert {b.high for b in plan.bounds} == {cache[1] - 1, a["cos"][0] - 1}
    if not fused and not textures(heads, cache, a["cos"][1], limits, sequences):
        assert (plan.route, plan.reach) == ("buffer", None)
        assert [s.rename for s in plan.steps] == [(("x", "xk"),), (("x", "xq"),)]
        assert not any(s.windows for s in plan.steps)
        same_steps(op, plan, over_buffers(a, limits))
        return
    blocks = texels(cache, limits, sequences)["LAYER_ROWS"] // sequences
    assert (plan.route, plan.reach) == ("texture", Reach("pos", 1, 8 * blocks))
    attend = over_textures(rows, heads, cache, a.num("scale", 1 / dim**0.5), slot, limits, sequences)
    first = projected(a, rows, slot, limits, sequences) if fused else [turned(a, slot, limits, True, sequences)]
    same_steps(op, plan, [*first, *attend])


def pick(a: Args, limits: Limits) -> tuple[str, list[Want]]:
    """A workgroup per row; recent tokens are lowered in a copy before. Without draws it is a kernel of its own."""
    (rows, count), lanes = a["x"], limits.profile.workgroup
    params = {"rows": rows, "count": count, "words": a["how"][1]}
    draw = 5 if a["how"][1] % 64 in (5, 7) else 0
    kernel = "pick_rows" if draw else "pick_rows_best"
    steps = [Want(kernel, params, rows, consts={"WG": lanes, "IDS": int(a.attrs["feeds"])})]
    if a["how"][1] == draw:
        return "rows", steps
    return "repeat", [Want("pick_rows_lower", params, rows, consts={"WG": lanes, "DRAW": draw}), *steps]
