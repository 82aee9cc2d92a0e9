"""Graphs that others wrote, in well-formed files: refused by name, in time and memory bounded by the file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from webgpu_run.debug import inspect as inspecting
from webgpu_run.errors import GraphError, UnsupportedError
from webgpu_run.formats import pte, pte_writer
from webgpu_run.formats.vkgraph import IntList, OperatorCall, ValueList
from webgpu_run.formats.vkgraph_writer import program_of
from webgpu_run.graph import fuse
from webgpu_run.graph.graph import Graph
from webgpu_run.graph.memory import Memory
from webgpu_run.graph.passes import linears
from webgpu_run.graph.planner import Engine
from webgpu_run.ops.limits import Limits
from webgpu_run.ops.spec import REGISTRY
from webgpu_run.runtime.interpreter import MAX_STEPS, Interpreter
from webgpu_run.runtime.support import check_method

from helpers import file_mutants, graph_mutants
from helpers.fusing import ADD, LIMITS, SIGMOID, Small
from helpers.graphs import Builder, residual

SLOW = 2.0  # seconds of CPU time, as for damaged files
PROVOKED = [KeyError("x"), AttributeError("x"), TypeError("x"), AssertionError(), ZeroDivisionError(), OverflowError()]
PROVOKED += [RecursionError(), MemoryError()]


def program(b: Builder) -> pte.Program:
    vk = b.vk()
    constants = [b.bytes_of(i).read() for i in range(len(vk.constants))]
    return pte.loads(pte_writer.dumps(program_of(vk, constants, dynamic=True)))


# -- one boundary ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", PROVOKED, ids=lambda e: type(e).__name__)
def test_what_a_plan_raises_names_the_node(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(*args: Any) -> Any:
        raise error

    b = residual()
    monkeypatch.setitem(REGISTRY, SIGMOID, replace(REGISTRY[SIGMOID], plan=plan))
    with pytest.raises(GraphError, match=rf"^aten\.sigmoid\.default \(node 0\): .*{type(error).__name__}") as caught:
        Engine(b.graph(), Limits())
    assert caught.value.__cause__ is error
    assert caught.value.exit_code == 4


def test_what_binding_raises_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def outputs(*args: Any) -> Any:
        raise KeyError("x")

    monkeypatch.setattr(Graph, "_outputs", outputs)
    with pytest.raises(GraphError, match=r"^aten\.sigmoid\.default \(node 0\): .*KeyError"):
        residual().graph()


def test_what_a_pass_raises_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def can_fuse(*args: Any) -> Any:
        raise IndexError("x")

    b = Small()
    b.output(b.linear(b.call(SIGMOID, b.x), 32))
    monkeypatch.setattr(linears, "can_fuse", can_fuse)
    with pytest.raises(GraphError, match=r"^et_vk\.linear_q4gsw\.default \(node 1\): .*IndexError"):
        fuse.fuse(b.vk(), LIMITS)


def test_what_an_op_raises_about_its_memory_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def resources(*args: Any) -> Any:
        raise KeyError("x")

    from webgpu_run.graph import budget

    monkeypatch.setitem(REGISTRY, SIGMOID, replace(REGISTRY[SIGMOID], resources=resources))
    with pytest.raises(GraphError, match=r"^aten\.sigmoid\.default \(node 0\): .*KeyError"):
        budget.needed(Engine(residual().graph(), Limits()), Limits())


# -- refusals ----------------------------------------------------------------------------------------------------------


def internal_op() -> pte.Program:
    b = Builder()
    b.output(b.call("wr.pick", b.input((1, 8)), b.input((8,), "int32"), False, out=(1,), dtype="int32"))
    return program(b)


def test_files_cannot_name_ops_of_ours() -> None:
    with pytest.raises(UnsupportedError, match=r"not supported: wr\.pick"):
        check_method(internal_op().method())


def test_inspect_does_not_fuse_what_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(*args: Any) -> Any:
        raise AssertionError("fused")

    monkeypatch.setattr(inspecting, "planned", planned)
    (method,) = inspecting.inspect(internal_op()).methods
    assert "wr.pick" in str(method.problem)
    assert [delegate.memory for delegate in method.delegates] == [None]
    assert [op.supported for op in method.delegates[0].ops] == [False]


@pytest.mark.parametrize("end", ["input", "output"])
def test_inputs_and_outputs_that_are_no_tensors(end: str) -> None:
    b = residual()
    (b.outputs if end == "output" else b.inputs).append(b.value(2.5).id)
    with pytest.raises(UnsupportedError, match=rf"^{end} \d of the graph is float, expected a tensor or a SymInt"):
        b.graph()


# -- bounded work ------------------------------------------------------------------------------------------------------


class Long(Builder):
    """Many calls, made without planning each one."""

    def append(self, op: str, *args: int, dims: tuple[int, ...] = (4,)) -> int:
        out = self.tensor(dims).id
        self.chain.append(OperatorCall(0, op, (*args, out)))
        return out


def adds(count: int, *, returned: bool) -> Builder:
    b = Long()
    x = y = b.input((4,)).id
    one = b.value(1).id
    for _ in range(count):
        y = b.append(ADD, y, x, one)
        b.outputs += [y] * returned
    b.outputs.append(y)
    return b


def all_alive(count: int) -> Builder:
    b = Long()
    x = y = b.input((4,)).id
    one = b.value(1).id
    for v in [b.append(ADD, x, x, one) for _ in range(count)]:
        y = b.append(ADD, y, v, one)
    b.outputs.append(y)
    return b


def one_list_for_all(value: Callable[[int], ValueList | IntList], op: str) -> Builder:
    b = Long()
    x, last = b.input((4,)).id, b.value(0).id
    items = b.value(value(x)).id
    for _ in range(1500):
        b.outputs = [b.append(op, *((items, last) if "cat" in op else (x, items)))]
    return b


def many_parts() -> Builder:
    b = Long()
    x, dim, count = b.input((6000,)).id, b.value(0).id, 6000
    sizes, outs = b.value(IntList((1,) * count)).id, tuple(b.tensor((1,)).id for _ in range(count))
    split = "aten.split_with_sizes_copy.default"
    b.chain.append(OperatorCall(0, split, (x, sizes, dim, b.value(ValueList(outs)).id)))
    b.outputs = list(outs[:1])
    return b


def long_rows(rows: int = 1 << 22) -> Builder:
    b = Long()
    for i in range(20):
        b.outputs.append(b.append("aten.sigmoid.default", b.input((rows - i, 64)).id, dims=(rows - i, 64)))
    return b


@pytest.mark.parametrize(
    "make",
    [
        lambda: adds(5000, returned=False),
        lambda: adds(5000, returned=True),
        lambda: all_alive(2500),
        lambda: one_list_for_all(lambda x: ValueList((x,) * 1500), "aten.cat.default"),
        lambda: one_list_for_all(lambda x: IntList((1,) * 1500), "aten.view_copy.default"),
        many_parts,
        long_rows,
    ],
    ids=["adds", "returned", "alive", "value list", "int list", "parts", "rows"],
)
def test_time_is_bounded_by_the_file(make: Callable[[], Builder]) -> None:
    b = make()
    vk = b.vk()
    data = pte_writer.dumps(program_of(vk, dynamic=True))
    start = time.process_time()
    file_mutants.judge(data, 0)
    assert time.process_time() - start < SLOW


def test_buffers_are_never_shared_at_the_same_time() -> None:
    graph = all_alive(100).graph()
    memory = Memory(graph, dict.fromkeys(graph.tensors, 16))
    alive: Counter[int] = Counter()
    assert len(memory.sizes) >= 100  # hundred results wait for the second half of the chain
    for root in memory.place:
        alive[memory.place[root]] += 1
    assert max(alive.values()) > 1  # and later ones use their buffers again


def method(values: tuple[Any, ...], *instructions: Any) -> pte.Method:
    return pte.Method("forward", (), (), values, (pte.Chain((), (), instructions),))


def test_a_loop_without_end() -> None:
    interpreter = Interpreter(method((False,), pte.JumpFalseCall(0, 0)))
    start = time.process_time()
    with pytest.raises(GraphError, match=f"'forward' took {MAX_STEPS:,} steps without coming to an end"):
        interpreter.run([], lambda i, given: [])
    assert time.process_time() - start < SLOW


def test_lists_of_values_that_many_kernels_name() -> None:
    tensor = pte.Tensor("float32", (2,), (0,), "static")
    values = (pte.TensorList((1,) * 2000), tensor, 0, tensor)
    start = time.process_time()
    with pytest.raises(GraphError, match="steps without coming to an end"):
        Interpreter(method(values, *[pte.KernelCall("aten::abs.out", (0, 3, 3))] * 2000))
    assert time.process_time() - start < SLOW


# -- a campaign --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(4))
def test_graphs_that_make_no_sense(part: int) -> None:
    """A sample of `tests/tools/fuzz_files.py --structured`: all its edits, on all its small files."""
    samples = file_mutants.small_samples()
    outcomes: Counter[str] = Counter()
    for k in range(144 * part, 144 * (part + 1)):
        edit, sample, data = graph_mutants.graph_mutant(k, samples)
        start = time.process_time()
        try:
            outcomes[file_mutants.judge(data, k)] += 1
        except BaseException as error:
            pytest.fail(f"mutant {k}, {edit} of {sample.name}: {type(error).__name__}: {error}")
        assert time.process_time() - start < SLOW
    assert outcomes["planned"] > 10
    assert outcomes["read, then UnsupportedError"] > 10
