"""A resize or a call that fails at its k-th step, for every k: the graph is unchanged, and the next call is right."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from webgpu_run.errors import DeviceError, ShapeError
from webgpu_run.gpu.callstats import CallStats
from webgpu_run.gpu.device import Device
from webgpu_run.graph.graph import Node
from webgpu_run.graph.planner import Engine
from webgpu_run.ops.choice import GREEDY
from webgpu_run.ops.plan import Plan
from webgpu_run.runtime.runner import Runner
from webgpu_run.shapes import Array

from helpers import graphs
from helpers.graphs import bits

Moves = list[tuple[int, int]]
FROM, TO = (24, 0), (7, 24)


def tokens(seq: int, pos: int) -> list[Array]:
    return [np.arange(seq, dtype=np.int32)[None] * 7 % 60, np.array([pos], np.int32)]


def state(runner: Runner) -> tuple[Any, ...]:
    """All that a failed resize must leave alone."""
    engine, executor = runner.engine, runner.executor
    return (
        list(engine.plans),
        dict(engine.live),
        dict(engine.syms),
        engine.planned,
        executor.arena.data.tobytes(),
        [(c.step.grid, c.params_at, c.step) for c in executor.commands()],
        dict(executor.stream._pending),
    )


class Trap:
    """Counts calls and raises at one of them."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.at, self.error, self.count = at, error, 0

    def step(self) -> None:
        self.count += 1
        if self.count == self.at:
            raise self.error


@pytest.fixture(scope="module", params=[False, True], ids=["as written", "fused"])
def fuse(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def want(device: Device, fuse: bool) -> list[Any]:
    """What the two calls give when nothing fails."""
    runner = graphs.transformer().runner(device, fuse=fuse)
    return [bits(runner.call(tokens(*at), CallStats())) for at in (FROM, TO)]


def plan_counter(runner: Runner, trap: Trap) -> None:
    """Make the engine's k-th plan raise where an op's plan would, with nothing remembered from before."""
    engine = runner.engine
    original: Callable[..., Plan] = type(engine)._plan

    def failing(node: Node, *args: Any) -> Plan:
        trap.step()
        return original(engine, node, *args)

    setattr(engine, "_plan", failing)  # noqa: B010


def count_plans(runner: Runner) -> int:
    trap = Trap(-1, ShapeError(""))
    engine = copy.copy(runner.engine)
    engine.live, engine.syms = dict(engine.live), dict(engine.syms)
    engine.plans, engine._memo = list(engine.plans), {}
    original: Callable[..., Plan] = Engine._plan

    def counting(node: Node, *args: Any) -> Plan:
        trap.step()
        return original(engine, node, *args)

    setattr(engine, "_plan", counting)  # noqa: B010
    engine.resize([*tokens(*TO), *([GREEDY] if runner.pick else [])])
    return trap.count


@pytest.mark.parametrize("error", [ShapeError("injected"), MemoryError("injected"), KeyboardInterrupt()], ids=repr)
def test_every_plan(error: BaseException, device: Device, fuse: bool, want: list[Any]) -> None:
    runner = graphs.transformer().runner(device, fuse=fuse)
    assert bits(runner.call(tokens(*FROM), CallStats())) == want[0]
    total = count_plans(runner)
    assert total >= 8
    before = state(runner)
    for k in range(1, total + 1):
        runner.engine._memo.clear()
        plan_counter(runner, Trap(k, error))
        with pytest.raises(type(error)):
            runner.call(tokens(*TO), CallStats())
        del runner.engine._plan
        assert state(runner) == before, f"plan {k} of {total}"
    assert bits(runner.call(tokens(*FROM), CallStats())) == want[0]
    assert bits(runner.call(tokens(*TO), CallStats())) == want[1]


def armed(runner: Runner, name: str, trap: Trap) -> None:
    """Make the k-th use of a device method raise; the runner has a device object of its own."""
    device = runner.executor.device
    original = getattr(device, name)

    def failing(*args: Any, **kwargs: Any) -> Any:
        trap.step()
        return original(*args, **kwargs)

    setattr(device, name, failing)


def own(device: Device) -> Device:
    """The same device in an object of its own, with no pipeline remembered."""
    mine = copy.copy(device)
    mine._pipelines = {}
    return mine


@pytest.mark.parametrize("name", ["pipeline", "bind_group", "write", "buffer", "call"])
def test_every_use_of_the_device(name: str, device: Device, fuse: bool, want: list[Any]) -> None:
    """In the first call and in the one after: whichever fails, the calls after it give what they should."""
    if name == "pipeline" and not fuse:
        pytest.skip("compiling all of them once more is enough once")
    mine = own(device) if name == "pipeline" else copy.copy(device)
    tried = 0
    for first in (True, False):
        k = 1
        while True:
            runner = graphs.transformer().runner(mine, fuse=fuse)
            if not first:
                assert bits(runner.call(tokens(*FROM), CallStats())) == want[0]
            if name == "bind_group" and not first:
                runner.executor.stream._bind_groups.clear()
            before = state(runner)
            trap = Trap(k, DeviceError("injected"))
            armed(runner, name, trap)
            try:
                runner.call(tokens(*(FROM if first else TO)), CallStats())
                failed = False
            except DeviceError:
                failed = True
            delattr(mine, name)
            if not failed:
                break
            tried += 1
            if name in ("pipeline", "bind_group"):
                assert state(runner) == before, f"{name} {k}"
            if not first:
                assert bits(runner.call(tokens(*FROM), CallStats())) == want[0]
            else:
                assert bits(runner.call(tokens(*FROM), CallStats())) == want[0], f"after {name} {k} failed"
            assert bits(runner.call(tokens(*TO), CallStats())) == want[1], f"after {name} {k} failed"
            k += 3 if name in ("pipeline", "bind_group") else 1
    assert tried >= 1


def test_write_that_fails_is_written_again(device: Device, fuse: bool, want: list[Any]) -> None:
    """The same call after a failed upload of uniforms: nothing has changed since, yet they must be written."""
    mine = copy.copy(device)
    for k in (1, 2):
        runner = graphs.transformer().runner(mine, fuse=fuse)
        runner.call(tokens(*FROM), CallStats())
        armed(runner, "write", Trap(k, DeviceError("injected")))
        with pytest.raises(DeviceError):
            runner.call(tokens(*TO), CallStats())
        del mine.write
        assert bits(runner.call(tokens(*TO), CallStats())) == want[1], k


def test_refused_shapes_between_good_ones(device: Device, fuse: bool, want: list[Any]) -> None:
    runner = graphs.transformer().runner(device, fuse=fuse)
    assert bits(runner.call(tokens(*FROM), CallStats())) == want[0]
    for seq, pos in ((25, 0), (0, 3), (24, 17), (1, 40), (1, -1)):
        before = state(runner)
        with pytest.raises(ShapeError):
            runner.call(tokens(seq, pos), CallStats())
        assert state(runner) == before
    assert bits(runner.call(tokens(*TO), CallStats())) == want[1]


def test_first_call_may_fail(device: Device, fuse: bool, want: list[Any]) -> None:
    runner = graphs.transformer().runner(device, fuse=fuse)
    with pytest.raises(ShapeError):
        runner.call(tokens(25, 0), CallStats())
    assert bits(runner.call(tokens(*FROM), CallStats())) == want[0]
