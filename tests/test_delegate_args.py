"""Arguments of a delegate call that its graph does not read, or that repeat an output."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from webgpu_run.errors import GraphError
from webgpu_run.formats import pte_writer
from webgpu_run.formats.pte import Chain, DelegateCall, Program, Tensor
from webgpu_run.formats.vkgraph import OperatorCall, VkGraph, VkTensor
from webgpu_run.formats.vkgraph_writer import program_of
from webgpu_run.gpu.device import Device
from webgpu_run.runtime.open import load


def with_unread_input(program: Program, extra: Tensor, place: int) -> Program:
    """The program with one more input, which is argument `place` of its delegate's call."""
    (method,) = (m for m in program.methods if m.name == "forward")
    (call,) = method.instructions
    assert isinstance(call, DelegateCall)
    new = len(method.values)
    inputs = (*method.inputs[:place], new, *method.inputs[place:])
    args = (*call.args[:place], new, *call.args[place:])
    chain = Chain(inputs, method.outputs, (dataclasses.replace(call, args=args),))
    changed = dataclasses.replace(method, inputs=inputs, values=(*method.values, extra), chains=(chain,))
    return dataclasses.replace(program, methods=tuple(changed if m is method else m for m in program.methods))


def difference(extra: Tensor, place: int) -> Program:
    """a - b, where the call of the delegate has one more argument before argument `place`."""
    values = (VkTensor("float32", (2, 3)), VkTensor("float32", (3,)), 1, VkTensor("float32", (2, 3)))
    graph = VkGraph("0", (OperatorCall(0, "aten.sub.Tensor", (0, 1, 2, 3)),), values, (0, 1), (3,), ())
    return with_unread_input(program_of(graph, []), extra, place)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("extra", [Tensor("int64", (2, 3)), Tensor("float32", (4,))], ids=["dtype", "dims"])
def test_an_argument_that_is_not_read(tmp_path: Path, device: Device, extra: Tensor, place: int) -> None:
    path = tmp_path / "m.pte"
    pte_writer.write(path, difference(extra, place))
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([5, 7, 11], np.float32)
    given = [a, b]
    given.insert(place, np.zeros(extra.dims, extra.dtype))
    assert np.array_equal(np.asarray(load(path, device=device).run(given)[0]), a - b)


def test_an_argument_that_could_be_read(tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    pte_writer.write(path, difference(Tensor("float32", (2, 3)), 0))
    with pytest.raises(GraphError, match="4 arguments for a delegate of 2 inputs and 1 outputs"):
        load(path)


def sum_and_difference(repeats: int, *, alike: bool) -> Program:
    """a + b, as often as told, and then a - c; results alike in type and dims, or not."""
    dims = (2, 3) if alike else (4, 2, 3)
    c = (2, 1) if alike else dims
    values = (
        VkTensor("float32", (2, 3)),
        VkTensor("float32", (3,)),
        VkTensor("float32", c),
        1,
        VkTensor("float32", (2, 3)),
        VkTensor("float32", dims),
    )
    calls = (
        OperatorCall(0, "aten.add.Tensor", (0, 1, 3, 4)),
        OperatorCall(1, "aten.sub.Tensor", (0, 2, 3, 5)),
    )
    program = program_of(VkGraph("0", calls, values, (0, 1, 2), (4, 5), ()), [])
    (method,) = (m for m in program.methods if m.name == "forward")
    (call,) = method.instructions
    assert isinstance(call, DelegateCall)
    total, difference = method.outputs
    new = tuple(range(len(method.values), len(method.values) + repeats - 1))
    outputs = (total, *new, difference)
    chain = Chain(method.inputs, outputs, (dataclasses.replace(call, args=(*call.args[:3], *outputs)),))
    changed = dataclasses.replace(
        method,
        outputs=outputs,
        values=(*method.values, *(method.values[total] for _ in new)),
        chains=(chain,),
    )
    return dataclasses.replace(program, methods=tuple(changed if m is method else m for m in program.methods))


@pytest.mark.parametrize("repeats", [1, 2, 4])
def test_a_repeated_output(tmp_path: Path, device: Device, repeats: int) -> None:
    path = tmp_path / "m.pte"
    pte_writer.write(path, sum_and_difference(repeats, alike=False))
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([5, 7, 11], np.float32)
    c = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    outputs = load(path, device=device).run([a, b, c])
    assert len(outputs) == repeats + 1
    for output in outputs[:-1]:
        assert np.array_equal(np.asarray(output), a + b)
    assert np.array_equal(np.asarray(outputs[-1]), a - c)


def test_an_output_that_could_be_another(tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    pte_writer.write(path, sum_and_difference(2, alike=True))
    with pytest.raises(GraphError, match="6 arguments for a delegate of 3 inputs and 2 outputs"):
        load(path)


@pytest.mark.parametrize("place", [0, 2, 3])
@pytest.mark.parametrize("repeats", [2, 3])
def test_an_unread_input_and_a_repeated_output(tmp_path: Path, device: Device, repeats: int, place: int) -> None:
    path = tmp_path / "m.pte"
    extra = Tensor("float32", (5,))
    pte_writer.write(path, with_unread_input(sum_and_difference(repeats, alike=False), extra, place))
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([5, 7, 11], np.float32)
    c = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    given = [a, b, c]
    given.insert(place, np.zeros(extra.dims, np.float32))
    outputs = load(path, device=device).run(given)
    wanted = [a + b] * repeats + [a - c]
    assert [np.asarray(output).tolist() for output in outputs] == [x.tolist() for x in wanted]


@pytest.mark.parametrize(("dims", "place"), [((2, 3), 1), ((4, 2, 3), 3)], ids=["a", "c"])
def test_an_unread_input_like_its_neighbour(tmp_path: Path, dims: tuple[int, ...], place: int) -> None:
    path = tmp_path / "m.pte"
    pte_writer.write(path, with_unread_input(sum_and_difference(2, alike=False), Tensor("float32", dims), place))
    with pytest.raises(GraphError, match="types and dims do not tell which are unread inputs or repeated outputs"):
        load(path)


def test_an_unread_input_and_an_output_that_could_be_another(tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    pte_writer.write(path, with_unread_input(sum_and_difference(2, alike=True), Tensor("float32", (5,)), 0))
    with pytest.raises(GraphError, match="7 arguments for a delegate of 3 inputs and 2 outputs"):
        load(path)
