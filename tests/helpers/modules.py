"""Every shader module of the tests: of model files, of the cases of all ops, and of shapes of larger models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from webgpu_run.assets import bundled_model
from webgpu_run.debug.kernels import PROFILES, Module, modules
from webgpu_run.errors import RunError
from webgpu_run.formats import pte
from webgpu_run.graph.planner import Engine
from webgpu_run.ops import wgsl
from webgpu_run.ops.limits import Limits
from webgpu_run.ops.plan import Plan

from helpers import opcheck
from helpers.cases import all_cases
from helpers.graphs import transformer

FIXTURES = Path(__file__).parents[1] / "fixtures"
LLAMA_1B = {"dim": 2048, "heads": 32, "kv_heads": 8, "hidden": 8192, "vocab": 128256, "context": 2048, "seq": 512}


def shape_method(sizes: dict[str, int], layers: int = 1) -> Any:
    """A method with one delegate: a Llama of these sizes with blank weights, as `modules` takes it."""
    b = transformer(**sizes, layers=layers, blank=True)
    delegate = SimpleNamespace(graph=b.vk(), constant=b.bytes_of, id="VulkanBackend")
    tokens = pte.Tensor(dtype="int64", dims=(1, sizes["seq"]), dynamism="bound")
    return SimpleNamespace(delegates=[delegate], inputs=[0], values=[tokens])


def of_models(profile: str, paths: Sequence[Path] = ()) -> Iterator[Module]:
    """Of all fixtures, the bundled model, the files at `paths`, and a Llama of 1B parameters; fused and as written."""
    methods = [pte.load(path).method(None) for path in (*sorted(FIXTURES.glob("*.pte")), bundled_model(), *paths)]
    for method in (*methods, shape_method(LLAMA_1B)):
        for limits, fuse in ((PROFILES[profile], True), (replace(PROFILES[profile], kv="f16"), True)):
            yield from modules(method, limits, fuse=fuse)
        yield from modules(method, PROFILES[profile], fuse=False)


def planned_cases(limits: Limits) -> Iterator[tuple[str, Plan]]:
    """(label, plan) of every op case that such a machine can run, at every live shape."""
    for label, _, op, case in all_cases():
        one = opcheck.build(op, case)
        try:
            engine = Engine(one.builder.graph(), limits)
        except RunError:
            continue  # no kernel for it there
        for live in opcheck.lives(case):
            engine.resize(one.inputs(opcheck.arrays(op, case, live)))
            yield label, engine.plans[-1]


def of_cases(limits: Limits) -> Iterator[Module]:
    """Of every plan of every op case that such a machine can run."""
    for label, plan in planned_cases(limits):
        for step in plan.steps:
            kernel = wgsl.load(step.kernel)
            text, bindings = kernel.text(step.consts), kernel.bindings(step.consts)
            uses = [{"node": label, "rows": 0, "grid": list(step.grid)}]
            yield Module(step.kernel, plan.route, text, bindings, uses)
