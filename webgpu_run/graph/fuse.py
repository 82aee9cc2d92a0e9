"""Graph-to-graph passes: what the exporter spells out as many ops becomes one op of ours with the same meaning.

Each pass takes and returns a VkGraph and can be run alone; ops made here are named `wr.*` and live in ops/. A value
that the graph returns, or that anything else reads, is never folded away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..formats.vkgraph import IntList, OperatorCall, SymInt, ValueList, VkGraph, VkTensor
from ..ops import attention_q4gsw, q4, q8
from ..ops.choice import WORDS
from ..ops.limits import Limits
from ..ops.spec import load_all
from .rewrite import Rewrite, drop_unused, drop_views, merge_symints

LINEAR = "et_vk.linear_q4gsw.default"
FUSED = "wr.linear_q4gsw"
PICK = "wr.pick"
DYNAMIC = "et_vk.linear_dq8ca_q4gsw.default"
ROUND = "wr.round_rows"  # between passes only: fold_rounding makes it a part of the linear
CHOOSE = "torchao.choose_qparams_affine.default"
Pass = Callable[[VkGraph, Limits], VkGraph]


def round_rows(vk: VkGraph, limits: Limits) -> VkGraph:
    """Linears of rows in 8 bits as plain 4-bit linears of rounded rows, one rounding for all that read the same."""
    g = Rewrite(vk)
    rounded: dict[int, int] = {}
    for at, call in enumerate(list(g.chain)):
        if call is None or call.name != DYNAMIC:
            continue
        x, scale, zero, weight, _, scales, group, bias, out = call.args
        choose, tensor = g.made_by(scale, CHOOSE), g.values[x]
        if choose is None or choose.args[0] != x or not isinstance(tensor, VkTensor):
            continue
        if not (g.only(scale) and g.only(zero)) or g.maker.get(zero) != g.maker[scale]:
            continue
        linear = OperatorCall(at, LINEAR, (x, weight, scales, group, bias, out))
        form = tuple(g.values[choose.args[i]] for i in (1, 2, 4, 5))
        whole_rows = IntList((1,) * (len(tensor.dims) - 1) + tensor.dims[-1:])
        if form != ("ASYMMETRIC", whole_rows, q8.LOW, q8.HIGH) or g.values[choose.args[6]] not in (None, q8.EPS):
            continue
        if not _fits(g, [linear], limits):
            continue
        first = g.maker[scale]
        if x in rounded:
            g.put(at, LINEAR, (rounded[x], *linear.args[1:]), (first,))
            continue
        rounded[x] = g.add(VkTensor(tensor.dtype, tensor.dims))
        g.put(at, LINEAR, (rounded[x], *linear.args[1:]), ())
        g.put(first, ROUND, (x, rounded[x]), ())
    return g.done()


def fold_rounding(vk: VkGraph, limits: Limits) -> VkGraph:
    """Rounding into the fused linears that read it: each rounds for itself."""
    g = Rewrite(vk)
    for at, call in enumerate(list(g.chain)):
        if call is None or not call.name.startswith(FUSED):
            continue
        rows = g.made_by(call.args[0], ROUND)
        if rows is not None:
            gone = (g.maker[call.args[0]],) if g.only(call.args[0]) else ()
            g.put(at, call.name, (rows.args[0], *call.args[1:9], g.add(True), call.args[-1]), gone)
    return g.done()


def _fused(
    g: Rewrite,
    x: int,
    linears: list[OperatorCall],
    outs: tuple[int, ...],
    swiglu: bool = False,
) -> tuple[str, tuple[int, ...]]:
    """Name and args of one fused linear for several that read x; see ops/linear_q4gsw.py for their order."""
    null = g.add(None)
    biased = g.values[linears[0].args[4]] is not None
    args = (
        x,
        g.add(ValueList(tuple(c.args[1] for c in linears))),
        g.add(ValueList(tuple(c.args[2] for c in linears))),
        linears[0].args[3],
        g.add(ValueList(tuple(c.args[4] for c in linears))) if biased else g.add(ValueList(())),
        null,
        g.add(0.0),
        null,
        g.add(swiglu),
        g.add(False),
        g.add(ValueList(outs)),
    )
    return f"{FUSED}.{len(outs)}", args


def _fits(g: Rewrite, linears: list[OperatorCall], limits: Limits) -> bool:
    """Same group size, bias for all or for none, and a shape that the fused kernel takes."""
    x, group = g.values[linears[0].args[0]], g.values[linears[0].args[3]]
    weights = [g.values[c.args[1]] for c in linears]
    return (
        isinstance(x, VkTensor)
        and isinstance(group, int)
        and group > 0
        and all(g.values[c.args[3]] == group for c in linears)
        and len({g.values[c.args[4]] is None for c in linears}) == 1
        and q4.fits(x.dims[-1], group, [w.dims[0] for w in weights if isinstance(w, VkTensor)], limits)
    )


def fuse_swiglu(vk: VkGraph, limits: Limits) -> VkGraph:
    """silu(x w1) * (x w3), spelled as two linears, a sigmoid and two muls."""
    g = Rewrite(vk)
    for at, call in enumerate(list(g.chain)):
        if call is None or call.name != "aten.mul.Tensor":
            continue
        for silu, up_out in (call.args[:2], call.args[1::-1]):
            mul, up = g.made_by(silu, "aten.mul.Tensor"), g.made_by(up_out, LINEAR)
            if mul is None or up is None or not (g.only(silu) and g.only(up_out)):
                continue
            for gate_out, sig in (mul.args[:2], mul.args[1::-1]):
                sigmoid, gate = g.made_by(sig, "aten.sigmoid.default"), g.made_by(gate_out, LINEAR)
                if sigmoid is None or gate is None or sigmoid.args[0] != gate_out or not g.only(sig):
                    continue
                if gate.args[0] != up.args[0] or len(g.readers[gate_out]) != 2 or not _fits(g, [gate, up], limits):
                    continue
                if g.values[gate.args[4]] is not None:
                    continue
                gone = tuple(g.maker[v] for v in (silu, up_out, gate_out, sig))
                g.put(at, *_fused(g, gate.args[0], [gate, up], (call.args[-1],), swiglu=True), gone)
                break
            if g.chain[at] is not call:
                break
    return g.done()


def fuse_siblings(vk: VkGraph, limits: Limits) -> VkGraph:
    """Linears that read the same x as one, with an output each; single ones take the same form."""
    g = Rewrite(vk)
    groups: dict[int, list[int]] = {}
    for i, call in enumerate(g.chain):
        if call is not None and call.name == LINEAR:
            groups.setdefault(call.args[0], []).append(i)
    for x, places in groups.items():
        calls = [c for i in places if (c := g.chain[i]) is not None]
        together = len(calls) <= 3 and _fits(g, calls, limits)
        parts = [(places, calls)] if together else [([i], [c]) for i, c in zip(places, calls, strict=True)]
        for some, linears in parts:
            if _fits(g, linears, limits):
                g.put(some[0], *_fused(g, x, linears, tuple(c.args[-1] for c in linears)), tuple(some))
    return g.done()


def fuse_residual(vk: VkGraph, limits: Limits) -> VkGraph:
    """x + linear(y): the add happens where the linear writes."""
    g = Rewrite(vk)
    for at, call in enumerate(list(g.chain)):
        if call is None or call.name != "aten.add.Tensor" or g.values[call.args[2]] not in (1, 1.0):
            continue
        for made, other in (call.args[:2], call.args[1::-1]):
            index = g.maker.get(made, -1)
            linear = g.chain[index] if index >= 0 else None
            if (
                linear is None
                or linear.name != f"{FUSED}.1"
                or not g.only(made)
                or g.values[linear.args[7]] is not None
            ):
                continue
            a, b = g.values[made], g.values[other]
            if (
                g.values[linear.args[8]]
                or not isinstance(a, VkTensor)
                or not isinstance(b, VkTensor)
                or a.dims != b.dims
            ):
                continue
            args = (*linear.args[:7], other, *linear.args[8:10], g.add(ValueList((call.args[-1],))))
            g.put(at, linear.name, args, (index,))
            break
    return g.done()


def fuse_norm(vk: VkGraph, limits: Limits) -> VkGraph:
    """rms_norm into the one linear that reads it."""
    g = Rewrite(vk)
    for at, call in enumerate(list(g.chain)):
        if call is None or not call.name.startswith(FUSED) or g.values[call.args[5]] is not None:
            continue
        norm = g.made_by(call.args[0], "et_vk.rms_norm.default")
        if norm is None or not g.only(call.args[0]):
            continue
        args = (norm.args[0], *call.args[1:5], norm.args[1], norm.args[2], *call.args[7:])
        g.put(at, call.name, args, (g.maker[call.args[0]],))
    return g.done()


def fuse_attention(vk: VkGraph, limits: Limits) -> VkGraph:
    """Rotary embedding, cache write and attention; tables that are sliced at the position are read there."""
    g = Rewrite(vk)
    for at, call in enumerate(list(g.chain)):
        if call is None or call.name != "sdpa_with_kv_cache.default":
            continue
        q, k, v, kc, vc, pos = call.args[:6]
        index = g.maker.get(q, -1)
        rope = g.chain[index] if index >= 0 else None
        halves = rope is not None and rope.name == "et_vk.apply_rotary_emb_hf.default"
        if rope is None or g.maker.get(k) != index or not (halves or rope.name == "et_vk.apply_rotary_emb.default"):
            continue
        outs = g.values[rope.args[-1]]
        if not isinstance(outs, ValueList) or outs.items != (q, k) or not (g.only(q) and g.only(k)):
            continue
        if halves and rope.args[4] != pos:
            continue
        caches = [g.values[c] for c in (kc, vc)]
        if not all(isinstance(c, VkTensor) and c.constant_id >= 0 for c in caches) or not (g.only(kc) and g.only(vc)):
            continue  # the fused op keeps the cache in a form of its own
        cos, sin = rope.args[2:4]
        tables = [_table(g, t, pos) for t in (cos, sin)]
        absolute = halves or all(t is not None for t in tables)
        if absolute and not halves:
            cos, sin = (t for t in tables if t is not None)
        args = (*rope.args[:2], v, kc, vc, pos, cos, sin, g.add(absolute), g.add(halves), *call.args[7:])
        g.put(at, "wr.attention", args, (index,))
    return drop_unused(g.done())


def fuse_projection(vk: VkGraph, limits: Limits) -> VkGraph:
    """The linears of queries, keys and values into the attention that reads nothing else of them."""
    g = Rewrite(vk)
    for at, call in enumerate(list(g.chain)):
        if call is None or call.name != "wr.attention" or not g.values[call.args[8]]:
            continue
        views = [g.made_by(v, "aten.view_copy.default") for v in call.args[:3]]
        if any(v is None or not (g.only(v.args[-1]) and g.only(v.args[0])) for v in views):
            continue
        sources = tuple(v.args[0] for v in views if v is not None)
        linear = g.made_by(sources[0], f"{FUSED}.3")
        made = g.values[linear.args[-1]] if linear else None
        if linear is None or not isinstance(made, ValueList) or made.items != sources:
            continue
        x, cache, table = (g.values[v] for v in (linear.args[0], call.args[3], call.args[6]))
        weights = g.values[linear.args[1]]
        group = g.values[linear.args[3]]
        if not (isinstance(x, VkTensor) and isinstance(cache, VkTensor) and isinstance(table, VkTensor)):
            continue
        if not isinstance(weights, ValueList) or not isinstance(group, int):
            continue
        widths = tuple(w.dims[0] for i in weights.items if isinstance(w := g.values[i], VkTensor))
        if not attention_q4gsw.fits(x.dims, widths, cache.dims, table.dims, group, limits):
            continue
        gone = (g.maker[sources[0]], *(g.maker[v] for v in call.args[:3]))
        args = (*linear.args[:7], linear.args[9], *call.args[3:8], *call.args[9:])
        g.put(at, "wr.attention_q4gsw", args, gone)
    return g.done()


def _table(g: Rewrite, v: int, pos: int) -> int | None:
    """The full table when v is its rows from pos on: a slice starting there, in any number of copies."""
    while (copy := g.made_by(v, "aten.clone.default") or g.made_by(v, "aten.view_copy.default")) is not None:
        a, b = g.values[copy.args[0]], g.values[v]
        if not isinstance(a, VkTensor) or not isinstance(b, VkTensor) or a.dims != b.dims:
            return None
        v = copy.args[0]
    rows = g.made_by(v, "aten.slice_copy.Tensor")
    if rows is None or g.values[rows.args[1]] != 0 or g.values[rows.args[4]] != 1 or rows.args[2] != pos:
        return None
    return rows.args[0] if isinstance(g.values[pos], SymInt) else None


def add_pick(vk: VkGraph) -> VkGraph:
    """With the next id as one more value, how to choose it as one more input, where ids go in and logits come out."""
    ids, logits = (vk.values[v[0]] if v else None for v in (vk.input_ids, vk.output_ids))
    if not (
        isinstance(ids, VkTensor)
        and isinstance(logits, VkTensor)
        and (ids.dtype, len(ids.dims), ids.dims[:1]) == ("int32", 2, (1,))
        and logits.dtype.startswith("float")
        and len(logits.dims) in (2, 3)
        and logits.dims[0] == 1
    ):
        return vk
    how = len(vk.values)
    call = OperatorCall(len(vk.chain), PICK, (vk.output_ids[0], how, how + 1))
    values = (*vk.values, VkTensor("int32", (WORDS,)), VkTensor("int32", (1,)))
    return replace(vk, values=values, chain=(*vk.chain, call), input_ids=(*vk.input_ids, how))


PASSES: tuple[Pass, ...] = (
    merge_symints,
    drop_views,
    round_rows,
    fuse_swiglu,
    fuse_siblings,
    fold_rounding,
    fuse_residual,
    fuse_norm,
    fuse_attention,
    fuse_projection,
)


def fuse(vk: VkGraph, limits: Limits) -> VkGraph:
    """All passes; a graph with a call that lacks arguments is left as it is, to be refused with its own words."""
    ops = load_all()
    if any(c.name in ops and len(c.args) != len(ops[c.name].params) + 1 for c in vk.chain):
        return vk
    for step in PASSES:
        vk = step(vk, limits)
    return vk
