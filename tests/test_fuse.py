"""Fusion of real graphs: each pass alone, all together, and what they must leave alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webgpu_run.formats import pte
from webgpu_run.formats.vkgraph import OperatorCall, VkGraph, VkTensor
from webgpu_run.graph import calls, fuse
from webgpu_run.graph.lower import planned
from webgpu_run.graph.passes import attention as attention_pass
from webgpu_run.graph.passes import linears, rounding, tidy
from webgpu_run.graph.rewrite import Rewrite
from webgpu_run.ops.choice import GREEDY
from webgpu_run.ops.limits import GPU, PLAIN, SOFTWARE, Profile

from helpers.fusing import ADD, LIMITS, LINEAR, MUL, NORM, ONE, SIGMOID, THREE, TWO, VIEW, check, names
from helpers.graphs import transformer

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = tuple(sorted(p.stem for p in FIXTURES.glob("tiny_*.pte")))


def graphs_of(name: str) -> list[VkGraph]:
    method = pte.load(FIXTURES / f"{name}.pte", None).method(None)
    return [d.graph for d in method.delegates if d.graph is not None]


def changes(before: VkGraph, *passes: fuse.Pass) -> dict[str, int]:
    """How many calls of each name the last of the passes adds (or, negative, takes away)."""
    before = fuse.fuse(before, LIMITS, passes[:-1])
    count = names(fuse.fuse(before, LIMITS, passes[-1:]))
    count.subtract(names(before))
    return {name: n for name, n in count.items() if n}


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
    """No rounding is left as a call of its own, because every linear rounds its own rows."""
    (vk,) = graphs_of("tiny_8da4w")
    whole = fuse.fuse(vk, LIMITS)
    assert names(whole) == names(fuse.fuse(graphs_of("tiny_dyn")[0], LIMITS))
    fused = [c for c in whole.chain if c.name in linears.FUSED]
    assert fused
    assert all(whole.values[calls.input_of(c, "rounded").id] is True for c in fused)


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
