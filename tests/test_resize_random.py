"""Random sequences of live shapes: plans are those of a fresh walk, outputs bit for bit those of a fresh build."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webgpu_run.formats import pte
from webgpu_run.gpu.device import Device
from webgpu_run.graph import fuse
from webgpu_run.graph.graph import Graph
from webgpu_run.graph.planner import Engine
from webgpu_run.ops.limits import SOFTWARE, Limits
from webgpu_run.runtime.runner import Runner
from webgpu_run.shapes import Array

from helpers import graphs
from helpers.graphs import bits, run
from helpers.oracle import naive

FIXTURES = Path(__file__).parent / "fixtures"
SEQUENCES, SAMPLE = 10_000, 500
Shape = tuple[int, int]


def hand_built() -> Any:
    return graphs.transformer(full=True)


def delegate(name: str) -> Any:
    return pte.load(FIXTURES / f"{name}.pte").method(None).delegates[0]


SOURCES: dict[str, tuple[Callable[[], Any], int, int]] = {
    "tiny_dyn": (lambda: delegate("tiny_dyn"), 127, 128),
    "tiny_qwen3": (lambda: delegate("tiny_qwen3"), 127, 128),
    "hand-built": (hand_built, 24, 40),
}


def graph_of(name: str, limits: Limits, *, fused: bool) -> Graph:
    source = SOURCES[name][0]()
    vk, data = (source.vk(), source.bytes_of) if hasattr(source, "bytes_of") else (source.graph, source.constant)
    return Graph(fuse.fuse(vk, limits) if fused else vk, data)


def runner_of(name: str, device: Device) -> Runner:
    source = SOURCES[name][0]()
    return source.runner(device, fuse=True) if hasattr(source, "runner") else Runner(source, device)


def inputs(shape: Shape) -> list[Array]:
    return [np.arange(shape[0], dtype=np.int32)[None] * 3 % 61, np.array([shape[1]], np.int32)]


def random_shape(rng: np.random.Generator, last: Shape, most: int, context: int) -> Shape:
    """Mostly what a session does: a step further, a restart, a chunk; sometimes anything."""
    seq, pos = last
    kind = int(rng.integers(6))
    if kind == 0:
        seq, pos = int(rng.integers(1, most + 1)), 0
    elif kind == 1:
        seq, pos = 1, pos + seq
    elif kind == 2:
        seq, pos = int(rng.integers(1, most + 1)), pos + seq
    elif kind == 3:
        seq = int(rng.choice([1, 2, 4, 5, 9, most - 1, most]))
    elif kind == 4:
        pos = int(rng.integers(0, context))
    else:
        seq, pos = int(rng.integers(1, most + 1)), int(rng.integers(0, context))
    if pos + seq > context:
        pos = context - seq
    return seq, pos


@pytest.mark.parametrize("fused", [False, True], ids=["as written", "fused"])
@pytest.mark.parametrize("name", SOURCES)
def test_plans(name: str, fused: bool, capsys: pytest.CaptureFixture[str]) -> None:
    limits = Limits(software=True, subgroups=True, uniform_align=32, profile=SOFTWARE)
    graph = graph_of(name, limits, fused=fused)
    engine = Engine(graph, limits)
    rng = np.random.default_rng(len(name) + fused)
    _, most, context = SOURCES[name]

    @functools.lru_cache(maxsize=2000)
    def fresh(shape: Shape) -> Any:
        return naive(graph, inputs(shape), limits)

    shape, compared = (most, 0), 0
    pool = [random_shape(rng, (int(rng.integers(1, most)), 0), most, context) for _ in range(400)]
    for n in range(SEQUENCES // (2 * len(SOURCES)) + 1):
        for _ in range(int(rng.integers(2, 6))):
            shape = pool[int(rng.integers(len(pool)))] if n % 4 else random_shape(rng, shape, most, context)
            engine.resize(inputs(shape))
        plans, live, syms = fresh(shape)
        assert engine.plans == plans, shape
        assert engine.syms == syms
        assert all(engine.live[v] == dims for v, dims in live.items())
        compared += len(plans)
    with capsys.disabled():
        print(f"\n{name} {'fused' if fused else 'as written'}: {n + 1} sequences, {compared} plans compared, 0 differ")


@pytest.mark.parametrize("name", SOURCES)
def test_outputs(name: str, device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    """A runner with a long history against one that has just been built, from empty caches, in small shapes."""
    rng = np.random.default_rng(11)
    old = runner_of(name, device)
    context = SOURCES[name][2]
    lengths = [1, 2, 3, 5, 8, 9, 16, 17, 24]
    count = SAMPLE // len(SOURCES) + 1
    for n in range(count):
        for _ in range(2):  # history
            seq = int(rng.choice(lengths))
            run(old, inputs((seq, int(rng.integers(0, context - seq + 1)))))
        calls: list[Shape] = []
        at = 0
        for _ in range(int(rng.integers(1, 3))):
            seq = int(rng.choice(lengths))
            if at + seq > context:
                break
            calls.append((seq, at))
            at += seq
        new = runner_of(name, device)
        old.executor.reset()
        for call in calls:
            assert bits(run(old, inputs(call))) == bits(run(new, inputs(call))), (n, calls)
    with capsys.disabled():
        print(f"\n{name}: outputs of {count} sequences bit-equal to a fresh build's")
