"""Each fusion pass on small graphs: it fires on the graph it is for, and not if one of its guards is violated."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

from webgpu_run.formats.vkgraph import ValueList
from webgpu_run.graph import calls, fuse
from webgpu_run.graph.passes import rounding, tidy
from webgpu_run.graph.passes.all_rows import LAST_ROW
from webgpu_run.graph.passes.pick import PICK, add_pick
from webgpu_run.graph.pattern import Call, Is, computed_by, matches
from webgpu_run.graph.rewrite import Rewrite
from webgpu_run.ops.limits import GPU, PLAIN, Profile

from helpers.fusing import (
    ADD,
    LIMITS,
    LINEAR,
    MUL,
    NORM,
    ONE,
    SIGMOID,
    THREE,
    TWO,
    VIEW,
    Small,
    attention,
    check,
    dynamic,
    fused_names,
    names,
)
from helpers.graphs import Builder, Ref, q4, transformer

# -- the matcher -------------------------------------------------------------------------------------------------------


def silu_graph(*, other: bool = False) -> Builder:
    """sigmoid(x) * x, or sigmoid(x) * y."""
    b = Builder()
    x, y = b.input((4, 4)), b.input((4, 4))
    b.output(b.call(MUL, b.call(SIGMOID, x), y if other else x))
    return b


def match_count(b: Builder, pattern: Call) -> int:
    return len(list(matches(Rewrite(b.vk()), pattern)))


def test_a_repeated_name_is_one_value() -> None:
    pattern = Call(MUL, a=Call(SIGMOID, x="x"), b="x")
    assert match_count(silu_graph(), pattern) == 1
    assert match_count(silu_graph(other=True), pattern) == 0


def test_operands_match_in_the_order_of_the_pattern_unless_it_commutes() -> None:
    sigmoid = Call(SIGMOID, x="x")
    assert match_count(silu_graph(), Call(MUL, a="x", b=sigmoid)) == 0
    assert match_count(silu_graph(), Call(MUL, a="x", b=sigmoid, commutes=True)) == 1


def test_a_repeated_call_is_one_call() -> None:
    sigmoid = Call(SIGMOID, x="x")
    pattern = Call(MUL, a=sigmoid, b=sigmoid)
    for shared in (True, False):
        b = Builder()
        x = b.input((4, 4))
        first = b.call(SIGMOID, x)
        b.output(b.call(MUL, first, first if shared else b.call(SIGMOID, x)))
        assert (computed_by(Rewrite(b.vk()), Ref(b.outputs[0]), pattern) is not None) == shared


def test_an_output_is_matched_by_its_name() -> None:
    rope = Call("et_vk.apply_rotary_emb.default")
    for name, count in (("oq", 1), ("ok", 0)):
        b = attention()
        outs = b.chain[-2].args[-1]
        assert b.chain[-2].name == "et_vk.apply_rotary_emb.default"
        b.output(b.call(SIGMOID, Ref(b.values[outs].items[0])))
        b.outputs = b.outputs[-1:]
        b.chain = [c for c in b.chain if not c.name.startswith("sdpa")]
        assert match_count(b, Call(SIGMOID, x=rope[name])) == count


def test_is_compares_numbers_across_types() -> None:
    b = Builder()
    b.output(b.call(ADD, b.input((4,)), b.input((4,)), 1.0))
    assert match_count(b, Call(ADD, alpha=Is(1))) == 1
    assert match_count(b, Call(ADD, alpha=Is(2, None))) == 0


@pytest.mark.parametrize("reader", ["call", "list", "output", "output list"])
def test_a_value_with_another_reader_is_not_matched_away(reader: str) -> None:
    b = silu_graph()
    sigmoid = Ref(b.chain[0].args[-1])
    if reader == "call":
        b.call(SIGMOID, sigmoid)
    elif reader == "list":
        b.call("aten.cat.default", [sigmoid, sigmoid], 0)
    else:
        b.output(b.value(ValueList((sigmoid.id,))) if reader == "output list" else sigmoid)
    pattern = Call(MUL, a=Call(SIGMOID, x="x"), b="x")
    assert match_count(b, pattern) == 0
    g = Rewrite(b.vk())
    found = computed_by(g, Ref(b.outputs[0]), pattern)  # other readers do not matter here
    assert found is not None
    assert found["x"].id == b.inputs[0]


def test_a_replacement_needs_exactly_the_inputs_of_its_op() -> None:
    pattern = Call(MUL, a="a", b="b")
    (match,) = matches(Rewrite(silu_graph().vk()), pattern)
    with pytest.raises(TypeError, match=r"aten\.add\.Tensor takes a, b, alpha; given: a, b"):
        match.replace(ADD, a=match["a"], b=match["b"])
    match.replace(ADD, b=match["b"], alpha=1, a=match["a"])


# -- tidying -----------------------------------------------------------------------------------------------------------


def test_unused_copies_are_dropped_with_what_only_they_read() -> None:
    b = Builder()
    x = b.input((8, 4))
    size = b.call("sym_size.int", x, 0)
    end = b.call("add", size, 1)
    copy = b.call("aten.clone.default", b.call("aten.slice_copy.Tensor", x, 0, 0, end, 1, out=(8, 4)), None)
    b.call(VIEW, copy, (4, 8))
    b.output(b.call(SIGMOID, x))
    b.call(SIGMOID, x)  # unread, but not known to be pure
    assert names(fuse.fuse(b.vk(), LIMITS, [tidy.drop_unused])) == {SIGMOID: 2}
    b.output(copy)
    left = {SIGMOID: 2, "aten.clone.default": 1, "aten.slice_copy.Tensor": 1, "sym_size.int": 1, "add": 1}
    assert names(fuse.fuse(b.vk(), LIMITS, [tidy.drop_unused])) == left


# -- rounding ----------------------------------------------------------------------------------------------------------


def test_rows_are_rounded_once_for_all_linears_that_read_them() -> None:
    b = Builder()
    x = b.input((1, 4, 64))
    b.output(dynamic(b, x)[0], dynamic(b, x)[0], dynamic(b, b.input((1, 4, 64)))[0])
    vk = fuse.fuse(b.vk(), LIMITS, [rounding.round_rows])
    check(vk)
    assert names(vk) == {LINEAR: 3, calls.ROUND: 2}


def test_linears_that_are_not_fused_together_round_for_themselves() -> None:
    """Four siblings are too many for one call; nothing is left of the shared rounding."""
    b = Builder()
    x = b.input((1, 4, 64))
    b.output(*(dynamic(b, x)[0] for _ in range(4)))
    vk = fuse.fuse(b.vk(), LIMITS)
    assert names(vk) == {ONE: 4}
    assert all(vk.values[calls.input_of(c, "rounded").id] is True for c in vk.chain)


@pytest.mark.parametrize(
    ("what", "form"),
    [
        ("eps", {"eps": 1e-3}),
        ("mode", {"mode": "SYMMETRIC"}),
        ("groups", {"block": (1, 1, 32)}),
        ("low", {"low": -127}),
        ("high", {"high": 126}),
        ("no strips", {"k": 24, "group": 8}),
        ("scale returned", {}),
        ("zero returned", {}),
        ("other rows", {}),
        ("shared", {}),
    ],
)
def test_rounding_that_is_left_as_it_is(what: str, form: dict[str, Any]) -> None:
    b = Builder()
    x = b.input((1, 4, form.get("k", 64)))
    out, scale, zero = dynamic(b, x, **form)
    if what == "other rows":  # the scale was chosen for x, the linear reads y
        b.chain, y = b.chain[:-1], b.input((1, 4, 64))
        out = dynamic(b, y, shared=(scale, zero))[0]
    b.output(out)
    b.output(*{"scale returned": (scale,), "zero returned": (zero,)}.get(what, ()))
    if what == "shared":
        b.output(dynamic(b, x, shared=(scale, zero))[0])
    left = names(fuse.fuse(b.vk(), LIMITS))
    assert left == {rounding.CHOOSE: 1, rounding.DYNAMIC: 2 if what == "shared" else 1}


# -- linears -----------------------------------------------------------------------------------------------------------


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
    """A row that no uniform window can start on or hold, even rounded, or a texture too tall: not packed in strips."""
    b = Small(96)
    b.output(b.linear(b.x, 32))
    assert fused_names(b) == {ONE: 1}
    assert fused_names(b, dataclasses.replace(LIMITS, uniform_align=256)) == {LINEAR: 1}
    assert fused_names(b, dataclasses.replace(LIMITS, max_uniform=256)) == {ONE: 1}  # bound as a whole
    assert fused_names(b, dataclasses.replace(LIMITS, max_uniform=128)) == {LINEAR: 1}
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


def test_a_norm_with_a_factor_per_row_stays() -> None:
    b = Small()
    dims = b.values[b.x.id].dims
    b.output(b.linear(b.call(NORM, b.x, b.input((*dims[:-1], 1)), 1e-5), 64))
    assert fused_names(b)[NORM] == 1


@pytest.mark.parametrize("what", ["fits", "from the end", "first", "columns", "read", "unaligned"])
def test_last_row(what: str) -> None:
    """linear(norm(x[:, -1])), where the row begins at an offset that can be bound."""
    b = Small(96 if what == "unaligned" else 64)
    dim, index = {"from the end": (-2, -1), "first": (1, 0), "columns": (2, -1)}.get(what, (1, -1))
    row = b.call(LAST_ROW, b.x, dim, index, out=(1, 5) if dim == 2 else (1, b.values[b.x.id].dims[-1]))
    if what == "columns":
        b.output(b.call(SIGMOID, row))
        row = b.input((1, 64))
    w, scales = q4(b.rng, 48, b.values[row.id].dims[-1], 32)
    b.output(b.call(LINEAR, b.norm(row), b.constant(w), b.constant(scales), 32, None, out=(1, 48)))
    if what == "read":
        b.output(b.call(SIGMOID, row))
    left = fused_names(b, dataclasses.replace(LIMITS, storage_align=256))
    fits = what in ("fits", "from the end")
    assert (left["wr.linear_last_row_q4gsw"], left[LAST_ROW]) == ((1, 0) if fits else (0, 1))


def test_a_norm_that_is_also_the_residual_stays() -> None:
    b = Small()
    h = b.norm(b.x)
    b.output(b.call(ADD, h, b.linear(h, 64), 1))
    assert fused_names(b) == {NORM: 1, ONE: 1}


def test_a_linear_takes_one_norm_and_one_residual() -> None:
    b = Small()
    y = b.linear(b.norm(b.norm(b.x)), 64)
    b.output(b.call(ADD, b.call(ADD, y, b.x, 1), b.input((1, 5, 64)), 1))
    twice = fuse.fuse(fuse.fuse(b.vk(), LIMITS), LIMITS)
    assert names(twice) == {ONE: 1, NORM: 1, ADD: 1}


def test_a_swiglu_takes_no_residual() -> None:
    b = Small()
    b.output(b.call(ADD, b.swiglu(b.linear(b.x, 64), b.linear(b.x, 64)), b.x, 1))
    assert fused_names(b) == {ONE: 1, ADD: 1}


# -- attention ---------------------------------------------------------------------------------------------------------

SDPA, HALVES = "sdpa_with_kv_cache.default", "et_vk.apply_rotary_emb_hf.default"


@pytest.mark.parametrize("form", [{}, {"copies": 2}, {"rope": HALVES}], ids=str)
def test_attention(form: dict[str, Any]) -> None:
    left = fused_names(attention(**form))
    assert left.pop("et_vk.select_as_symint.default") == 2
    assert left.pop("sym_size.int", 0) + left.pop("add", 0) == 0
    assert left == {"wr.attention": 1}


@pytest.mark.parametrize(
    "form",
    [
        {"other_k": True},  # keys that were not rotated with the queries
        {"keep": "rq"},
        {"keep": "rk"},
        {"share": True},  # a cache with another user
        {"computed_cache": True},
        {"rope": HALVES, "start": "zero"},  # rotated for another position
        {"reshaped": True},  # tables of three dims, which may have a row per sequence
    ],
    ids=str,
)
def test_not_this_attention(form: dict[str, Any]) -> None:
    left = fused_names(attention(**form))
    assert (left["wr.attention"], left[SDPA]) == (0, 2 if "share" in form else 1)


@pytest.mark.parametrize("form", [{"start": "zero"}, {"start": "number"}, {"step": 2}, {"axis": 1}], ids=str)
def test_tables_that_do_not_start_at_the_position(form: dict[str, Any]) -> None:
    vk = fuse.fuse(attention(**form).vk(), LIMITS)
    (call,) = (c for c in vk.chain if c.name == "wr.attention")
    assert vk.values[calls.input_of(call, "absolute").id] is False
    assert names(vk)["aten.slice_copy.Tensor"] == 2


SUBGROUPS = dataclasses.replace(LIMITS, subgroups=True)


@pytest.mark.parametrize("profile", [SUBGROUPS.profile, GPU, PLAIN], ids=lambda p: p.name)
@pytest.mark.parametrize("form", [{}, {"rope": HALVES}], ids=str)
def test_projection(form: dict[str, Any], profile: Profile) -> None:
    left = fused_names(attention(projected=True, dim=32, **form), dataclasses.replace(SUBGROUPS, profile=profile))
    assert (left["wr.attention_q4gsw"], left["wr.attention"], left[THREE], left[VIEW]) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("form", "profile"),
    [
        ({"keep": "linear"}, SUBGROUPS.profile),
        ({"keep": "view"}, SUBGROUPS.profile),
        ({"start": "zero"}, SUBGROUPS.profile),  # tables that are not read at the position
        ({"dim": 12}, SUBGROUPS.profile),  # heads that are no whole strips
        ({"dim": 4}, GPU),  # tables of half a vec4
    ],
    ids=["linear returned", "view returned", "other tables", "heads", "narrow tables"],
)
def test_not_this_projection(form: dict[str, Any], profile: Profile) -> None:
    limits = dataclasses.replace(SUBGROUPS, profile=profile)
    left = fused_names(attention(projected=True, **{"dim": 32, **form}), limits)
    assert (left["wr.attention_q4gsw"], left["wr.attention"], left[THREE], left[VIEW]) == (0, 1, 1, 3)


# -- the rest ----------------------------------------------------------------------------------------------------------


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


def test_a_pick_is_added_where_ids_become_logits() -> None:
    vk = transformer(layers=1).vk()
    more = add_pick(vk)
    pick = more.chain[-1]
    assert pick.name == PICK
    assert calls.input_of(pick, "x").id == vk.output_ids[0]
    assert calls.input_of(pick, "how").id == more.input_ids[-1]
    assert (more.input_ids[:-1], more.output_ids) == (vk.input_ids, vk.output_ids)


@pytest.mark.parametrize(
    ("ids", "logits"),
    [
        (("float32", (1, 8)), ("float32", (1, 32))),
        (("int32", (2, 8)), ("float32", (1, 32))),
        (("int32", (8,)), ("float32", (1, 32))),
        (("int32", (1, 8)), ("int32", (1, 32))),
        (("int32", (1, 8)), ("float32", (2, 32))),
        (("int32", (1, 8)), ("float32", (32,))),
    ],
    ids=str,
)
def test_no_pick_in_other_graphs(ids: tuple[str, tuple[int, ...]], logits: tuple[str, tuple[int, ...]]) -> None:
    b = Builder()
    b.input(ids[1], ids[0])
    b.output(b.input(logits[1], logits[0]))
    assert add_pick(b.vk()) == b.vk()
