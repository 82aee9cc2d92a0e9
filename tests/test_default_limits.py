"""Plans fit the limits that every WebGPU implementation guarantees, for every profile, and kernels end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from webgpu_run.assets import bundled_model, wgsl_dir
from webgpu_run.debug.kernels import _shapes
from webgpu_run.errors import RunError, ShapeError
from webgpu_run.formats import pte
from webgpu_run.graph import budget
from webgpu_run.graph.lower import planned
from webgpu_run.ops import wgsl, wgsl_types
from webgpu_run.ops.limits import GPU, PLAIN, SHORT, SOFTWARE, WIDE, Limits
from webgpu_run.ops.plan import Step

from helpers.modules import planned_cases

# Limits() are WebGPU's defaults, but for these, which a plan does not see.
STORAGE_BUFFERS, UNIFORM_BUFFERS, STORAGE_TEXTURES, SAMPLED_TEXTURES, BUFFER = 8, 12, 4, 16, 256 << 20
SHAPES = [
    replace(GPU, name=f"gpu-{lanes}x{splits}", lanes=lanes, splits=splits) for lanes, splits in ((8, 16), (32, 4))
]
KINDS = {
    f"{profile.name}{'-subgroups' * subgroups}-{kv}": Limits(profile=profile, subgroups=subgroups, kv=kv)
    for profile in (GPU, *SHAPES, SOFTWARE, SHORT, WIDE, PLAIN)
    for subgroups in (False, True)
    for kv in ("f32", "f16")
    if subgroups == profile.shuffle or profile is GPU
    if kv == "f32" or profile in (GPU, SOFTWARE, SHORT, WIDE)
}
MODELS = [*sorted((Path(__file__).parent / "fixtures").glob("*.pte")), bundled_model()]


def check(step: Step, what: str) -> None:
    kernel = wgsl.load(step.kernel)
    invocations, shared = kernel.workgroup(step.consts)
    kinds = [b.kind.split()[0] for b in kernel.bindings(step.consts)]
    seen = f"{what}, {step.kernel}: {invocations} invocations, {shared} bytes, {kinds}, {step.grid}"
    assert invocations <= 256, seen
    assert shared <= 16384, seen
    assert kinds.count("read") + kinds.count("write") <= STORAGE_BUFFERS, seen
    assert kinds.count("uniform") <= UNIFORM_BUFFERS, seen
    assert kinds.count("image") <= STORAGE_TEXTURES, seen
    assert kinds.count("texture") <= SAMPLED_TEXTURES, seen
    assert max(step.grid) <= 65535, seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_models_fit(path: Path, kind: str) -> None:
    """The model is not refused, and each of its dispatches fits at every shape."""
    for delegate in pte.load(path).method(None).delegates:
        for fuse in (True, False):
            engine = planned(delegate, KINDS[kind], fuse=fuse)
            budget.check([engine], KINDS[kind], BUFFER)
            for inputs in _shapes(engine, dynamic=True):
                try:
                    engine.resize(inputs)
                except ShapeError:
                    continue  # a static model
                for node, plan in zip(engine.graph.nodes, engine.plans, strict=True):
                    for step in plan.steps:
                        check(step, f"{node.label} {plan.route}")


@pytest.mark.parametrize("kind", KINDS)
def test_op_cases_fit(kind: str) -> None:
    checked = 0
    for label, plan in planned_cases(KINDS[kind]):
        for step in plan.steps:
            check(step, label)
            checked += 1
    assert checked > 300


def test_workgroup_memory_of_structs_and_aliases() -> None:
    """By WGSL's rules of size and alignment; a variable takes whole 16 bytes."""
    text = (
        "const N: u32 = 256;\nalias Sums = array<vec4<f32>, 4>;\nstruct Part { acc: Sums, square: f32 }\n"
        "struct Small { a: f32, v: vec3<f32>, b: u32 }\n"
        "var<workgroup> parts: array<Part, N>;\nvar<workgroup> small: array<Small, 3>;\n"
        "var<workgroup> one: atomic<u32>;\n"
        "@compute @workgroup_size(8, 4)\nfn main() {}\n"
    )
    assert wgsl_types.workgroup(text) == (32, 80 * 256 + 32 * 3 + 16)
    with pytest.raises(RunError, match="the size of the type mat4x4<f32> is not known"):
        wgsl_types.workgroup("var<workgroup> m: mat4x4<f32>;")


def loops(text: str) -> Iterator[tuple[str, set[str]]]:
    """Conditions of loops, and names in scope that hold a value read from memory."""
    loaded = r"(?:\bt_\w+\[|\batomicLoad\(|\btextureLoad\()"
    names = set()
    for name, value in re.findall(r"\b(?:let|var)\s+(\w+)\s*(?::[^=;]+)?=([^;]+);", text):
        if re.search(loaded, value) and not re.match(r"\s*min\([^;]*\bparams\.", value):
            names.add(name)
    for condition in re.findall(r"\bfor\s*\([^;]*;([^;]*);", text):
        yield condition, names
    assert not re.search(r"\b(?:while|loop)\b", text)


@pytest.mark.parametrize("path", sorted(wgsl_dir().rglob("*.wgsl")), ids=lambda p: p.stem)
def test_loops_end_at_what_the_host_set(path: Path) -> None:
    """At a constant, a uniform, or a value from memory that is clamped to one of them."""
    for condition, names in loops(wgsl_types.without_comments(path.read_text())):
        clamped = re.sub(r"min\([^;]*, params\.\w+\)", "", condition)
        assert not re.search(r"\bt_\w+\[|Load\(", clamped), condition
        assert not names & set(re.findall(r"\w+", clamped)), condition
