"""webgpu-bench with several models and formats of the cache in one run, prompts from a text, and both phases."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from webgpu_run.bench.compare import differences, pairs
from webgpu_run.bench.runner import Bench
from webgpu_run.bench.samples import Measured
from webgpu_run.bench.sweep import Variant, _alternating
from webgpu_run.bench.trials import LengthLimits, Trial
from webgpu_run.formats import pte
from webgpu_run.gpu.device import Device
from webgpu_run.runtime.model import Model

from helpers.command import HERE, Result, execute
from helpers.language import folder

FIXTURES = HERE / "fixtures"


def bench(*args: str | Path) -> Result:
    return execute(sys.executable, "-m", "webgpu_run.cli.bench", *args, "-r", "2", "-w", "0", "--no-roofline")


def test_two_models_and_two_caches(tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    args = ("-p", "8", "-n", "none", "-pg", "16,4", "--kv", "f32,f16", "--out", out, "--report", tmp_path / "a.html")
    ran = bench(FIXTURES / "tiny_dyn.pte", FIXTURES / "tiny_tied.pte", *args)
    assert ran.code == 0, ran.err
    rows: list[dict[str, Any]] = json.loads(out.read_text())
    assert [(r["model"]["name"], r["settings"]["kv"], r["test"]) for r in rows] == [
        (name, kv, test) for name in ("tiny_dyn", "tiny_tied") for kv in ("f32", "f16") for test in ("pp8", "pp16+tg4")
    ]
    assert ran.out.splitlines()[0].split()[3] == "kv"
    full, half = rows[0], rows[2]
    assert 0 < half["gpu_bytes"] < full["gpu_bytes"]
    both = rows[1]
    assert (both["phase"], both["tokens"], both["generate"]) == ("both", 16, 4)
    assert both["samples"][0] == pytest.approx(20 / both["wall_ms"][0] * 1e3, rel=1e-3)
    assert {row["settings"]["models"] for row in rows} == {4}
    page = (tmp_path / "a.html").read_text()
    variants = [f"{name} {kv}" for name in ("tiny_dyn", "tiny_tied") for kv in ("f32", "f16")]
    for variant in variants:
        assert all(text in page for text in (f"{variant}, depth 0", f">{variant} wall<", f">{variant} pp16+tg4<"))
    assert "KV cache f32, f16 · chunk 127" in page
    assert page.count("<td>tiny_dyn</td>") == 4
    assert [(a["settings"]["kv"], b["settings"]["kv"]) for a, b in pairs(rows, rows[2:4])] == [("f16", "f16")] * 2
    assert differences([(full, half)]) == ["A and B differ in --kv: f32, f16"]


def test_rounds_alternate_between_models() -> None:
    reach = LengthLimits(8, 8, 8, False)
    program = pte.load(FIXTURES / "tiny_dyn.pte")
    variants = [Variant(program, kv, reach, []) for kv in ("f32", "f16")]
    for variant, count in zip(variants, (3, 2), strict=True):
        variant.measured = [Measured(Trial(False, n + 1)) for n in range(count)]
    order = [(v.kv, m.trial.tokens) for v, m in _alternating(variants)]
    assert order == [("f32", 1), ("f16", 1), ("f32", 2), ("f16", 2), ("f32", 3)]


def test_prompts_from_a_text(tmp_path: Path, device: Device) -> None:
    model, text = folder(tmp_path), tmp_path / "t.txt"
    text.write_text("The sun did not shine.")
    ran = bench(model, "-p", "8", "-n", "none", "--text", text, "-o", "json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)[0]["settings"]["prompt"] == "t.txt"
    loaded = Model(pte.load(model), device)
    reach = LengthLimits.of(loaded.program, loaded.method)
    assert Bench(loaded, reach, text=[5, 6, 7])._ids(2, 6) == [7, 5, 6, 7]
    assert len(set(Bench(loaded, reach)._ids(0, 50))) > 40


def test_refusals(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    model = FIXTURES / "tiny_dyn.pte"
    for message, *args in (
        ("'8' is not a pair of lengths such as 64,32", "-pg", "8"),
        ("'f8' is not f32, f16 or f32,f16", "--kv", "f8"),
        ("pp120+tg20: 140 tokens do not fit, the maximum is 128", "-pg", "120,20"),
        ("cannot read the text", "--text", tmp_path / "absent.txt"),
        ("the text is empty", "--text", tmp_path / "empty.txt", "--tokenizer", folder(tmp_path).parent),
    ):
        ran = bench(model, *args)
        assert ran.code in (2, 3, 5), ran.err
        assert message in ran.err
