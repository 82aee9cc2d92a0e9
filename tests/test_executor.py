"""What the executor sends to the device: command streams, uniforms, uploads, memory."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webgpu_run.assets import bundled_model
from webgpu_run.errors import RunError, UnsupportedError
from webgpu_run.formats import pte, pte_writer
from webgpu_run.formats.vkgraph import IntList
from webgpu_run.formats.vkgraph_writer import program_of
from webgpu_run.gpu.adapters import list_adapters
from webgpu_run.gpu.callstats import CallStats
from webgpu_run.gpu.device import Device, open_device
from webgpu_run.gpu.native import instance
from webgpu_run.gpu.turns import SLOTS
from webgpu_run.graph.planner import Delta
from webgpu_run.ops.limits import GPU
from webgpu_run.ops.spec import load_all
from webgpu_run.runtime.model import Model
from webgpu_run.runtime.open import load
from webgpu_run.runtime.runner import Runner
from webgpu_run.shapes import Array, prod

from helpers import graphs
from helpers.command import webgpu_run
from helpers.graphs import Builder, bits, q4, run, with_limits

FIXTURES = Path(__file__).parent / "fixtures"


def tokens(seq: int, pos: int) -> list[Array]:
    return [np.arange(seq, dtype=np.int32)[None] % 60, np.array([pos], np.int32)]


def stream(runner: Runner) -> list[tuple[Any, ...]]:
    """The recorded commands: pipeline, bind group, grid, uniform bytes."""
    executor = runner.executor
    return [
        (
            c.objects[0],
            c.objects[1],
            c.step.grid,
            c.params_at,
            executor.arena.data[c.params_at :][: len(c.step.uniform())].tobytes(),
        )
        for c in executor.commands()
    ]


class Counts:
    """How often the device was asked for something since the last look."""

    def __init__(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: dict[str, int] = {}
        for name in ("buffer", "write", "texture", "pipeline", "bind_group"):
            monkeypatch.setattr(device, name, self._counting(name, getattr(device, name)))

    def _counting(self, name: str, f: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] = self.calls.get(name, 0) + 1
            return f(*args, **kwargs)

        return counted

    def taken(self) -> dict[str, int]:
        out, self.calls = self.calls, {}
        return out


def test_static_graph_repeats_itself(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first two calls: no plan, uniform or allocation, the same command stream; only inputs are written."""
    runner = graphs.residual().runner(device)
    x = [np.random.default_rng(1).standard_normal((1, 17, 12)).astype(np.float32)]
    first = bits(run(runner, x))
    run(runner, x)
    recorded, commands = stream(runner), runner.executor.commands()
    planned, allocated = runner.engine.planned, device.allocated
    counts = Counts(device, monkeypatch)
    for _ in range(4):
        stats = CallStats()
        assert bits(runner.call(x, stats)) == first
        assert runner.executor.commands() is commands
        assert stream(runner) == recorded
        assert (stats.arena_bytes, stats.upload_bytes, stats.read_bytes) == (0, 17 * 12 * 4, 17 * 12 * 4)
        assert counts.taken() == {"write": 1}
    assert (runner.engine.planned, device.allocated) == (planned, allocated)


def test_static_file_repeats_itself(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single-token model: only what the position decides changes from call to call."""
    model = load(FIXTURES / "tiny_static.pte", device=device)
    for pos in (0, 1):
        model.run([np.array([[pos + 3]]), np.array([pos])])
    model.run([np.array([[3]]), np.array([1])])
    runner = model.runners[0]
    recorded, planned, allocated = stream(runner), runner.engine.planned, device.allocated
    counts = Counts(device, monkeypatch)
    model.run([np.array([[7]]), np.array([1])])
    assert stream(runner) == recorded
    assert (runner.engine.planned, device.allocated, model.stats.arena_bytes) == (planned, allocated, 0)
    inputs = len(runner.executor.device_inputs) - 1  # there is nothing to write of how to choose
    assert counts.taken() == {"write": inputs}
    model.run([np.array([[7]]), np.array([2])])
    assert [c[:3] for c in stream(runner)] == [c[:3] for c in recorded]
    assert counts.taken() == {"write": inputs + 1}, "one more: the arena, for the position"
    assert device.allocated == allocated


def test_resizing_allocates_nothing(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers never move: once each kernel has been seen, any length is a matter of uniforms and grids."""
    runner = graphs.transformer().runner(device)
    lengths = (24, 1, 7, 2, 23, 12)
    for n in lengths * 2:
        run(runner, tokens(n, 0))
    allocated, groups = device.allocated, len(runner.executor.stream._bind_groups)
    counts = Counts(device, monkeypatch)
    for n in (*lengths, *lengths[::-1], 22, 11, 8):
        stats = CallStats()
        runner.call(tokens(n, 0), stats)
        assert (stats.upload_bytes, stats.read_bytes) == (4 * n, 4 * 68), "live bytes only"
    seen = counts.taken()
    assert device.allocated == allocated
    assert seen.get("buffer", 0) == seen.get("texture", 0) == seen.get("bind_group", 0) == 0
    assert len(runner.executor.stream._bind_groups) == groups
    assert seen["write"] <= 2 * 15


def test_arena_is_that_of_a_fresh_graph(device: Device) -> None:
    """Every uniform that a dispatch reads is byte for byte the one it would have, had nothing run before."""
    runner = graphs.transformer().runner(device)
    for n, pos in ((24, 0), (1, 24), (9, 25), (24, 3), (2, 38), (1, 0), (24, 16)):
        run(runner, tokens(n, pos))
        fresh = graphs.transformer().runner(device)
        run(fresh, tokens(n, pos))
        assert [c[2:] for c in stream(runner)] == [c[2:] for c in stream(fresh)]
        assert runner.executor.arena.data[: 4 * SLOTS].tobytes() == fresh.executor.arena.data[: 4 * SLOTS].tobytes()
        on_device = device.handle.queue.read_buffer(runner.executor.arena.buffer)
        assert bytes(on_device)[: runner.executor.arena.data.nbytes] == runner.executor.arena.data.tobytes()


def test_empty_dispatches_keep_their_neighbours_uniforms(device: Device) -> None:
    """A step without workgroups is left out; the next one still reads its own uniforms."""
    op = load_all()["aten.cat.default"]
    b = Builder()
    xs = [b.input((4, 3)) for _ in range(3)]
    b.output(b.call("aten.cat.default", tuple(xs), 0))
    runner = b.runner(device)
    data = [np.full((4, 3), i, np.float32) for i in (1, 2, 3)]
    assert op.reference is not None
    run(runner, data)
    plan = runner.engine.plans[0]
    idle = dataclasses.replace(plan.steps[0], grid=(0, 1, 1))
    runner.executor.stream.prepare(Delta({0: dataclasses.replace(plan, steps=(idle, *plan.steps[1:]))}, {}, {}))
    runner.executor.stream.commit()
    stats = CallStats()
    runner.executor.make_ready(data, stats)
    (out,) = runner.executor.execute(stats)
    assert np.array_equal(out[4:], np.concatenate(data[1:]))


def test_uniforms_of_a_node_do_not_overlap(device: Device) -> None:
    runner = graphs.transformer().runner(device)
    run(runner, tokens(24, 0))
    ranges = sorted((c.params_at, c.params_at + len(c.step.uniform())) for c in runner.executor.commands())
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(ranges))
    assert ranges[0][0] >= 4 * SLOTS


def test_too_many_positions_are_refused(device: Device) -> None:
    b = Builder()
    cache = b.constant(np.zeros((1, 128, 1, 4), np.float32))
    x = b.input((1, 1, 1, 4))
    for pos in range(SLOTS + 1):
        b.call("llama.update_cache.default", x, cache, pos, out=(1,))
    b.output(b.call("aten.sigmoid.default", x))
    with pytest.raises(UnsupportedError, match=f"{SLOTS + 1}"):
        b.runner(device)


def test_every_route_has_room_for_its_uniforms(device: Device) -> None:
    """Also where uniforms lie 256 bytes apart, as on most GPUs: a short prompt may need more dispatches than a long."""
    coarse = with_limits(device, uniform_align=256, profile=GPU)
    model = Model(pte.load(bundled_model()), coarse)
    for count, position in ((7, 0), (1, 7), (33, 8), (1, 41), (2, 600)):
        assert len(model.finish(model.start([1] * count, position))) == 1


def test_more_dispatches_than_room_is_refused(device: Device) -> None:
    runner = graphs.residual().runner(device)
    run(runner, [np.zeros((1, 17, 12), np.float32)])
    plan = runner.engine.plans[0]
    with pytest.raises(RunError, match="room"):
        runner.executor.stream.prepare(Delta({0: dataclasses.replace(plan, steps=plan.steps * 99)}, {}, {}))
    run(runner, [np.zeros((1, 17, 12), np.float32)])


# -- memory ------------------------------------------------------------------------------------------------------------


def live_set(runner: Runner) -> int:
    """The most bytes of activations that are alive at one node, inputs and outputs throughout."""
    graph = runner.graph
    size = {v: 4 * prod(t.max_dims) for v, t in graph.tensors.items() if t.root == v and t.constant < 0}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for node in graph.nodes:
        for v in (*node.tensors.values(), *node.outs):
            root = graph.tensors[v].root if v in graph.tensors else -1
            if root in size:
                first.setdefault(root, node.index)
                last[root] = node.index
    ends = {graph.tensors[v].root for v in (*graph.input_ids, *graph.output_ids)}
    return max(
        sum(n for v, n in size.items() if v in ends or first.get(v, -1) <= i <= last.get(v, -1))
        for i in range(len(graph.nodes))
    )


def wide(limits_fuse: bool, device: Device) -> tuple[Runner, Builder]:
    """A model in which weights and activations weigh as in a small real one."""
    b = graphs.transformer(64, 128, 256, 4, 2, 512, 2048, 4)
    return b.runner(device, fuse=limits_fuse), b


@pytest.mark.parametrize("fuse", [True, False])
def test_device_memory_is_little_more_than_what_must_be_there(fuse: bool, device: Device) -> None:
    before = device.allocated
    runner, b = wide(fuse, device)
    for n in (64, 1, 9):
        run(runner, tokens(n, 0))
    used = device.allocated - before
    weights = sum(len(d) for d in b.data)  # the caches are among them
    need = weights + live_set(runner)
    assert used <= 1.2 * need, (
        f"{used:,} bytes for {weights:,} of weights and caches and {need - weights:,} live at once"
    )


@pytest.mark.parametrize("name", ["tiny_dyn", "tiny_qwen3"])
def test_activations_share_memory(name: str, device: Device) -> None:
    """Activations take little more than what is alive at once; without sharing they would take far more."""
    delegate = pte.load(FIXTURES / f"{name}.pte").method(None).delegates[0]
    runner = Runner(delegate, device, fuse=False)
    sizes: Sequence[int] = runner.executor.resident.memory.sizes
    apart = sum(4 * prod(t.max_dims) for v, t in runner.graph.tensors.items() if t.root == v and t.constant < 0)
    assert sum(n - 1024 for n in sizes) <= 1.5 * live_set(runner)
    assert sum(sizes) < apart / 3


def test_shared_memory_is_never_alive_twice() -> None:
    """Two tensors of one buffer have lifetimes apart, for every fixture that the runtime reads."""
    from webgpu_run.graph.graph import Graph
    from webgpu_run.graph.memory import Memory

    for name in ("tiny_dyn", "tiny_qwen3", "tiny_qwen25", "tiny_full"):
        delegate = pte.load(FIXTURES / f"{name}.pte").method(None).delegates[0]
        assert delegate.graph is not None
        graph = Graph(delegate.graph, delegate.constant)
        sizes = {v: 4 * prod(t.max_dims) for v, t in graph.tensors.items() if t.root == v and t.constant < 0}
        memory = Memory(graph, sizes)
        spans: dict[int, list[int]] = {}
        for node in graph.nodes:
            for v in (*node.tensors.values(), *node.outs):
                if v in graph.tensors and graph.tensors[v].root in memory.place:
                    spans.setdefault(graph.tensors[v].root, []).append(node.index)
        ends = {graph.tensors[v].root for v in (*graph.input_ids, *graph.output_ids)}
        alive = {v: (0, len(graph.nodes)) if v in ends else (min(s), max(s)) for v, s in spans.items()}
        for a in alive:
            assert memory.sizes[memory.place[a]] >= sizes[a]
            for b in alive:
                if a < b and memory.place[a] == memory.place[b]:
                    assert alive[a][1] < alive[b][0] or alive[b][1] < alive[a][0], (name, a, b)


def test_loading_holds_the_weights_once(tmp_path: Path) -> None:
    """What is on its way to the device is not kept: the peak grows by the weights and little else."""
    w, scales = q4(np.random.default_rng(1), 4096, 4096)
    peaks, files = [], []
    for count in (2, 14):
        b = Builder()
        x = b.input((1, 1, 4096))
        for i in range(count):
            weight = b.constant(w ^ np.uint8(i))  # equal ones would be kept once
            x = b.call("et_vk.linear_q4gsw.default", x, weight, b.constant(scales), 32, None, out=(1, 1, 4096))
        b.output(x)
        path = tmp_path / f"{count}.pte"
        pte_writer.write(path, program_of(b.vk(), b.data))
        np.save(tmp_path / "x.npy", np.ones((1, 1, 4096), np.float32))
        result = webgpu_run(path, "--input", tmp_path / "x.npy", "--output", tmp_path / "out")
        assert result.code == 0, result.err
        peaks.append(result.peak)
        files.append(path.stat().st_size)
    assert files[1] - files[0] > 120_000_000
    assert peaks[1] - peaks[0] < (files[1] - files[0]) * 1.15  # a software adapter's memory is ours too


def test_more_dispatches_than_a_query_set_has_room_for_are_all_timed(device: Device) -> None:
    b = Builder()
    x = b.input((4,))
    for _ in range(2100):
        x = b.call("aten.sigmoid.default", x)
    b.output(x)
    stats = CallStats()
    b.runner(device).call([np.ones(4, np.float32)], stats, timed=True)
    assert [d.node for d in stats.timed] == list(range(2100))
    begins = [d.begin_ns for d in stats.timed]
    assert begins == sorted(begins)
    assert stats.gpu_ns == sum(d.gpu_ns for d in stats.timed) > 0


def test_one_instance_serves_every_device(device: Device) -> None:
    """Each would load the driver again, with threads of its own."""
    first = instance()
    for _ in range(2):
        open_device()
        assert instance() is first
    list_adapters()
    second = instance()
    list_adapters()
    open_device()
    assert instance() is second


def test_kernels_are_compiled_before_the_call(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A software driver compiles what first runs: every kernel of a call has run before it, for no workgroups, once."""
    mine = with_limits(device, software=True)
    mine.compiled = set()
    seen: list[list[Any]] = []
    real = mine.call

    def watched(part: Any) -> Any:
        before, dispatches, after = part
        seen.append(list(dispatches))
        return real((before, seen[-1], after))

    monkeypatch.setattr(mine, "call", watched)
    runner = graphs.residual().runner(mine)
    x = np.ones((1, 17, 12), np.float32)
    for _ in range(2):
        run(runner, [x])
    first, call, again = seen
    assert all(d[2:6] == (0, 0, 0, ()) for d in first)
    assert {d[0] for d in first} == {d[0] for d in call}
    assert call == again
    assert all(0 not in d[2:5] for d in call)


def test_a_convolution_whose_weight_is_computed(device: Device) -> None:
    """Weight norm computes weights in the graph: they can't be packed at load."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(dims).astype(np.float32) for dims in ((1, 3, 9), (8, 3, 3)))
    b = Builder()
    given, weight = b.input(x.shape), b.input(w.shape)
    doubled = b.call("aten.add.Tensor", weight, weight, 1, out=w.shape)
    lists = [b.value(IntList(item)) for item in ((1,), (1,), (1,), (0,))]
    args = (*lists[:3], False, lists[3], 1)
    b.output(b.call("aten.convolution.default", given, doubled, None, *args, out=(1, 8, 9)))
    runner = b.runner(device)
    (out,) = run(runner, [x, w])
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1)))
    want = sum(np.einsum("oi,bin->bon", 2.0 * w[:, :, tap], padded[:, :, tap : tap + 9]) for tap in range(3))
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)
    assert runner.engine.plans[-1].route == "direct"


def test_tensors_without_elements(device: Device) -> None:
    """A batch of zero rows: nothing is dispatched, and the output has the right dims."""
    b = Builder()
    given, other = b.input((0, 8)), b.input((2, 8))
    both = b.call("aten.cat.default", (given, other), 0, out=(2, 8))
    b.output(b.call("aten.add.Tensor", given, given, 1, out=(0, 8)), both)
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    added, joined = run(b.runner(device), [x[:0], x])
    assert added.shape == (0, 8)
    np.testing.assert_array_equal(joined, x)
