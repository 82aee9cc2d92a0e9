"""Kernel files: the bindings and uniforms that are read from their text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from webgpu_run.assets import wgsl_dir
from webgpu_run.errors import RunError
from webgpu_run.gpu.executor import SLOTS
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
    assert f"array<vec4<i32>, {SLOTS // 4}>" in wgsl.load("slots").source


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
    with pytest.raises(RunError, match="// if OUTS needs a number"):
        made.text((("BIAS", 1),))


def test_step_uniform_is_stable() -> None:
    step = Step("binary_vec4", (("count", 7), ("alpha", 0.5)), (1, 1, 1))
    assert step.uniform() == step.uniform() == np.array([7, 0x3F000000, 0, 0], np.uint32).tobytes()
