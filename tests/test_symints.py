"""SymInts as inputs and outputs of a delegate, and integers as inputs and outputs of a method."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from webgpu_run.debug.fresh_build import FreshBuilds
from webgpu_run.errors import ShapeError
from webgpu_run.formats import pte
from webgpu_run.formats.vkgraph import SymInt
from webgpu_run.gpu.device import Device
from webgpu_run.graph.planner import Engine
from webgpu_run.ops.limits import Limits
from webgpu_run.runtime.model import Model
from webgpu_run.shapes import Array

from helpers import oracle
from helpers.command import webgpu_run
from helpers.graphs import Builder, run

SCALARS = Path(__file__).parent / "fixtures" / "scalars.pte"


def sized_by_an_input(rows: int = 24) -> Builder:
    """Inputs x and n: the first n rows of x plus 0 to 2n - 1, and n + 1."""
    b = Builder()
    x, n = b.input((rows, 2)), b.value(SymInt())
    b.inputs.append(n.id)
    b._syms[n.id] = rows
    numbers = b.call("aten.arange.start_step", 0, b.call("mul", n, 2), 1, None, None, None, None, out=(2 * rows,))
    pairs = b.call("aten.view_copy.default", numbers, (n, 2), out=(rows, 2))
    b.output(b.call("aten.add.Tensor", b.call("aten.slice_copy.Tensor", x, 0, 0, n, 1), pairs, 1))
    b.output(b.call("add", n, 1))
    return b


def inputs(n: int, rows: int = 24) -> list[Array]:
    return [np.ones((rows, 2), np.float32), np.asarray(n)]


def test_plans_follow_a_symint_input() -> None:
    """Also to what has no rows, and back; an oracle that plans everything anew agrees."""
    engine = Engine(sized_by_an_input().graph(), Limits())
    for n in (24, 1, 13, 0, 24, 7):
        engine.resize(inputs(n))
        plans, live, syms = oracle.naive(engine.graph, inputs(n), Limits())
        assert (engine.plans, engine.syms) == (plans, syms)
        assert {v: engine.live[v] for v in live} == live
        assert engine.live[engine.graph.output_ids[0]] == (n, 2)


def test_the_largest_symint_is_read_back_from_declared_dims() -> None:
    """What is planned at load is what the largest call needs, so memory and limits are checked for it."""
    b = sized_by_an_input()
    engine = Engine(b.graph(), Limits())
    assert engine.syms[b.inputs[1]] == 24
    built = list(engine.plans)
    engine.resize(inputs(24))
    assert engine.plans == built


def test_a_refused_symint_changes_nothing() -> None:
    engine = Engine(sized_by_an_input().graph(), Limits())
    engine.resize(inputs(5))
    before = list(engine.plans), dict(engine.live), dict(engine.syms)
    for wrong in (25, -1):
        with pytest.raises(ShapeError):
            engine.resize(inputs(wrong))
        assert (engine.plans, engine.live, engine.syms) == before
    for array in (np.ones(2, np.int32), np.asarray(1.5)):
        with pytest.raises(ShapeError, match=r"input 1 is .*, the graph takes one integer"):
            engine.resize([inputs(1)[0], array])


def test_symint_inputs_on_the_device(device: Device) -> None:
    runner = sized_by_an_input().runner(device)
    for n in (24, 1, 13, 24):
        rows, more = run(runner, inputs(n))
        assert np.array_equal(rows, np.arange(2 * n, dtype=np.float32).reshape(n, 2) + 1)
        assert more == n + 1


def test_integers_of_a_method(device: Device) -> None:
    """A real file: an integer input, integer outputs, a SymInt that passes through; each call as if built for it."""
    goldens = np.load(SCALARS.with_suffix(".npz"))
    model = Model(pte.load(SCALARS), device)
    checks = FreshBuilds(model)
    for runner in model.runners:
        runner.visitor = checks
    for call in (0, 1, 2, 3, 0):
        outs = model.run([goldens[f"{call}_in_0"], int(goldens[f"{call}_in_1"])])
        for k, out in enumerate(outs):
            want = goldens[f"{call}_out_{k}"]
            assert out.shape == want.shape
            assert np.abs(out - want).max() <= 1e-6
    assert checks.compared == 5


def test_integers_on_the_command_line(tmp_path: Path) -> None:
    goldens = np.load(SCALARS.with_suffix(".npz"))
    for k in range(2):
        np.save(tmp_path / f"{k}.npy", goldens[f"3_in_{k}"])
    given = [f for k in range(2) for f in ("--input", str(tmp_path / f"{k}.npy"))]
    result = webgpu_run(str(SCALARS), *given, "--trace-resize", "--check-resize")
    assert result.code == 0, result.err
    assert "output_1  int64 []  min 7  mean 7  max 7" in result.out
    assert "input 0  float32  max [16, 8] → live [7, 8]" in result.err
    assert "check-resize: 1 call compared with a fresh build, equal bit for bit" in result.err
    assert re.search(r" · GPU [1-9]\d* kB$", result.err, re.M)
