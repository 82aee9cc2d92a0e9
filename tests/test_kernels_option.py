"""`--kernels` as a user runs it: every module of a model's plans, without an adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webgpu_run.cli import options
from webgpu_run.debug import kernels
from webgpu_run.formats import pte, pte_writer
from webgpu_run.formats.vkgraph import OperatorCall, VkGraph, VkTensor
from webgpu_run.formats.vkgraph_writer import program_of
from webgpu_run.gpu.device import Device
from webgpu_run.graph.lower import planned
from webgpu_run.ops.choice import RECENT, WORDS

from helpers.command import webgpu_run
from helpers.language import FIXTURES

MODEL = FIXTURES / "tiny_dyn.pte"
NO_ADAPTER = {"VK_ICD_FILENAMES": "/nonexistent", "VK_DRIVER_FILES": "/nonexistent"}


def written(*args: str | Path) -> list[dict[str, Any]]:
    result = webgpu_run(*args, "--kernels", "-", env=NO_ADAPTER)
    assert (result.code, result.err) == (0, "")
    return [json.loads(line) for line in result.out.splitlines()]


@pytest.mark.parametrize("profile", options.PROFILES)
def test_every_dispatch_of_every_plan(profile: str) -> None:
    """One use per dispatch, with the text and bindings that the device would get."""
    found = written(MODEL, "--profile", profile)
    assert len({m["id"] for m in found}) == len({m["text"] for m in found}) == len(found)
    assert {"pick_best", "pick_draw"} <= {m["kernel"] for m in found}
    (delegate,) = pte.load(MODEL).method(None).delegates
    engine = planned(delegate, kernels.PROFILES[profile])
    ids, *rest = (engine.graph.tensors[v].max_dims for v in engine.graph.input_ids)
    for rows in (1, 5, 64, ids[1]):
        wanted: list[tuple[str, str, list[int]]] = []
        for words in (0, WORDS, 2 + RECENT, WORDS + 2 + RECENT):
            dims = [(1, rows), *rest[:-1], (words,)]
            engine.resize([np.zeros(d, np.int32) for d in dims])
            wanted += [
                (node.label, step.kernel, list(step.grid))
                for node, plan in zip(engine.graph.nodes, engine.plans, strict=True)
                for step in plan.steps
            ]
        uses = [(u["node"], m["kernel"], u["grid"]) for m in found for u in m["uses"] if u["rows"] == rows]
        assert sorted(uses) == sorted(wanted), rows


def test_the_bundled_model_into_a_file(tmp_path: Path, device: Device) -> None:
    out = tmp_path / "modules.jsonl"
    result = webgpu_run("--kernels", out, "--profile", "software", env=NO_ADAPTER)
    assert (result.code, result.out, result.err) == (0, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["modules.jsonl"]
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert {"id", "label", "kernel", "route", "enables", "text", "bindings", "uses"} == set(found[0])
    assert {m["kernel"]: m["enables"] for m in found if m["kernel"] in ("sdpa_texture", "pick_best")} == {
        "sdpa_texture": ["subgroups"],
        "pick_best": [],
    }
    assert "sdpa_texture" in {m["kernel"] for m in found}
    for module in found:
        device.handle.create_shader_module(code=module["text"], label=module["label"])
        assert [i for i, _ in module["bindings"]] == sorted({i for i, _ in module["bindings"]})


def test_options_of_the_run_apply() -> None:
    fused, written_out, halves = (
        {m["kernel"] for m in written(MODEL, *extra)} for extra in ((), ("--no-fuse",), ("--kv", "f16"))
    )
    assert "rms_norm_vec4" in written_out - fused
    assert "pick_draw" in fused - written_out
    assert halves == fused
    texts = "".join(m["text"] for m in written(MODEL, "--kv", "f16"))
    assert "pack2x16float" in texts


def not_for_text(path: Path, *, dynamic: bool) -> Path:
    """out = sigmoid(x) for x of up to [7, 129], floats in and out."""
    tensors = tuple(VkTensor("float32", (7, 129)) for _ in range(2))
    graph = VkGraph("0", (OperatorCall(0, "aten.sigmoid.default", (0, 1)),), tensors, (0,), (1,), ())
    pte_writer.write(path, program_of(graph, dynamic=dynamic))
    return path


def test_a_model_that_is_not_for_text(tmp_path: Path) -> None:
    """Its largest shape; if it is dynamic, also shorter axes."""
    (only,) = written(not_for_text(tmp_path / "static.pte", dynamic=False))
    assert [u["grid"] for u in only["uses"]] == [[15, 1, 1]]
    found = written(not_for_text(tmp_path / "dynamic.pte", dynamic=True))
    assert {u["rows"] for m in found for u in m["uses"]} >= {2, 5, 7}


def test_profiles_are_those_of_the_option() -> None:
    assert tuple(kernels.PROFILES) == options.PROFILES


def test_refusals(tmp_path: Path) -> None:
    copy = tmp_path / "copy.pte"
    copy.write_bytes(MODEL.read_bytes())
    for args, message in (
        ((copy, "--kernels", copy), "--kernels would overwrite its own input"),
        ((MODEL, "--kernels", tmp_path / "no" / "x.jsonl"), "--kernels: no such directory"),
        ((MODEL, "--profile", "gpu", "--prompt-ids", "1"), "--profile is for --kernels only"),
        ((MODEL, "--kernels", "-", "--profile", "cpu"), "--profile"),
    ):
        result = webgpu_run(*args, env=NO_ADAPTER)
        assert result.code == 2
        assert message in result.err
    assert copy.read_bytes() == MODEL.read_bytes()
