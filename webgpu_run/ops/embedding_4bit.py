"""quantized_decomposed.embedding_4bit: rows of a 4-bit table that the exporter did not turn into et_vk.embedding_q4gsw.

It leaves tables whose rows are not a multiple of 32, or that have zero points. The even column is in the high nibble.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..shapes import Array, Dims, ceil_div, prod
from . import q4_layout
from .expression import WG
from .limits import Limits
from .plan import Plan, Step, fold, need
from .spec import Args, Case, Packed, op


def reference(a: Args, t: Mapping[str, Array]) -> list[Array]:
    scales = t["scales"].astype(np.float64).reshape(len(t["w"]), -1)
    steps = q4_layout.nibbles(q4_layout.swap_nibbles(t["w"])).astype(np.float64)
    groups = steps.reshape(*scales.shape, -1)
    if "zeros" in t:
        groups = groups - t["zeros"].astype(np.float64).reshape(*scales.shape, 1)
    table = (groups * scales[..., None]).reshape(steps.shape)
    return [table.take(t["index"], 0, mode="clip")]


def pack(a: Args, t: Mapping[str, Array], limits: Limits) -> dict[str, Packed]:
    """The bytes of the table as words, and all scales and zero points as f32."""
    data = np.ascontiguousarray(t["w"]).reshape(-1).view(np.uint8)
    packed = {"w": Packed(np.pad(data, (0, -data.size % 4)).view(np.uint32))}
    return packed | {name: Packed(t[name].astype(np.float32)) for name in ("scales", "zeros") if name in t}


def make(a: Args, rng: np.random.Generator) -> dict[str, Array]:
    """Random rows, and one index past the table, which must give its last row."""
    index = rng.integers(0, a["w"][0], a["index"]).astype(np.int32)
    if index.size > 1:
        index.flat[-1] = a["w"][0]
    return {"w": rng.integers(0, 256, a["w"]).astype(np.uint8), "index": index}


def _case(w: Dims, scales: Dims, zeros: str = "") -> Case:
    dims = {"w": w, "scales": scales, "index": (1, 13)} | ({"zeros": scales} if zeros else {})
    types = {"w": "uint8", "index": "int32"} | ({"zeros": zeros} if zeros else {})
    return Case(dims, {}, ({"index": (1, 1)}, {"index": (1, 4)}), types)


@op(
    "quantized_decomposed.embedding_4bit.dtype",
    "w!:table/q4 scales!:scales zeros?!:scales/float|int _ _ index:index/int _ -> out",
    reference=reference,
    pack=pack,
    make=make,
    cases=(_case((37, 10), (37, 4), "int8"), _case((11, 7), (11,)), _case((5, 32), (5, 2), "float32")),
)
def embedding_4bit(a: Args, limits: Limits) -> Plan:
    vocab, half = a["w"]
    dim, groups = 2 * half, prod(a["scales"]) // max(vocab, 1)
    for name in {"scales", "zeros"} & a.dims.keys():
        need(groups > 0 and prod(a[name]) == vocab * groups, f"{name} have dims {list(a[name])} for {vocab} rows")
    need(dim % groups == 0, f"rows of {dim} do not have {groups} groups")
    out = (*a["index"], dim)
    if not prod(out):
        return Plan((out,), (), "empty")
    step = Step(
        "embedding_4bit",
        (("count", prod(out)), ("dim", dim), ("group", dim // groups), ("vocab", vocab)),
        fold(ceil_div(prod(out), WG), limits, f"{prod(out)} elements"),
        (("WG", WG), ("ZEROS", int("zeros" in a))),
        rename=() if "zeros" in a else (("zeros", "scales"),),
        work=(prod(out) * 9 // 2, 2 * prod(out)),
    )
    return Plan((out,), (step,), "lanes")
