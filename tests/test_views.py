"""Tensors between steps that share the memory of another: the exporter writes no step for a view of fixed dims."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_run.errors import GraphError
from webgpu_run.formats import pte
from webgpu_run.runtime.interpreter import Interpreter


def test_views_that_the_exporter_writes_no_step_for() -> None:
    """A tensor that no step writes shares the memory that the file gives it with the tensor that lies there then."""

    def tensor(dims: tuple[int, ...], offset: int, **more: Any) -> pte.Tensor:
        return pte.Tensor("float32", dims, allocation=pte.Allocation(1, offset), **more)

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    values = (
        tensor((2, 3), 64),
        tensor((2, 3), 0),
        tensor((3, 2), 0),
        tensor((3, 2), 32),
        tensor((6,), 32),
        tensor((2, 3), 0),
    )
    double, turn = pte.KernelCall("aten::add.out", (0, 0, 6, 1, 1)), pte.KernelCall("aten::exp.out", (2, 3, 3))
    again = pte.KernelCall("aten::neg.out", (0, 5, 5))  # its result lies where that of the first step did
    for steps, outs in (((double, turn), (3, 4, 2)), ((double, turn, again), (3, 4))):
        method = pte.Method("forward", (0,), outs, (*values, 1), (pte.Chain((), (), steps),))
        runner = Interpreter(method)
        assert not runner.keeps_state
        got = runner.run([x], lambda i, given: [])
        assert np.array_equal(got[0], np.exp((x + x).reshape(3, 2)))
        assert np.array_equal(got[1], got[0].reshape(6))
    wrong = (*values[:2], tensor((4, 2), 0), *values[3:], 1)
    method = pte.Method("forward", (0,), (3,), wrong, (pte.Chain((), (), (double, turn)),))
    with pytest.raises(GraphError, match=r"float32 \[4, 2\] is placed in the memory of float32 \[2, 3\]"):
        Interpreter(method).run([x], lambda i, given: [])
    nowhere = (*values[:2], pte.Tensor("float32", (3, 2)), *values[3:], 1)
    with pytest.raises(GraphError, match="value 2 is read, but nothing writes it"):
        Interpreter(pte.Method("forward", (0,), (3,), nowhere, (pte.Chain((), (), (double, turn)),)))


def test_a_view_of_a_buffer() -> None:
    """The buffer is written after its view was read, and the next call reads what was written."""
    place = pte.Allocation(1, 0)
    values = (pte.Tensor("float32", (2, 2)), pte.Tensor("float32", (2, 2), allocation=place))
    view, out = pte.Tensor("float32", (4,), allocation=place), pte.Tensor("float32", (4,))
    steps = (pte.KernelCall("aten::neg.out", (2, 3, 3)), pte.KernelCall("aten::copy_", (1, 0, 4)))
    runner = Interpreter(pte.Method("forward", (0,), (3,), (*values, view, out, False), (pte.Chain((), (), steps),)))
    assert runner.keeps_state
    for x, wanted in ((1.0, 0.0), (5.0, -1.0), (0.0, -5.0)):
        got = runner.run([np.full((2, 2), x, np.float32)], lambda i, given: [])
        assert got[0].tolist() == [wanted] * 4
