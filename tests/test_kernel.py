"""Kernel files: the bindings and uniforms that are read from their text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from webgpu_run.assets import wgsl_dir
from webgpu_run.errors import RunError
from webgpu_run.gpu.device import Device
from webgpu_run.gpu.turns import SLOTS
from webgpu_run.ops import wgsl
from webgpu_run.ops.plan import Step


def test_uniforms_fit_the_adapter() -> None:
    """Every kernel's Params are within the guaranteed uniform binding size and a multiple of 16."""
    for path in sorted(wgsl_dir().glob("*.wgsl")):
        params = wgsl.load(path.stem).params
        if params is not None:
            assert params.itemsize % 16 == 0
            assert params.itemsize <= 256


def test_slots_match_the_kernels() -> None:
    assert f"array<vec4<i32>, {SLOTS // 4}>" in (wgsl_dir() / "include" / "slots.wgsl").read_text()


def test_params_layout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Offsets as WGSL's uniform address space has them: scalars by 4, vectors by 16, the struct by 16."""
    (tmp_path / "sample.wgsl").write_text(
        "struct Params { a: u32, // one\n b: f32, dims: array<vec4<u32>, 2>, c: i32, v: vec4<u32>, d: u32 }\n"
        "@group(0) @binding(1) var<storage, read> t_x: array<f32>;\n"
        "@group(0) @binding(0) var<uniform> params: Params;\n"
        "@group(0) @binding(2) var<storage, read_write> t_out: array<f32>;\n"
        "@group(0) @binding(3) var t_w: texture_2d<u32>;\n"
    )
    monkeypatch.setattr(wgsl, "wgsl_dir", lambda: tmp_path)
    made = wgsl.load.__wrapped__("sample")
    assert made.params is not None
    fields = made.params.fields
    assert fields is not None
    assert {n: f[1] for n, f in fields.items()} == {"a": 0, "b": 4, "dims": 16, "c": 48, "v": 64, "d": 80}
    assert made.params.itemsize == 96
    packed = made.pack({"a": 1, "b": 2.0, "dims": tuple(range(8)), "c": -1, "v": (9, 8, 7, 6), "d": 5})
    words = np.frombuffer(packed, np.uint32)
    assert words[0] == 1
    assert words[1:2].view(np.float32)[0] == 2.0
    assert words[4:12].tolist() == list(range(8))
    assert words[12] == 0xFFFFFFFF
    assert words[16:21].tolist() == [9, 8, 7, 6, 5]
    with pytest.raises(RunError, match="do not match"):
        made.pack({"a": 1})
    bindings = made.bindings(()) if callable(made.bindings) else made.bindings
    assert [(b.index, b.name, b.kind) for b in bindings] == [
        (0, "params", "uniform"), (1, "x", "read"), (2, "out", "write"), (3, "w", "texture"),
    ]  # fmt: skip


def test_what_a_form_does_not_use_is_not_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sample.wgsl").write_text(
        "@group(0) @binding(0) var<storage, read> t_x: array<f32>;\n"
        "@group(0) @binding(1) var<storage, read> t_bias: array<f32>;  // if BIAS\n"
        "@group(0) @binding(2) var<storage, read_write> t_out1: array<f32>;  // if OUTS > 1\n"
        "fn f(i: u32) -> f32 {\n  var y = t_x[i];\n  y += t_bias[i];  // if BIAS\n  return y;\n}\n"
    )
    monkeypatch.setattr(wgsl, "wgsl_dir", lambda: tmp_path)
    made = wgsl.load.__wrapped__("sample")
    for bias, outs, names in (
        (0, 1, ["x"]),
        (1, 1, ["x", "bias"]),
        (0, 2, ["x", "out1"]),
        (1, 3, ["x", "bias", "out1"]),
    ):
        consts = (("BIAS", bias), ("OUTS", outs))
        assert [b.name for b in made.bindings(consts)] == names
        assert ("t_bias[i]" in made.text(consts)) == bool(bias)
    with pytest.raises(RunError, match="the plan gives no OUTS"):
        made.text((("BIAS", 1),))
    with pytest.raises(RunError, match="// if OUTS needs a number"):
        made.text((("BIAS", 1), ("OUTS", "2")))


def test_step_uniform_is_stable() -> None:
    step = Step(
        "binary_vec4", (("count", 7), ("first", 0.5), ("second", 0.0), ("int_first", 0), ("int_second", 0)), (1, 1, 1)
    )
    assert step.uniform() == step.uniform() == np.array([7, 0x3F000000, *[0] * 6], np.uint32).tobytes()


def kernel_of(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **fragments: str) -> wgsl.Kernel:
    (folder / "include").mkdir(exist_ok=True)
    for name, fragment in fragments.items():
        (folder / "include" / f"{name}.wgsl").write_text(fragment)
    (folder / "sample.wgsl").write_text(text)
    monkeypatch.setattr(wgsl, "wgsl_dir", lambda: folder)
    return wgsl.load.__wrapped__("sample")


@pytest.mark.parametrize("name", sorted(path.stem for path in wgsl_dir().glob("*.wgsl")))
def test_every_kernel_compiles_with_its_default_values(name: str, device: Device) -> None:
    """What editors, naga and Tint see: the file with its includes. Loops are unrolled, because subgroupBroadcast takes
    a constant lane."""
    device.handle.create_shader_module(code=wgsl.unrolled(wgsl.load(name).source), label=name)


def test_every_fragment_is_included_by_some_kernel() -> None:
    texts = [path.read_text() for path in wgsl_dir().rglob("*.wgsl")]
    for path in (wgsl_dir() / "include").glob("*.wgsl"):
        assert any(f"// include: {path.stem}\n" in text for text in texts), path.name


def test_plan_values_replace_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = kernel_of(
        "// include: one\n// include: two\nconst K: u32 = 64;  // plan: inputs\nalias V = f32;  // plan\n"
        "fn f(a: V, b: V) -> V { return a + b; }  // plan EXPR is a + b\n"
        "// if HALF: fn g() {}\nfn h() {}  // if HALF == 0 and K > 8\n",
        tmp_path,
        monkeypatch,
        one="const ONE: u32 = 1;\n",
        two="// include: one\nconst TWO: u32 = ONE + 1;\n",
    )
    assert made.source.count("const ONE") == 1
    text = made.text((("K", 8), ("V", "vec4<f32>"), ("EXPR", "min(a, b)"), ("HALF", 1)))
    assert "const K: u32 = 8u;\nalias V = vec4<f32>;\nfn f(a: V, b: V) -> V { return min(a, b); }\nfn g() {}\n" in text
    assert "fn h" not in text
    assert "fn h" in made.text((("K", 9), ("V", "f32"), ("EXPR", "a"), ("HALF", 0)))
    with pytest.raises(RunError, match="kernel sample: the plan gives no V"):
        made.text((("K", 8), ("EXPR", "a"), ("HALF", 0)))
    with pytest.raises(RunError, match="kernel sample has no constant L"):
        made.text((("K", 8), ("L", 8), ("V", "f32"), ("EXPR", "a"), ("HALF", 0)))


@pytest.mark.parametrize(
    "line", ["let k = 64u;  // plan", "let y = a + a;  // plan EXPR is a", "let y = a;  // plan EXPR is b"]
)
def test_a_plan_line_that_cannot_be_replaced(line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="kernel sample: "):
        kernel_of(line + "\n", tmp_path, monkeypatch).text((("EXPR", "c"),))


@pytest.mark.parametrize(
    "declared",
    [
        "@group(1) @binding(0) var<storage, read> t_x: array<f32>;",
        "@binding(0) @group(0) var<storage, read> t_x: array<f32>;",
        "@group(0) @binding(X) var<storage, read> t_x: array<f32>;",
        "@group(0) @binding(0) var<storage, write> t_x: array<f32>;",
        "@group(0) @binding(0) var t_x: sampler;",
        "@group(0) @binding(0) var t_x: texture_3d<f32>;",
        "@group(0) @binding(0) var t_x: texture_storage_3d<r32float, read>;",
        "@group(0) @binding(0) var<storage> t_x: array<f32>;\n@group(0) @binding(0) var<storage> t_y: array<f32>;",
    ],
)
def test_a_binding_that_is_not_understood(declared: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"kernel sample: .*understood: "):
        kernel_of(declared + "\n", tmp_path, monkeypatch).bindings(())
