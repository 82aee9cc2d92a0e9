"""What a run reports: resizes, timings, a timeline, checks. Real processes, real files."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from webgpu_run.runtime.open import load

from helpers.command import HERE, execute, webgpu_run
from helpers.language import FIXTURES

MODEL = FIXTURES / "tiny_dyn.pte"
PROMPT = ("--prompt-ids", "5,6,7,8", "-n", "4")
WIDE = {"COLUMNS": "160"}


def test_trace_resize_as_a_tree() -> None:
    result = webgpu_run(MODEL, *PROMPT, "--trace-resize", env=WIDE)
    assert result.code == 0
    lines = result.err.splitlines()
    assert lines[0].startswith("call 1 · prefill 4 tok @ 0 · ")
    assert "input 0  int64  max [1, 127] → live [1, 4]  (was [1, 127])" in lines[1]
    assert any("layers 0–1, each: " in line for line in lines)
    assert any(re.search(r"gemm\S* → \S*gemv", line) for line in lines)  # a route that switched
    quiet = [line for line in lines if line.startswith("call") and " 0 of " in line]
    assert len(quiet) == 2
    assert all(" skipped · " in line and " B of uniforms" in line for line in quiet)


def test_trace_resize_many_calls_are_one_line() -> None:
    result = webgpu_run(MODEL, "--prompt-ids", "5,6", "-n", "9", "--trace-resize", env=WIDE)
    assert any(line.startswith("calls 3–9 · decode 1 tok @ 3–9 · each: 0 of ") for line in result.err.splitlines())


def test_trace_resize_for_programs() -> None:
    result = webgpu_run(MODEL, *PROMPT, "--trace-resize=json", "--stats", "json")
    first, second, third, _, stats = (json.loads(line) for line in result.err.splitlines())
    assert (first["phase"], first["tokens"], first["inputs"][0]["live"]) == ("prefill", 4, [1, 4])
    linear = next(n for n in first["nodes"] if n["op"] == "linear_q4gsw")
    assert linear["max"][1] == 127
    assert linear["live"][1] == 4
    assert linear["uniform_bytes"] > 0
    assert any(n["was"] for n in second["nodes"])
    assert all(n["value"] is not None for n in third["nodes"])
    assert stats["resize"]["planned"] >= first["planned"] + second["planned"]
    assert stats["resize"]["calls"] == 4
    # Every line is JSON, whatever else a run tells.
    result = webgpu_run(FIXTURES / "tiny_fp16.pte", *PROMPT, "--trace-resize=json", "--temp", "1", "-v")
    *_, last = (json.loads(line) for line in result.err.splitlines())
    assert last["seed"] is not None


@pytest.mark.parametrize("by", ["op", "dispatch", "layer"])
def test_timings(by: str) -> None:
    result = webgpu_run(MODEL, *PROMPT, "--timings", by, env=WIDE)
    assert result.code == 0
    assert "prefill: 4 tok, one call" in result.err
    assert "decode: 3 tok, 3 calls, mean of one" in result.err
    assert result.err.count("of wall; planning and compiling") == 2
    assert {"op": "linear_q4gsw", "dispatch": "0 embedding_q4gsw#", "layer": "layer 1"}[by] in result.err
    for column in ("µs", "share", "GB/s", "GFLOP/s"):
        assert column in result.err


def test_timeline_opens_in_perfetto(tmp_path: Path) -> None:
    result = webgpu_run(MODEL, *PROMPT, "--trace", tmp_path / "out.json", "-q")
    assert (result.code, result.err) == (0, "")
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert {e["cat"] for e in spans} == {"host", "gpu"}
    assert [e["name"] for e in spans if e["name"].startswith(("prefill", "decode"))] == ["prefill 4"] + ["decode 1"] * 3
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in spans)
    gpu = next(e for e in spans if e["cat"] == "gpu")
    assert {"kernel", "route", "live", "grid"} <= set(gpu["args"])
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


@pytest.mark.parametrize("extra", [(), ("--no-fuse",)], ids=["fused", "as written"])
def test_check_and_check_resize_pass(extra: tuple[str, ...]) -> None:
    result = webgpu_run(MODEL, *PROMPT, "--check", "--check-resize", "--nan-check", "--stats", "json", *extra)
    assert result.code == 0, result.err
    stats = json.loads(result.err.splitlines()[-1])
    assert stats["check"]["compared"] > 40
    assert max(stats["check"]["worst_nmse"].values()) < 1e-9
    assert stats["check_resize"] == {"calls": 4}


def copied(tmp_path: Path, kernel: str, old: str, new: str) -> dict[str, str]:
    """The environment of a copy of the package with one line of a kernel changed."""
    for name in ("webgpu_run", "wgsl"):
        shutil.copytree(HERE.parent / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "bundled"))
    path = tmp_path / "wgsl" / f"{kernel}.wgsl"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return {"PYTHONPATH": str(tmp_path)}


def test_check_names_the_first_op_that_is_off(tmp_path: Path) -> None:
    env = copied(tmp_path, "rope", "x.x * c - x.y * s", "x.x * c + x.y * s")
    result = execute(sys.executable, "-P", "-m", "webgpu_run", MODEL, *PROMPT, "--check", "--no-fuse", env=env)
    assert result.code == 7
    assert "rotary" in result.err
    assert "is off: GPU " in result.err


def test_dump(tmp_path: Path) -> None:
    result = webgpu_run(MODEL, *PROMPT, "--no-fuse", "--dump", f"embedding_q4gsw#9999={tmp_path / 'x.npy'}")
    assert result.code == 2
    assert "the graph has no embedding_q4gsw#9999" in result.err
    assert "--no-fuse" not in result.err
    name = result.err.splitlines()[1].split("did you mean ")[1].split()[0].rstrip("?")
    result = webgpu_run(
        *(MODEL, *PROMPT, "--no-fuse", "-q"),
        *("--dump", f"{name}={tmp_path / 'prefill.npy'}", "--dump", f"{name}@2={tmp_path / 'decode.npy'}"),
    )
    assert (result.code, result.err) == (0, "")
    assert np.load(tmp_path / "prefill.npy").shape == (1, 4, 128)
    assert np.load(tmp_path / "decode.npy").shape == (1, 1, 128)


def test_dump_names_ops_of_the_graph_that_runs(tmp_path: Path) -> None:
    """Fusion numbers them anew: the numbers of --inspect ops would name others."""
    result = webgpu_run(MODEL, *PROMPT, "--dump", f"linear_q4gsw#20={tmp_path / 'x.npy'}")
    assert result.code == 2
    error, hint = result.err.splitlines()
    assert error.endswith("the fused graph has no linear_q4gsw#20")
    name, *others = re.findall(r"linear_q4gsw#\d+", hint)
    assert len(others) == 2
    assert hint.endswith("? --trace-resize shows all, --no-fuse runs the file's own ops")
    result = webgpu_run(MODEL, *PROMPT, "--dump", f"{name}={tmp_path / 'x.npy'}", "--dump", f"{name}@9=never.npy")
    dims = list(np.load(tmp_path / "x.npy").shape)
    assert result.err.splitlines()[:2] == [
        f"dump: {name} of the fused graph, float32 {dims} ({tmp_path / 'x.npy'})",
        f"warning: --dump: {name} did not run in call 9 (never.npy)",
    ]
    assert "pick#" not in webgpu_run(MODEL, *PROMPT, "--dump", f"pick#17={tmp_path / 'x.npy'}").err.split("hint")[1]


@pytest.mark.parametrize(("model", "told"), [("tiny_fp16", True), ("tiny_dyn", False)])
def test_half_precision_is_told(model: str, told: bool) -> None:
    """At load, once, but not with --quiet; in --inspect and its JSON; from Python: f16 tensors are computed in f32."""
    path = FIXTURES / f"{model}.pte"
    note = "85 f16 tensors are computed in f32, on every adapter"
    run, quiet = (webgpu_run(path, *PROMPT, *extra) for extra in ((), ("--quiet",)))
    assert run.code == quiet.code == 0
    assert run.err.splitlines().count(f"note: {note}") == told
    assert note not in run.out
    assert quiet.err == ""
    assert (f"note: {note}" in webgpu_run(path, "--inspect").out) == told
    (method,) = json.loads(webgpu_run(path, "--inspect", "json").out)["methods"]
    assert method["notes"] == [note] * told
    assert load(path, tune=False).notes == (note,) * told
