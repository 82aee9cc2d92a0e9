"""The checks behind `--check`, `--check-resize` and `--nan-check` fail when something is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from webgpu_run.debug.fresh_build import FreshBuilds, same_bits
from webgpu_run.debug.stepping import Stepper, check_finite, compare
from webgpu_run.errors import CheckError
from webgpu_run.gpu.callstats import CallStats
from webgpu_run.gpu.device import Device
from webgpu_run.graph.graph import Node
from webgpu_run.runtime.model import Model
from webgpu_run.runtime.open import load
from webgpu_run.runtime.runner import Runner, Visitor
from webgpu_run.shapes import Array

from helpers.language import FIXTURES


def call(model: Model, tokens: list[int], position: int, visitor: Visitor | None) -> None:
    model.runners[0].visitor = visitor
    model.run([np.array([tokens]), np.array([position])])


Fault = Callable[[Runner, list[Array]], list[Array]]


def wrong_output(runner: Runner, outs: list[Array]) -> list[Array]:
    return [np.nextafter(out, np.inf) for out in outs]


def wrong_cache(runner: Runner, outs: list[Array]) -> list[Array]:
    """A cache that a kernel wrote one more number to than it should."""
    executor = runner.executor
    if executor.resident.images:
        executor.device.fill_image(executor.resident.images[0], np.float32(3))
    else:
        executor.device.write(executor.resident.state[0], np.array([3], np.float32))
    return outs


@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "as written"])
@pytest.mark.parametrize(
    ("fault", "message"),
    [(None, ""), (wrong_output, "output 0: .* numbers differ"), (wrong_cache, "(state|cache) 0: .* numbers differ")],
    ids=["right", "output", "cache"],
)
def test_a_fresh_build_is_compared(fuse: bool, fault: Fault | None, message: str, device: Device) -> None:
    model = load(FIXTURES / "tiny_dyn.pte", device=device, fuse=fuse)

    def visitor(runner: Runner, inputs: Sequence[Array], stats: CallStats) -> list[Array]:
        outs = runner.executor.execute(stats)
        return fault(runner, outs) if fault else outs

    call(model, [3, 5, 7, 11], 0, None)
    if not fault:
        call(model, [3, 5], 4, FreshBuilds(model, visitor))
        return
    with pytest.raises(CheckError, match=message):
        call(model, [3, 5], 4, FreshBuilds(model, visitor))


def test_the_plans_of_a_fresh_build_are_compared(device: Device) -> None:
    model = load(FIXTURES / "tiny_dyn.pte", device=device)
    checks = FreshBuilds(model)
    call(model, [3, 5, 7, 11], 0, checks)
    engine = model.runners[0].engine
    index = max(i for i, plan in enumerate(engine.plans) if plan.steps)
    engine.plans[index] = dataclasses.replace(engine.plans[index], route="stale")
    with pytest.raises(CheckError, match="resized and freshly built plans differ in route"):
        call(model, [3, 5, 7, 11], 0, checks)
    assert checks.compared == 1


@pytest.mark.parametrize(
    ("out", "want"),
    [
        (np.zeros(3, np.float32), np.zeros((1, 3), np.float32)),
        (np.zeros(3, np.float32), np.array([0, 0, -0.0], np.float32)),
        (np.ones(1, np.float32), np.nextafter(np.ones(1, np.float32), 2)),
    ],
    ids=["dims", "sign of zero", "last bit"],
)
def test_every_bit_is_compared(out: Array, want: Array) -> None:
    same_bits(want, want.copy(), "x")
    with pytest.raises(CheckError):
        same_bits(out, want, "x")


@pytest.mark.parametrize(
    ("out", "want"),
    [
        ([1.0, 2.0, 3.0], [[1.0, 2.0, 3.0]]),
        ([1.0, 2.0, 3.1], [1.0, 2.0, 3.0]),
        ([1.0, 2.0, np.nan], [1.0, 2.0, 3.0]),
        ([1.0, 2.0, 3.0], [1.0, 2.0, np.inf]),
        ([1, 2, 4], [1, 2, 3]),
        ([True, False], [True, True]),
    ],
    ids=["dims", "one element", "NaN", "infinity", "integers", "booleans"],
)
def test_outputs_are_compared_with_references(out: list[float], want: list[float]) -> None:
    kind = np.float32 if isinstance(out[0], float) else np.int32
    right = np.asarray(want)
    assert compare(right.astype(kind), right, "op#0") == 0.0
    with pytest.raises(CheckError, match="op#0"):
        compare(np.asarray(out, kind), right, "op#0")


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=["NaN", "infinity"])
def test_numbers_that_are_not_finite_are_found(bad: float, device: Device) -> None:
    model = load(FIXTURES / "tiny_dyn.pte", device=device, fuse=False)

    is_spoiled = False

    def look(runner: Runner, node: Node, before: Mapping[str, Array], outs: Sequence[Array]) -> None:
        out = outs[0].copy()
        if is_spoiled:
            out.reshape(-1)[1] = bad
        check_finite(runner, node, before, [out])

    call(model, [3, 5], 0, Stepper([look], inputs=False))
    is_spoiled = True
    with pytest.raises(CheckError, match=r"gave 1 (NaN|infinite) of \d+ numbers, the first at \["):
        call(model, [3, 5], 0, Stepper([look], inputs=False))
