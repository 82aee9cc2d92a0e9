"""The passes of fuse.py on graphs: each alone, all together, and what they must leave alone."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webgpu_run.formats import pte
from webgpu_run.formats.vkgraph import OperatorCall, SymInt, ValueList, VkGraph, VkTensor
from webgpu_run.graph import calls, fuse
from webgpu_run.graph.lower import planned
from webgpu_run.graph.passes import attention as attention_pass
from webgpu_run.graph.passes import linears, rounding, tidy
from webgpu_run.graph.passes.pick import PICK, add_pick
from webgpu_run.graph.rewrite import Rewrite
from webgpu_run.ops.choice import GREEDY
from webgpu_run.ops.limits import GPU, PLAIN, SOFTWARE, Limits, Profile

from helpers.graphs import Builder, Ref, q4, transformer

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = tuple(sorted(p.stem for p in FIXTURES.glob("tiny_*.pte")))
LIMITS = Limits(uniform_align=32, profile=SOFTWARE)
VIEW, LINEAR, NORM = "aten.view_copy.default", "et_vk.linear_q4gsw.default", "et_vk.rms_norm.default"
ADD, MUL, SIGMOID = "aten.add.Tensor", "aten.mul.Tensor", "aten.sigmoid.default"
ONE, TWO, THREE = (f"wr.linear_q4gsw.{n}" for n in (1, 2, 3))


def graphs_of(name: str) -> list[VkGraph]:
    method = pte.load(FIXTURES / f"{name}.pte", None).method(None)
    return [d.graph for d in method.delegates if d.graph is not None]


def names(vk: VkGraph) -> Counter[str]:
    return Counter(call.name for call in vk.chain)


def changes(before: VkGraph, *passes: fuse.Pass) -> dict[str, int]:
    """How many calls of each name the last of the passes adds (or, negative, takes away)."""
    before = fuse.fuse(before, LIMITS, passes[:-1])
    count = names(fuse.fuse(before, LIMITS, passes[-1:]))
    count.subtract(names(before))
    return {name: n for name, n in count.items() if n}


def check(vk: VkGraph) -> None:
    """Whatever is read has been given or made before, nothing is made twice, and what is returned is made."""

    def parts(v: int) -> list[int]:
        value = vk.values[v]
        return list(value.items) if isinstance(value, ValueList) else [v]

    made = set(vk.input_ids)
    for call in vk.chain:
        for v in (p for arg in call.args[:-1] for p in parts(arg)):
            value = vk.values[v]
            free = not isinstance(value, VkTensor | SymInt) or getattr(value, "constant_id", -1) >= 0
            assert free or v in made, f"{call.name} reads {v} before it is made"
        outs = parts(call.args[-1])
        assert not made & set(outs), f"{call.name} makes {outs} again"
        made |= set(outs)
    assert set(vk.output_ids) <= made, "something that is returned is not made"


# -- on files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_pass_leaves_a_whole_graph(name: str) -> None:
    for vk in graphs_of(name):
        outs = [vk.values[v] for v in vk.output_ids]
        for step in fuse.PASSES:
            check(fuse.fuse(vk, LIMITS, [step]))  # alone
        whole = vk
        for step in fuse.PASSES:
            whole = fuse.fuse(whole, LIMITS, [step])
            check(whole)
            assert [whole.values[v] for v in whole.output_ids] == outs
        assert names(fuse.fuse(whole, LIMITS)) == names(whole)  # nothing is left to do
        assert names(fuse.fuse(vk, LIMITS)) == names(whole)


def test_merge_symints() -> None:
    assert changes(graphs_of("tiny_dyn")[0], tidy.merge_symints) == {"et_vk.select_as_symint.default": -1}


def test_drop_views() -> None:
    (vk,) = graphs_of("tiny_dyn")
    kept = [c for c in fuse.fuse(vk, LIMITS, [tidy.drop_views]).chain if c.name == VIEW]
    assert changes(vk, tidy.drop_views) == {VIEW: -8}
    assert all(vk.values[c.args[0]].dims != vk.values[c.args[-1]].dims for c in kept)  # type: ignore[union-attr]


def test_round_rows() -> None:
    """Two layers of seven 8-bit linears and the last: rows are rounded once for q, k and v, once for gate and up."""
    assert changes(graphs_of("tiny_8da4w")[0], rounding.round_rows) == {
        rounding.DYNAMIC: -15, LINEAR: 15, rounding.CHOOSE: -15, calls.ROUND: 9,
    }  # fmt: skip


def test_fold_rounding() -> None:
    """Nothing is left of it, and every linear rounds its own rows: as many calls as the same model has without."""
    (vk,) = graphs_of("tiny_8da4w")
    whole = fuse.fuse(vk, LIMITS)
    assert names(whole) == names(fuse.fuse(graphs_of("tiny_dyn")[0], LIMITS))
    fused = [c for c in whole.chain if c.name in linears.FUSED]
    assert fused
    assert all(whole.values[calls.input_of(c, "rounded").id] is True for c in fused)


def dynamic(b: Builder, x: Ref, k: int, group: int, eps: float | None = None) -> Ref:
    """A linear of k to 32 with 8-bit rows, as the exporter spells it."""
    form = ("ASYMMETRIC", (1, 1, k), None, -128, 127, eps, None, None, False)
    scale, zero = b.call(rounding.CHOOSE, x, *form, dtype=["float32", "int8"])
    dims = (((32, k // 2), np.uint8), ((k // group, 32), np.int32), ((k // group, 32), np.float32))
    weight = [b.constant(np.zeros(d, t)) for d, t in dims]
    made: Ref = b.call(rounding.DYNAMIC, x, scale, zero, *weight, group, None, out=(1, 4, 32))
    return made


def test_rounding_for_more_than_one_call() -> None:
    """Four linears of one row are no single call: each rounds for itself, and the rounded row is not made."""
    b = Builder()
    x = b.input((1, 4, 64))
    b.output(*(dynamic(b, x, 64, 32) for _ in range(4)))
    assert names(fuse.fuse(b.vk(), LIMITS)) == {ONE: 4}


@pytest.mark.parametrize(("k", "group", "eps"), [(64, 32, 1e-3), (24, 8, None)])
def test_rounding_that_is_left_as_it_is(k: int, group: int, eps: float | None) -> None:
    """Another least scale, or a weight that has no strips."""
    b = Builder()
    b.output(dynamic(b, b.input((1, 4, k)), k, group, eps))
    assert names(fuse.fuse(b.vk(), LIMITS)) == {rounding.CHOOSE: 1, rounding.DYNAMIC: 1}


def test_fuse_swiglu() -> None:
    (vk,) = graphs_of("tiny_dyn")
    assert changes(vk, tidy.drop_views, linears.fuse_swiglu) == {LINEAR: -4, SIGMOID: -2, MUL: -4, ONE: 2}


def test_fuse_siblings() -> None:
    """Fifteen linears: q, k and v twice, gate and up twice, and five alone."""
    (vk,) = graphs_of("tiny_dyn")
    assert changes(vk, tidy.drop_views, linears.fuse_siblings) == {LINEAR: -15, THREE: 2, TWO: 2, ONE: 5}


def test_fuse_residual() -> None:
    (vk,) = graphs_of("tiny_dyn")
    assert changes(vk, tidy.drop_views, linears.fuse_siblings, linears.fuse_residual) == {ADD: -4}


def test_fuse_norm() -> None:
    (vk,) = graphs_of("tiny_dyn")
    assert changes(vk, tidy.drop_views, linears.fuse_siblings, linears.fuse_norm) == {NORM: -5}


@pytest.mark.parametrize(("name", "rope"), [("tiny_dyn", "apply_rotary_emb"), ("tiny_qwen25", "apply_rotary_emb_hf")])
def test_fuse_attention(name: str, rope: str) -> None:
    """Tables are read at the position, so nothing reads their slices (and the end of their range) any more."""
    (vk,) = graphs_of(name)
    passes = (tidy.merge_symints, tidy.drop_views, attention_pass.fuse_attention)
    assert changes(vk, *passes) == {"sdpa_with_kv_cache.default": -2, f"et_vk.{rope}.default": -2, "wr.attention": 2}
    unused = {"aten.slice_copy.Tensor": -2, "add": -1} if name == "tiny_dyn" else {}
    assert changes(vk, *passes, tidy.drop_unused) == unused


def test_tables_at_other_rows_are_left_as_they_are() -> None:
    """A static model gathers its table rows: attention is fused, the rows are read as the graph made them."""
    (vk,) = graphs_of("tiny_static")
    whole = fuse.fuse(vk, LIMITS)
    fused = [c for c in whole.chain if c.name == "wr.attention"]
    assert len(fused) == 2
    assert names(whole)["aten.index.Tensor"] == 2
    assert not any(whole.values[calls.input_of(c, "absolute").id] for c in fused)


def test_small_graph_of_a_layer() -> None:
    (vk,) = graphs_of("tiny_dyn")
    left = names(fuse.fuse(vk, LIMITS))
    assert not set(left) & {LINEAR, NORM, ADD, MUL, SIGMOID, "sdpa_with_kv_cache.default"}


@pytest.mark.parametrize("profile", [SOFTWARE, PLAIN, GPU], ids=lambda p: p.name)
def test_dispatches_of_a_layer(profile: Profile) -> None:
    """At most nine for one token, whatever the adapter; views and SymInts cost none."""
    limits = dataclasses.replace(LIMITS, profile=profile)
    counts = []
    for layers in (1, 3):
        b = transformer(layers=layers)
        delegate: Any = type("D", (), {"graph": b.vk(), "constant": staticmethod(b.bytes_of), "id": ""})
        engine = planned(delegate, limits)
        engine.resize([np.zeros((1, 1), np.int32), np.array([3], np.int32), GREEDY])
        counts.append(sum(len(plan.steps) for plan in engine.plans))
    assert 5 <= (counts[1] - counts[0]) / 2 <= 9
    assert counts[0] <= 9 + 5  # embedding, last row, norm and head, greedy choice


# -- what must not be folded away ------------------------------------------------------------------------------------


def made_tensors(vk: VkGraph) -> list[int]:
    g = Rewrite(vk)
    outs = (ref.id for call in vk.chain for ref in g.outputs(call))
    return [v for v in outs if isinstance(vk.values[v], VkTensor)]


@pytest.mark.parametrize("name", ["tiny_dyn", "tiny_8da4w", "tiny_qwen25"])
def test_any_value_may_be_returned(name: str) -> None:
    """One value after the other as a second output: it is still made, under its own dims."""
    (vk,) = graphs_of(name)
    for v in made_tensors(vk):
        if v in vk.output_ids:
            continue
        asked = dataclasses.replace(vk, output_ids=(*vk.output_ids, v))
        for passes in (*((step,) for step in fuse.PASSES), fuse.PASSES):
            fused = fuse.fuse(asked, LIMITS, passes)
            check(fused)
            assert fused.values[fused.output_ids[-1]].dims == vk.values[v].dims  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["tiny_dyn", "tiny_8da4w", "tiny_qwen25"])
def test_any_value_may_be_read_again(name: str) -> None:
    """One value after the other with one more reader at the end of the chain."""
    (vk,) = graphs_of(name)
    for v in made_tensors(vk):
        at = len(vk.values)
        call = OperatorCall(len(vk.chain), SIGMOID, (v, at))
        more = dataclasses.replace(
            vk, values=(*vk.values, vk.values[v]), chain=(*vk.chain, call), output_ids=(*vk.output_ids, at)
        )
        for passes in (*((step,) for step in fuse.PASSES), fuse.PASSES):
            check(fuse.fuse(more, LIMITS, passes))


# -- shapes and forms that do not fit --------------------------------------------------------------------------------


class Small(Builder):
    """Rows of x, and linears on them."""

    def __init__(self, k: int = 64) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)
        self.x = self.input((1, 5, k))

    def linear(self, x: Ref, n: int, group: int = 32, bias: bool = False) -> Any:
        k = self.values[x.id].dims[-1]
        w, scales = q4(self.rng, n, k, group)
        b = self.constant(self.rng.standard_normal(n).astype(np.float32)) if bias else None
        return self.call(LINEAR, x, self.constant(w), self.constant(scales), group, b, out=(1, 5, n))

    def norm(self, x: Ref) -> Any:
        return self.call(NORM, x, self.constant(np.ones(self.values[x.id].dims[-1], np.float32)), 1e-5)

    def swiglu(self, gate: Ref, up: Ref, turned: int = 0) -> Any:
        """silu(gate) * up with the operands of either multiplication in either order."""
        sigmoid = self.call(SIGMOID, gate)
        silu = self.call(MUL, *((gate, sigmoid), (sigmoid, gate))[turned & 1])
        return self.call(MUL, *((silu, up), (up, silu))[turned >> 1])


def fused_names(b: Builder, limits: Limits = LIMITS) -> Counter[str]:
    vk = fuse.fuse(b.vk(), limits)
    check(vk)
    return names(vk)


@pytest.mark.parametrize("turned", range(4))
def test_swiglu_in_any_order(turned: int) -> None:
    b = Small()
    b.output(b.swiglu(b.linear(b.x, 32), b.linear(b.x, 32), turned))
    assert fused_names(b) == {ONE: 1}


@pytest.mark.parametrize("what", ["bias", "group", "other x", "gate read", "gate returned", "up returned", "no silu"])
def test_not_a_swiglu(what: str) -> None:
    b = Small()
    gate = b.linear(b.x, 32, bias=what == "bias")
    x = b.norm(b.x) if what == "other x" else b.x
    up = b.linear(x, 32, 64 if what == "group" else 32, bias=what == "bias")
    b.output(b.swiglu(gate, up) if what != "no silu" else b.call(MUL, b.call(SIGMOID, gate), up))
    if what == "gate read":
        b.output(b.call(SIGMOID, gate))
    if what.endswith("returned"):
        b.output(gate if what.startswith("gate") else up)
    assert fused_names(b)[MUL] == (1 if what == "no silu" else 2)


def test_not_the_sigmoid_of_the_gate() -> None:
    """gate * sigmoid(other) * up, where the gate has two readers as in a SwiGLU."""
    b = Small()
    gate, up = b.linear(b.x, 32), b.linear(b.x, 32)
    other = b.call(SIGMOID, b.input((1, 5, 32)))
    b.output(b.call(MUL, b.call(MUL, gate, other), up), b.call("aten.relu.default", gate))
    assert fused_names(b)[MUL] == 2


def siblings(k: int, *linears: dict[str, Any]) -> Counter[str]:
    b = Small(k)
    b.output(*(b.linear(b.x, **kw) for kw in linears))
    return fused_names(b)


def test_siblings() -> None:
    plain, other = {"n": 32}, {"n": 20}
    assert siblings(64, plain, other) == {TWO: 1}
    assert siblings(64, plain, other, plain) == {THREE: 1}
    assert siblings(64, plain, other, plain, other) == {ONE: 4}  # more than the kernel has outputs
    assert siblings(64, plain, {**plain, "group": 64}) == {ONE: 2}
    assert siblings(64, plain, {**plain, "bias": True}) == {ONE: 2}
    assert siblings(64, {**plain, "bias": True}, {**other, "bias": True}) == {TWO: 1}
    assert siblings(40, {"n": 32, "group": 8}) == {LINEAR: 1}  # not whole blocks of 32
    assert siblings(64, {"n": 32, "group": 16}, {"n": 32, "group": 16}) == {LINEAR: 2}


def test_limits_decide() -> None:
    """A row that no uniform window can start on or hold, or a texture too tall: not packed in strips."""
    b = Small(96)
    b.output(b.linear(b.x, 32))
    assert fused_names(b) == {ONE: 1}
    assert fused_names(b, dataclasses.replace(LIMITS, uniform_align=256)) == {LINEAR: 1}
    assert fused_names(b, dataclasses.replace(LIMITS, max_uniform=256)) == {LINEAR: 1}
    assert fused_names(b, dataclasses.replace(LIMITS, max_texture=100)) == {ONE: 1}  # continues on the next row
    assert fused_names(b, dataclasses.replace(LIMITS, max_texture=30)) == {LINEAR: 1}


@pytest.mark.parametrize("what", ["fits", "turned", "scaled", "broadcast", "returned", "twice"])
def test_residual(what: str) -> None:
    b = Small()
    y = b.linear(b.x, 64)
    other = b.input((1, 1, 64)) if what == "broadcast" else b.x
    alpha = 2 if what == "scaled" else 1
    total = b.call(ADD, *((y, other) if what == "turned" else (other, y)), alpha, out=(1, 5, 64))
    b.output(total)
    if what == "returned":
        b.output(y)
    if what == "twice":
        total = b.call(ADD, total, b.x, 1)  # one residual a linear
        b.output(total)
    assert fused_names(b)[ADD] == {"fits": 0, "turned": 0}.get(what, 1)


@pytest.mark.parametrize("what", ["fits", "read", "returned"])
def test_norm(what: str) -> None:
    b = Small()
    h = b.norm(b.x)
    b.output(b.linear(h, 64))
    if what == "read":
        b.output(b.call(SIGMOID, h))
    if what == "returned":
        b.output(h)
    assert fused_names(b)[NORM] == (what != "fits")


def attention(
    *, other_k: bool = False, keep_q: bool = False, share: bool = False, start: str = "pos", step: int = 1
) -> Builder:
    b = Builder()
    q, k, v = (b.input((1, 6, n, 8)) for n in (4, 2, 2))
    at = b.input((2,), "int32")
    pos, zero = (b.call("et_vk.select_as_symint.default", at, 0, i) for i in (0, 1))
    end = b.call("add", pos, b.call("sym_size.int", q, 1))
    tables = [b.constant(np.ones((20, 4), np.float32)) for _ in range(2)]
    first = {"pos": pos, "zero": zero}[start]
    cos, sin = (b.call("aten.slice_copy.Tensor", t, 0, first, end, step, out=(6, 4)) for t in tables)
    caches = [b.constant(np.zeros((1, 20, 2, 8), np.float32)) for _ in range(2)]
    live = b.call("sym_size.int", q, 1)
    for _ in range(1 + share):
        rq, rk = b.call("et_vk.apply_rotary_emb.default", q, k, cos, sin)
        key = k if other_k else rk
        b.output(b.call("sdpa_with_kv_cache.default", rq, key, v, *caches, pos, live, None, 0.0, True, None))
    if keep_q:
        b.output(rq)
    return b


def test_attention() -> None:
    assert fused_names(attention()) == {"wr.attention": 1, "et_vk.select_as_symint.default": 2}


@pytest.mark.parametrize("form", [{"other_k": True}, {"keep_q": True}, {"share": True}], ids=str)
def test_not_this_attention(form: dict[str, bool]) -> None:
    """Keys that were not turned with the queries, turned queries that are returned, a cache with another user."""
    left = fused_names(attention(**form))  # type: ignore[arg-type]
    assert (left["wr.attention"], left["sdpa_with_kv_cache.default"]) == (0, 2 if "share" in form else 1)


@pytest.mark.parametrize("form", [{"start": "zero"}, {"step": 2}], ids=str)
def test_tables_that_do_not_start_at_the_position(form: dict[str, Any]) -> None:
    vk = fuse.fuse(attention(**form).vk(), LIMITS)
    (call,) = (c for c in vk.chain if c.name == "wr.attention")
    assert vk.values[calls.input_of(call, "absolute").id] is False
    assert names(vk)["aten.slice_copy.Tensor"] == 2


def test_symints_of_other_numbers_stay() -> None:
    b = Builder()
    at, x = b.input((2,), "int32"), b.input((4, 4))
    picks = [b.call("et_vk.select_as_symint.default", at, 0, i).id for i in (0, 1, 0)]
    sizes = [b.call("sym_size.int", x, i).id for i in (0, 1, 0)]
    total = b.call("add", *(Ref(v) for v in (picks[2], sizes[2])))
    b.output(b.call("aten.slice_copy.Tensor", x, 0, 0, total, 1, out=(4, 4)))
    vk = fuse.fuse(b.vk(), LIMITS, [tidy.merge_symints])
    check(vk)
    assert [c.args[-1] for c in vk.chain[:4]] == [*picks[:2], *sizes[:2]]
    assert vk.chain[4].args[:2] == (picks[0], sizes[0])


def test_views_that_are_returned_or_change_something_stay() -> None:
    b = Builder()
    x = b.input((4, 6))
    same = b.call(VIEW, x, (4, 6))
    b.output(b.call(SIGMOID, same), b.call(VIEW, x, (6, 4)), b.call(VIEW, x, (4, 6)))
    vk = fuse.fuse(b.vk(), LIMITS, [tidy.drop_views])
    assert names(vk) == {VIEW: 2, SIGMOID: 1}
    assert vk.output_ids == b.vk().output_ids
    assert vk.chain[0].args[0] == x.id


def test_an_id_only_where_there_are_logits() -> None:
    """The choice of a token is added to a graph from ids [1, S] to logits, and to no other."""
    (vk,) = graphs_of("tiny_dyn")
    more = add_pick(vk)
    assert more.chain[-1].name == PICK
    assert more.chain[-1].args[:2] == (vk.output_ids[0], more.input_ids[-1])
    assert (more.input_ids[:-1], more.output_ids) == (vk.input_ids, vk.output_ids)
    for b in (attention(), Small()):
        if not b.outputs:
            b.output(b.call(SIGMOID, b.x))
        assert add_pick(b.vk()) == b.vk()
