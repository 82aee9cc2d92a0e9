"""Cache layers that no call has reached are not bound, so the driver never clears them. They are bound when needed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from webgpu_run.gpu.callstats import CallStats
from webgpu_run.gpu.device import Device
from webgpu_run.runtime.runner import Runner
from webgpu_run.shapes import Array

from helpers import graphs
from helpers.graphs import bits, run


def tokens(seq: int, pos: int) -> list[Array]:
    return [np.arange(seq, dtype=np.int32)[None] % 60, np.array([pos], np.int32)]


def long(device: Device, seq: int = 40, context: int = 700) -> Runner:
    return graphs.transformer(seq, context).runner(device, fuse=True)


def test_caches_are_bound_up_to_the_position(device: Device) -> None:
    """In powers of two of 128 positions, all at once, and never less again; nothing is planned for it."""
    runner = long(device)
    images, planned = runner.executor.resident.images, []
    assert {image.texture.size[2] for image in images} == {6}
    for seq, pos, layers in ((40, 0, 1), (40, 88, 1), (40, 89, 2), (1, 255, 2), (1, 256, 4), (1, 511, 4), (1, 512, 6)):
        run(runner, tokens(seq, pos))
        assert {image.used for image in images} == {layers}, (seq, pos)
        planned.append(len(runner.delta.plans))
    assert planned[-3:] == [0, 0, 0]
    groups = len(runner.executor.stream._bind_groups)
    run(runner, tokens(1, 3))
    assert {image.used for image in images} == {6}
    assert len(runner.executor.stream._bind_groups) == groups


@pytest.mark.parametrize(
    ("steps", "layers"), [((1, 127, 128, 129, 300), 256), ((600, 5, 513), 256), ((1, 239, 241), 3)]
)
def test_what_was_bound_late_is_what_was_there(steps: tuple[int, ...], layers: int, device: Device) -> None:
    """Rows written before are still there, however many layers there are: the bits of a graph that had all at once."""
    runner, whole = long(graphs.with_limits(device, max_layers=layers)), long(device)
    assert runner.executor.resident.images[0].texture.size[1:] == ((30, 3) if layers == 3 else (16, 6))
    run(whole, tokens(1, 699))
    whole.executor.reset()
    for r in (runner, whole):
        for at in range(0, 640, 40):
            if at <= max(steps):
                run(r, tokens(40, at))
    for pos in steps:
        assert bits(run(runner, tokens(1, pos))) == bits(run(whole, tokens(1, pos)))


def test_reset_zeroes_what_was_reached(device: Device) -> None:
    runner = long(device)
    first = bits(run(runner, tokens(40, 0)))
    for at in range(40, 680, 40):
        run(runner, tokens(40, at))
    image = runner.executor.resident.images[0]
    assert np.frombuffer(device.read_image(image), np.float32).any()
    runner.executor.reset()
    assert not np.frombuffer(device.read_image(image), np.float32).any()
    assert bits(run(runner, tokens(40, 0))) == first


def test_a_position_that_is_refused_binds_nothing(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """All or nothing: if bind groups for more of a cache can't be made, the call fails and the next one is right."""
    runner, other = long(device), long(device)
    for r in (runner, other):
        for at in range(0, 120, 40):
            run(r, tokens(40, at))

    def fail(*args: object) -> None:
        raise RuntimeError("no more bind groups")

    with monkeypatch.context() as patched:
        patched.setattr(runner.executor.device, "bind_group", fail)
        with pytest.raises(RuntimeError, match="no more bind groups"):
            run(runner, tokens(1, 128))
    for pos in (127, 128, 129):
        assert bits(run(runner, tokens(1, pos))) == bits(run(other, tokens(1, pos)))


def test_activations_are_bound_at_their_live_size(device: Device) -> None:
    """A call of one token binds a small part of what the longest prefill binds, scratch included."""
    runner = graphs.transformer(1024, 1024, 256, 4, 2, 512, 68, 1).runner(device, fuse=True)
    executor, resident = runner.executor, runner.executor.resident

    def bound(seq: int) -> dict[tuple[str, str], int]:
        run(runner, tokens(seq, 0))
        nodes = [
            n for n in runner.graph.nodes if n.op.outs == ("out",) and n.op.out_kind == "tensor" and not n.op.alias
        ]
        found = {(n.label, "out"): resident.extent(n, "out", executor.engine.live) for n in nodes}
        scratch = {(i, name) for i, name in resident._scratch if name == "q"}
        return found | {
            (runner.graph.nodes[i].label, name): resident.extent(runner.graph.nodes[i], name, executor.engine.live)
            for i, name in scratch
        }

    most, least = bound(1024), bound(1)
    assert most.keys() == least.keys()
    assert {name for _, name in most} == {"out", "q"}
    for key, nbytes in most.items():
        large = nbytes > 1 << 18
        assert least[key] <= (1 << 16 if large else nbytes), key
    assert sum(most.values()) > 8 * sum(least.values())


def anonymous() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not say")
def test_what_is_not_reached_takes_no_memory(device: Device) -> None:
    """Where the device's memory is the process's own: of caches and activations only what is used."""
    if not device.limits.software:
        pytest.skip("a GPU has memory of its own")
    b = graphs.transformer(4096, 32768, 256, 4, 4, 512, 68, 2)
    runner = b.runner(device, fuse=True)
    assert runner.executor.resident.state_nbytes > 130_000_000
    assert sum(runner.executor.resident.memory.sizes) > 16_000_000
    before = anonymous()
    runner.call(tokens(9, 0), CallStats())
    runner.call(tokens(1, 9), CallStats())
    assert anonymous() - before < 40_000_000


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not say")
def test_calls_leave_no_memory_behind(device: Device) -> None:
    """Lengths that change, steps between them: what a call recorded is let go (wgpu keeps commands never submitted)."""
    if not device.limits.software:
        pytest.skip("a GPU has memory of its own")
    runner = long(device)

    def turns(count: int) -> int:
        for i in range(count):
            for seq, pos in ((40, 0), (1, 40), (1, 41), (1, 42), (9 + i % 3, 43), (1, 60), (1, 61)):
                run(runner, tokens(seq, pos))
        return anonymous()

    before = turns(12)
    assert turns(48) - before < 6_000_000
