"""`--check-resize`: every call also runs on a graph built at exactly its live shapes; plans and bits must be equal."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ..errors import CheckError
from ..formats.vkgraph import VkTensor
from ..gpu.callstats import CallStats
from ..gpu.executor import Executor
from ..graph.graph import Graph
from ..graph.planner import Engine
from ..runtime.model import Model
from ..runtime.runner import Runner, Visitor
from ..shapes import Array, Dims

KEEP = 2  # most fresh builds at a time: each has its own copy of the weights


class FreshBuilds:
    """A visitor that compares each call with a fresh build; `inner`, or else the executor, runs the call itself."""

    def __init__(self, model: Model, inner: Visitor | None = None) -> None:
        self.model, self.inner = model, inner
        self.compared = 0
        self._builds: dict[tuple[int, tuple[Dims, ...]], _Fresh] = {}

    def __call__(self, runner: Runner, inputs: Sequence[Array], stats: CallStats) -> list[Array]:
        key = (id(runner), tuple(runner.engine.live.values()))
        fresh = self._builds.pop(key, None) or _Fresh(runner)
        while len(self._builds) >= KEEP:
            self._builds.pop(next(iter(self._builds)))
        self._builds[key] = fresh
        expected_outs = fresh.run(runner, inputs)
        outs = self.inner(runner, inputs, stats) if self.inner else runner.executor.execute(stats)
        fresh.compare(runner)
        for k, (out, expected) in enumerate(zip(outs, expected_outs, strict=True)):
            same_bits(out, expected, f"output {k}")
        self.compared += 1
        return outs


class _Fresh:
    """A graph whose largest shapes are the live shapes of another runner's graph."""

    def __init__(self, runner: Runner) -> None:
        live, vk = runner.engine.live, runner.graph.vk
        values = tuple(
            dataclasses.replace(v, dims=live[i]) if isinstance(v, VkTensor) and not runner.graph.is_constant(i) else v
            for i, v in enumerate(vk.values)
        )
        self.graph = Graph(dataclasses.replace(vk, values=values), runner.graph.const_data)
        self.engine = Engine(self.graph, runner.engine.limits)
        self.executor = Executor(self.engine, runner.executor.device)
        self.executor.skip(frozenset((runner.pick.index,) if runner.pick else ()))

    def run(self, runner: Runner, inputs: Sequence[Array]) -> list[Array]:
        """Run the call from a copy of the runner's state. The plans of both graphs must be equal."""
        stats = CallStats()
        self.executor.make_ready(inputs, stats)
        for node, plan, ours in zip(runner.graph.nodes, runner.engine.plans, self.engine.plans, strict=True):
            if plan != ours:
                fields = [f.name for f in dataclasses.fields(plan) if getattr(plan, f.name) != getattr(ours, f.name)]
                raise CheckError(f"{node.label}: resized and freshly built plans differ in {', '.join(fields)}")
        device = runner.executor.device
        encoder = device.handle.create_command_encoder()
        for source, target in zip(runner.executor.resident.state, self.executor.resident.state, strict=True):
            encoder.copy_buffer_to_buffer(source, 0, target, 0, min(source.size, target.size))
        for source, target in zip(runner.executor.resident.images, self.executor.resident.images, strict=True):
            size = source.texture.size
            encoder.copy_texture_to_texture({"texture": source.texture}, {"texture": target.texture}, size)
        device.submit(encoder)
        return self.executor.execute(stats)

    def compare(self, runner: Runner) -> None:
        """Check that both graphs left the same state."""
        device = runner.executor.device
        for k, (ours, other) in enumerate(
            zip(self.executor.resident.state, runner.executor.resident.state, strict=True)
        ):
            a, b = (np.frombuffer(device.read(x, x.size), np.float32) for x in (other, ours))
            same_bits(a, b, f"state {k}")
        images = zip(self.executor.resident.images, runner.executor.resident.images, strict=True)
        for k, (ours, other) in enumerate(images):
            kind = np.dtype(np.float16 if ours.texture.format == "rgba16float" else np.float32)
            texels = [np.frombuffer(device.read_image(x), kind) for x in (other, ours)]
            same_bits(texels[0], texels[1], f"cache {k}")


def same_bits(out: Array, expected: Array, what: str) -> None:
    """CheckError unless every bit is equal."""
    if out.shape != expected.shape:
        raise CheckError(f"{what} has dims {list(out.shape)} after a resize, {list(expected.shape)} when built fresh")
    a, b = (
        np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(max(x.size, 1), -1) if x.size else x
        for x in (out, expected)
    )
    if out.size and (differs := (a != b).any(-1)).any():
        at = int(np.argmax(differs))
        raise CheckError(
            f"{what}: {int(differs.sum())} of {out.size} numbers differ between resized and freshly built, "
            f"the first at {at}: {out.reshape(-1)[at]!r} and {expected.reshape(-1)[at]!r}"
        )
