"""Attention with a KV cache: rotary embedding and cache write become part of it, then the projections before it."""

from __future__ import annotations

from ...formats.vkgraph import SymInt, ValueList
from ...ops import attention_q4gsw
from ...ops.limits import Limits
from ..calls import Ref
from ..pattern import Call, Is, computed_by, matches
from ..rewrite import Rewrite
from .linears import FUSED_3
from .tidy import CLONE, SLICE, VIEW

SDPA = "sdpa_with_kv_cache.default"
ROPE, ROPE_HALVES = "et_vk.apply_rotary_emb.default", "et_vk.apply_rotary_emb_hf.default"
MAX_COPIES = 8  # between a slice of a rotary table and its use
ATTENTION, PROJECTED_ATTENTION = "wr.attention", "wr.attention_q4gsw"
ATTENTION_ROWS, PROJECTED_ATTENTION_ROWS = "wr.attention_rows", "wr.attention_rows_q4gsw"  # of a batch

_rope = Call(f"{ROPE} {ROPE_HALVES}", xq="xq", xk="xk", cos="cos", sin="sin")
_sdpa = Call(SDPA, q=_rope["oq"], k=_rope["ok"], pos="pos")


def fuse_attention(g: Rewrite, limits: Limits) -> None:
    """Rotary embedding, cache write and attention; rotary tables that are sliced at the position are read there."""
    for match in matches(g, _sdpa):
        rope, sdpa, pos = match[_rope], match[_sdpa], match["pos"]
        halves = rope.op == ROPE_HALVES
        if (halves and rope["pos"] != pos) or not (_is_own_cache(g, sdpa["kc"]) and _is_own_cache(g, sdpa["vc"])):
            continue
        table = g.tensor(rope["cos"])
        if table is None or len(table.dims) != 2:
            continue
        cos, sin = (_whole_table(g, rope[name], pos) for name in ("cos", "sin"))
        is_sliced = cos is not None and sin is not None and not halves
        match.replace(
            ATTENTION,
            xq=rope["xq"],
            xk=rope["xk"],
            cos=cos if is_sliced else rope["cos"],
            sin=sin if is_sliced else rope["sin"],
            absolute=halves or is_sliced,
            halves=halves,
            **sdpa.some("v", "kc", "vc", "pos", "mask", "_dropout", "causal", "scale"),
        )


def _is_own_cache(g: Rewrite, ref: Ref) -> bool:
    """Whether only this attention uses the cache: the fused op stores it in its own layout."""
    cache = g.tensor(ref)
    return cache is not None and cache.constant_id >= 0 and g.read_count(ref) == 1


def _whole_table(g: Rewrite, rows: Ref, pos: Ref) -> Ref | None:
    """The table if these are its rows from the position on: a slice that starts there, perhaps copied."""
    for _ in range(MAX_COPIES):
        copy = computed_by(g, rows, _copy)
        if copy is None:
            break
        source, copied = g.tensor(copy["source"]), g.tensor(rows)
        if source is None or copied is None or source.dims != copied.dims:
            return None
        rows = copy["source"]
    cut = computed_by(g, rows, _cut)
    if cut is None or cut["start"] != pos or not isinstance(g.value(pos), SymInt):
        return None
    return cut["table"]


_copy = Call(f"{CLONE} {VIEW}", x="source")
_cut = Call(SLICE, x="table", dim=Is(0), start="start", step=Is(1))

_linear = Call(FUSED_3)
_xq, _xk, _v = (Call(VIEW, x=_linear[f"out{i}"]) for i in range(3))
_attention = Call(ATTENTION, xq=_xq, xk=_xk, v=_v, absolute=Is(True))
_attention_rows = Call(ATTENTION_ROWS, xq=_xq, xk=_xk, v=_v)


def fuse_projection(g: Rewrite, limits: Limits) -> None:
    """The linear that projects to queries, keys and values becomes part of the attention that reads them."""
    _fuse_projection(g, limits, _attention, PROJECTED_ATTENTION, "mask _dropout causal")


def fuse_projection_rows(g: Rewrite, limits: Limits) -> None:
    """The same for the attention of a batch."""
    _fuse_projection(g, limits, _attention_rows, PROJECTED_ATTENTION_ROWS, "rows sequences")


def _fuse_projection(g: Rewrite, limits: Limits, pattern: Call, fused: str, own: str) -> None:
    """`own` are the arguments that only this form of attention has."""
    for match in matches(g, pattern):
        linear, attention = match[_linear], match[pattern]
        x, cache, table = g.tensor(linear["x"]), g.tensor(attention["kc"]), g.tensor(attention["cos"])
        weights, group = g.value(linear["w"]), g.value(linear["group"])
        sequences = g.value(attention["sequences"]) if "sequences" in own else 0
        if x is None or cache is None or table is None:
            continue
        if not isinstance(weights, ValueList) or not isinstance(group, int) or not isinstance(sequences, int):
            continue
        widths = tuple(w.dims[0] for v in weights.items if (w := g.tensor(Ref(v))) is not None)
        if not attention_q4gsw.fits(x.dims, widths, cache.dims, table.dims, group, limits, sequences):
            continue
        match.replace(
            fused,
            **linear.some("x", "w", "scales", "group", "bias", "norm", "eps", "rounded"),
            **attention.some("kc", "vc", "pos", "cos", "sin", "halves", "scale", *own.split()),
        )
