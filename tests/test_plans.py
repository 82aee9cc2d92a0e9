"""Plans and the walk that makes them, without a GPU."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webgpu_run.errors import ShapeError, UnsupportedError
from webgpu_run.formats import pte
from webgpu_run.graph import budget, fuse
from webgpu_run.graph.graph import Graph, Node
from webgpu_run.graph.planner import Engine
from webgpu_run.ops.limits import GPU, PLAIN, SOFTWARE, Limits, Profile
from webgpu_run.ops.plan import Plan, fold
from webgpu_run.ops.spec import Args, load_all
from webgpu_run.shapes import Array, Dims, prod

from helpers import graphs, opcheck
from helpers.oracle import naive

FIXTURES = Path(__file__).parent / "fixtures"
Q4 = "et_vk.linear_q4gsw.default"


class Watched(Engine):
    """Remembers every node that is planned, with the dims and SymInts it saw."""

    def __init__(self, graph: Graph, limits: Limits | None = None) -> None:
        self.seen: list[tuple[int, dict[str, Dims], dict[str, int]]] = []
        super().__init__(graph, limits or Limits())
        self.built = self.taken()

    def plan(self, node: Node, dims: Mapping[int, Dims], syms: Mapping[int, int], data: Mapping[int, Array]) -> Plan:
        live = {name: dims.get(v, self.live[v]) for name, v in node.tensors.items()}
        values = {name: syms[v] if v in syms else self.syms[v] for name, v in node.syms.items()}
        self.seen.append((node.index, live, values))
        return super().plan(node, dims, syms, data)

    def taken(self) -> list[int]:
        """The nodes planned since the last time, in order."""
        out = [index for index, _, _ in self.seen]
        for index, live, values in self.seen:
            node = self.graph.nodes[index]
            assert live == {name: self.live[v] for name, v in node.tensors.items()}, (
                "planned before its inputs were final"
            )
            assert values == {name: self.syms[v] for name, v in node.syms.items()}, (
                "planned before its SymInts were final"
            )
        assert out == sorted(set(out)), "planned twice, or out of order"
        self.seen.clear()
        return out


def tokens(seq: int, pos: int) -> list[Array]:
    return [np.zeros((1, seq), np.int32), np.array([pos], np.int32)]


def ones(*shapes: Dims) -> list[Array]:
    return [np.ones(s, np.float32) for s in shapes]


def agree(engine: Engine, inputs: Sequence[Array]) -> None:
    """The engine holds what planning every node from nothing gives."""
    plans, live, syms = naive(engine.graph, inputs, engine.limits)
    assert engine.plans == plans
    assert {v: engine.live[v] for v in live} == live
    assert engine.syms == syms


# -- the walk ----------------------------------------------------------------------------------------------------------


def test_any_sequence_length_to_any_other() -> None:
    """Every pair of lengths, both orders, position at 0: the plans of a fresh walk."""
    graph = graphs.transformer(layers=1).graph()
    engine = Watched(graph)
    lengths = (1, 2, 7, 8, 23, 24)
    want = {s: naive(graph, tokens(s, 0), engine.limits)[0] for s in lengths}
    for a, b in itertools.permutations(lengths, 2):
        for s in (a, b):
            engine.resize(tokens(s, 0))
            engine.taken()
            assert engine.plans == want[s]


@pytest.mark.parametrize("fused", [False, True])
def test_position_and_length_apart_and_together(fused: bool) -> None:
    b = graphs.transformer()
    vk = fuse.fuse(b.vk(), Limits()) if fused else b.vk()
    graph = Graph(vk, b.bytes_of)
    engine = Watched(graph)
    for seq, pos in ((24, 0), (24, 5), (1, 5), (1, 6), (9, 6), (7, 20), (7, 20), (24, 16), (1, 39), (1, 0)):
        inputs = tokens(seq, pos)
        engine.resize(inputs)
        engine.taken()
        agree(engine, inputs)


def test_position_alone_plans_only_what_depends_on_it() -> None:
    graph = graphs.transformer().graph()
    engine = Watched(graph)
    engine.resize(tokens(1, 3))
    engine.taken()
    delta = engine.resize(tokens(1, 4))
    names = [graph.nodes[i].op.name for i in engine.taken()]
    assert names == ["et_vk.select_as_symint.default", "add", "aten.slice_copy.Tensor", "aten.slice_copy.Tensor"]
    assert set(delta.dims) == set()
    assert len(delta.syms) == 2
    same = engine.resize(tokens(1, 4))
    assert [graph.nodes[i].op.name for i in engine.taken()] == ["et_vk.select_as_symint.default"]
    assert (same.plans, same.dims, same.syms) == ({}, {}, {})


def test_length_alone_leaves_the_position_be() -> None:
    graph = graphs.transformer().graph()
    engine = Watched(graph)
    engine.resize(tokens(9, 3))
    engine.taken()
    delta = engine.resize(tokens(5, 3))
    engine.taken()
    position = next(n.outs[0] for n in graph.nodes if n.op.reads_data)
    assert position not in delta.syms
    assert all(graph.nodes[i].op.out_kind == "symint" or i in delta.plans for i in range(2, len(graph.nodes) - 3))


def test_keys_without_queries() -> None:
    """Each output follows its own input, whichever of the two changed."""
    graph = graphs.two_inputs().graph()
    engine = Watched(graph)
    q, k = graph.output_ids
    for a, b in ((11, 4), (3, 4), (3, 13), (11, 13), (1, 1), (11, 1)):
        inputs = ones((1, a, 2, 8), (1, b, 2, 8))
        engine.resize(inputs)
        engine.taken()
        assert (engine.live[q], engine.live[k]) == ((1, a, 2, 8), (1, b, 2, 8))
        agree(engine, inputs)
    engine.resize(ones((1, 11, 2, 8), (1, 2, 2, 8)))
    assert [graph.nodes[i].op.short for i in engine.taken()] == ["apply_rotary_emb", "mul"]


def test_residual_waits_for_both_operands() -> None:
    engine = Watched(graphs.residual().graph())
    for rows in (1, 17, 5, 16):
        engine.resize(ones((1, rows, 12)))
        assert engine.taken() == [0, 1, 2, 3]
        agree(engine, ones((1, rows, 12)))


def test_symbolic_integers() -> None:
    """From data, from a live dim, from arithmetic on both; only what a change reaches is planned."""
    graph = graphs.symbolic().graph()
    engine = Watched(graph)
    for rows, first in itertools.product((24, 2, 13, 1), (0, 1, 7)):
        inputs = [*ones((rows, 6)), np.array([99, first], np.int32)]
        engine.resize(inputs)
        engine.taken()
        count = max(0, min(rows, first + rows // 2) - min(first, rows))
        assert [engine.live[v] for v in graph.output_ids] == [(count, 6), (rows * 6,), (6,)]
        assert [*engine.syms.values()] == [first, rows, rows // 2, first + rows // 2, rows * 6, rows - 1]
        agree(engine, inputs)
    engine.resize([*ones((1, 6)), np.array([99, 3], np.int32)])
    names = [graph.nodes[i].op.short for i in engine.taken()]
    assert names == ["select_as_symint", "add", "slice_copy"]


def test_symbolic_integer_of_a_view_of_an_input() -> None:
    """A position that is read through a reshape is the input's, not zero."""
    b = graphs.Builder()
    at = b.input((1, 2), "int32")
    view = b.call("aten.view_copy.default", at, (2,), dtype="int32")
    table = b.constant(np.arange(12, dtype=np.float32).reshape(6, 2))
    first = b.call("et_vk.select_as_symint.default", view, 0, 1)
    b.output(b.call("aten.select_copy.int", table, 0, first))
    engine = Engine(b.graph(), Limits())
    engine.resize([np.array([[1, 4]], np.int32)])
    assert dict(engine.plans[-1].steps[0].params)["in_base"] == 8


def test_symbolic_integer_of_a_computed_tensor_is_refused() -> None:
    b = graphs.Builder()
    x = b.call("aten.add.Tensor", b.input((2,), "int32"), b.constant(np.ones(2, np.int32)), 1, dtype="int32")
    b.output(b.call("aten.select_copy.int", b.input((5, 2)), 0, b.call("et_vk.select_as_symint.default", x, 0, 1)))
    with pytest.raises(UnsupportedError, match="computed on the device"):
        Engine(b.graph(), Limits())


@pytest.mark.parametrize("name", ["tiny_dyn", "tiny_qwen3", "tiny_static"])
@pytest.mark.parametrize("fused", [False, True])
def test_chains_are_in_order(name: str, fused: bool) -> None:
    """Fusion keeps every read after its write."""
    delegate = pte.load(FIXTURES / f"{name}.pte").method(None).delegates[0]
    assert delegate.graph is not None
    graph = Graph(fuse.fuse(delegate.graph, Limits()) if fused else delegate.graph, delegate.constant)
    ready = {v for v in (*graph.input_ids, *graph.tensors) if v in graph.input_ids or graph.tensors[v].constant >= 0}
    for node in graph.nodes:
        shaped = {x.value for a in node.attrs.values() if isinstance(a, tuple) for x in a if hasattr(x, "value")}
        assert {*node.tensors.values(), *node.syms.values(), *shaped} <= ready, node.label
        assert not ready & set(node.outs), f"{node.label} writes what was written"
        ready |= set(node.outs)


def test_memo_does_not_mix_casts() -> None:
    """Two casts of one tensor to different dtypes are planned apart."""
    b = graphs.Builder()
    x = b.input((5, 3))
    name, rest = "dim_order_ops._to_dim_order_copy.default", (None,) * 6
    for dtype in ("int32", "bool"):
        b.output(b.call(name, x, *rest, out=(5, 3), dtype=dtype))
    first, second = Engine(b.graph(), Limits()).plans
    assert dict(first.steps[0].consts)["EXPR"] != dict(second.steps[0].consts)["EXPR"]


# -- static graphs -----------------------------------------------------------------------------------------------------


def test_static_graph_is_inert() -> None:
    graph = graphs.residual().graph()
    engine = Watched(graph)
    built = list(engine.plans)
    assert engine.built == [0, 1, 2, 3]
    for _ in range(5):
        delta = engine.resize(ones((1, 17, 12)))
        assert (delta.plans, delta.dims, delta.syms) == ({}, {}, {})
    assert engine.taken() == []
    assert engine.planned == 0
    assert all(a is b for a, b in zip(engine.plans, built, strict=True))


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 18, 12), r"input 0: dim 1 is 18, the largest it was built for is 17"),
        ((2, 17, 12), r"input 0: dim 0 is 2, the largest it was built for is 1"),
        ((17, 12), r"input 0 has rank 2 \[17, 12\], the graph was built for rank 3 \[1, 17, 12\]"),
    ],
)
def test_live_over_max_names_tensor_dim_and_numbers(shape: Dims, message: str) -> None:
    engine = Engine(graphs.residual().graph(), Limits())
    with pytest.raises(ShapeError, match=message):
        engine.resize(ones(shape))
    assert engine.live[engine.graph.input_ids[0]] == (1, 17, 12)


def test_number_of_inputs() -> None:
    with pytest.raises(ShapeError, match="2 inputs given, the graph takes 1"):
        Engine(graphs.residual().graph(), Limits()).resize(ones((1, 1, 12), (1,)))


def test_output_over_its_own_max_is_refused() -> None:
    """A value of a SymInt can ask for more than an output was allocated for."""
    b = graphs.Builder()
    x, at = b.input((8, 2)), b.input((1,), "int32")
    end = b.call("et_vk.select_as_symint.default", at, 0, 0)
    b.output(b.call("aten.slice_copy.Tensor", x, 0, 0, end, 1, out=(4, 2)))
    engine = Engine(b.graph(), Limits())
    engine.resize([*ones((8, 2)), np.array([4], np.int32)])
    with pytest.raises(ShapeError, match=r"slice_copy.*output: dim 0 is 5, the largest it was built for is 4"):
        engine.resize([*ones((8, 2)), np.array([5], np.int32)])
    assert engine.live[b.outputs[0]] == (4, 2)


def test_zero_rows() -> None:
    """Legal where there is a meaning: nothing is dispatched. Its own error where there is none."""
    engine = Engine(graphs.residual().graph(), Limits())
    engine.resize(ones((1, 0, 12)))
    assert [p.steps for p in engine.plans] == [()] * 4
    assert engine.live[engine.graph.output_ids[0]] == (1, 0, 12)
    engine = Engine(graphs.transformer().graph(), Limits())
    with pytest.raises(ShapeError, match="no row to normalise"):
        engine.resize(tokens(0, 0))


@pytest.mark.parametrize(("seq", "pos"), [(1, 40), (24, 17), (2, 39), (1, -1), (1, 2**31 - 1)])
@pytest.mark.parametrize("fused", [False, True])
def test_position_past_the_cache(fused: bool, seq: int, pos: int) -> None:
    """As written, the tables' slice is refused first; fused, only the bound of the position is left to refuse it."""
    b = graphs.transformer()
    engine = Engine(Graph(fuse.fuse(b.vk(), graphs.ANY), b.bytes_of) if fused else b.graph(), graphs.ANY)
    engine.resize(tokens(24, 16))
    before = (list(engine.plans), dict(engine.live), dict(engine.syms))
    with pytest.raises(ShapeError):
        engine.resize(tokens(seq, pos))
    assert (engine.plans, engine.live, engine.syms) == before
    engine.resize(tokens(1, 39))


def test_fixed_position_past_its_bound_is_refused_at_the_first_call() -> None:
    op = load_all()["et_vk.apply_rotary_emb_hf.default"]
    case = dataclasses.replace(op.cases[0], attrs={"pos": 21})  # 11 rows at 21 of tables of 31
    engine = Engine(opcheck.build(op, case).builder.graph(), Limits())
    with pytest.raises(ShapeError, match=r"position 21 is outside 0\.\.20"):
        engine.resize(opcheck.build(op, case).inputs(opcheck.arrays(op, case, {})))
    live: dict[str, Dims] = {"xq": (1, 10, 4, 16), "xk": (1, 10, 2, 16)}
    engine.resize(opcheck.build(op, case).inputs(opcheck.arrays(op, case, live)))


@pytest.mark.parametrize(
    ("name", "dims", "attrs", "message"),
    [
        ("et_vk.rms_norm.default", {"x": (2, 8), "weight": (7,)}, {"eps": 1e-5}, "weight has dims"),
        (Q4, {"x": (1, 40), "w": (8, 20), "scales": (2, 8)}, {"group": 32}, "multiple of the group"),
        (Q4, {"x": (1, 32), "w": (8, 15), "scales": (1, 8)}, {"group": 32}, "weight has dims"),
        (Q4, {"x": (1, 32), "w": (8, 16), "scales": (2, 8)}, {"group": 32}, "scales have dims"),
        (Q4, {"x": (1, 32), "w": (8, 16), "scales": (1, 8)}, {"group": 0}, "group size 0"),
        ("et_vk.embedding_q4gsw.default", {"w": (9, 10), "scales": (9, 1), "index": (3,)},
         {"group": 20, "linear": True}, "32"),
        ("aten.add.Tensor", {"a": (3, 2), "b": (4, 2)}, {"alpha": 1}, "do not broadcast"),
        ("aten.view_copy.default", {"x": (3, 5)}, {"dims": (4, -1)}, "can't be viewed"),
        ("aten.cat.default", {"xs0": (3, 5), "xs1": (2, 5)}, {"xs": (True, True), "dim": 1}, "can't be concatenated"),
        ("aten.select_copy.int", {"x": (3, 5)}, {"dim": 0, "index": 3}, "outside dim 0"),
        ("aten.linear.default", {"x": (3, 5), "w": (2, 6)}, {}, "rows of 5"),
        ("aten.bmm.default", {"a": (2, 3, 4), "b": (2, 5, 3)}, {}, "can't be multiplied"),
        ("aten.permute_copy.default", {"x": (3, 5)}, {"order": (0, 0)}, "not an order"),
    ],
)  # fmt: skip
def test_shapes_that_disagree(name: str, dims: dict[str, Dims], attrs: dict[str, Any], message: str) -> None:
    args = Args(dims, attrs, max_dims={**dims, "out": (1, 8)})
    with pytest.raises((ShapeError, ValueError), match=message):
        load_all()[name].plan(args, Limits())


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("top", [1, 2, 7, 65535])
def test_folding_covers_and_fits(top: int) -> None:
    limits = Limits(max_workgroups=top)
    for groups in {1, 2, 3, 5, 6, 7, 8, 48, 49, 65534, 65535, 65536, 65537, 100003, 65535**2}:
        if groups > top * top:
            with pytest.raises(ShapeError, match=f"{groups} workgroups"):
                fold(groups, limits)
            continue
        x, y, z = fold(groups, limits)
        assert z == 1
        assert max(x, y) <= top
        assert x * y >= groups
        assert x * y - groups < y, "a column fewer would do"
        assert (y - 1) * top < groups, "a row fewer would do"


def test_large_grid_is_two_dimensional() -> None:
    plan = load_all()["aten.sigmoid.default"].plan(Args({"x": (65536, 259, 3)}), Limits())
    assert plan.steps[0].grid[1] > 1
    assert prod(plan.steps[0].grid) * 64 * (4 if plan.route == "vec4" else 1) >= 65536 * 259 * 3


def test_unknown_ops_are_all_named() -> None:
    b = graphs.residual()
    b.chain = [dataclasses.replace(c, name=f"nope.{'ab'[i % 2]}") for i, c in enumerate(b.chain)]
    with pytest.raises(UnsupportedError, match=r"2 unsupported ops: nope\.a x2, nope\.b x2"):
        b.graph()


def test_integer_attributes_keep_64_bits() -> None:
    b = graphs.Builder()
    b.output(b.call("aten.slice_copy.Tensor", b.input((5, 2)), 0, 1, 2**63 - 1, 1))
    assert Engine(b.graph(), Limits()).plans[0].outs == ((4, 2),)


@pytest.mark.parametrize("profile", [GPU, SOFTWARE, PLAIN], ids=lambda p: p.name)
def test_a_linear_with_rounded_rows_wider_than_a_uniform_needs_no_scratch(profile: Profile) -> None:
    limits = Limits(profile=profile, subgroups=profile is SOFTWARE)
    b, k = graphs.Builder(), 2 * Limits().max_uniform // 2
    w, scales = graphs.q4(np.random.default_rng(0), 8, k)
    x = b.input((1, 5, k))
    b.output(b.call(Q4, x, b.constant(w), b.constant(scales), 32, None, out=(1, 5, 8)))
    engine = Engine(Graph(fuse.fuse(b.vk(), limits), b.bytes_of), limits)
    is_packed = profile is GPU  # its kernels take rows of any width from storage
    assert [node.op.name for node in engine.graph.nodes] == ["wr.linear_q4gsw.1" if is_packed else Q4]
    need = budget.needed(engine, limits)
    assert need["weights"] == w.nbytes + scales.nbytes
    assert 0 <= need["activations"] - 4 * 5 * (k + 8) < 8192
