"""Dispatches, workgroups and bytes of one decode step from plans alone, for models and machines that are not here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from webgpu_run.debug.kernels import PROFILES
from webgpu_run.graph.lower import planned
from webgpu_run.graph.planner import Engine
from webgpu_run.ops.plan import Step
from webgpu_run.shapes import prod

from helpers.modules import LLAMA_1B, shape_method

SHAPES = {
    "SmolLM2 135M": ({"dim": 576, "heads": 9, "kv_heads": 3, "hidden": 1536, "vocab": 49152}, 30),
    "Llama 3.2 1B": ({k: v for k, v in LLAMA_1B.items() if k not in ("context", "seq")}, 16),
    "Qwen2.5 7B": ({"dim": 3584, "heads": 28, "kv_heads": 4, "hidden": 18944, "vocab": 152064}, 28),
}
CONTEXT, SEQ = 2048, 512


@dataclass(frozen=True, slots=True)
class Counts:
    dispatches: int = 0
    workgroups: int = 0
    nbytes: int = 0

    def plus(self, other: Counts, times: int) -> Counts:
        return Counts(
            self.dispatches + times * other.dispatches,
            self.workgroups + times * other.workgroups,
            self.nbytes + times * other.nbytes,
        )


def decode_steps(engine: Engine) -> list[Step]:
    """The dispatches of one token at position 0."""
    dims = [engine.graph.tensors[v].max_dims for v in engine.graph.input_ids]
    engine.resize([np.zeros((1, 1), np.int32), np.zeros(1, np.int32), *(np.zeros(d, np.int32) for d in dims[2:])])
    return [step for plan in engine.plans for step in plan.steps if not (step.idle and step.idle.below)]


def step_of(sizes: dict[str, int], layers: int, profile: str) -> Counts:
    """One step of a model with so few layers that it is quickly planned; the device chooses the token."""
    (delegate,) = shape_method({**sizes, "context": CONTEXT, "seq": SEQ}, layers).delegates
    steps = decode_steps(planned(delegate, PROFILES[profile]))
    return Counts(len(steps), sum(prod(s.grid) for s in steps), sum(s.work[0] for s in steps))


def table() -> Iterator[str]:
    """The lines of the Markdown table."""
    yield "| model | profile | dispatches | per layer | workgroups | per layer | MB |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for name, (sizes, layers) in SHAPES.items():
        for profile in PROFILES:
            one, two = (step_of(sizes, n, profile) for n in (1, 2))
            layer = two.plus(one, -1)
            step = one.plus(layer, layers - 1)
            yield (
                f"| {name} | {profile} | {step.dispatches} | {layer.dispatches} | {step.workgroups:,} "
                f"| {layer.workgroups:,} | {step.nbytes / 1e6:,.1f} |"
            )
