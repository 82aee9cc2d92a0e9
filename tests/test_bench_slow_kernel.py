"""webgpu-bench tells when one kernel has become slower: measured with a copy of the program whose kernel does more."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from helpers.command import HERE, Result, execute

ROOT = HERE.parent
MODEL = ROOT / "webgpu_run" / "bundled" / "model.pte"
TURNS = 60  # slow enough to be seen on a busy machine
LOOP = "  for (var b = 0u; b < BLOCKS; b++) {\n"
AFTER = "  for (var r = 0u; r < ROWS; r++) { // unroll\n    let f = factor"


def bench(tree: Path, *args: str | Path) -> Result:
    """By the program in `tree`, wherever the tests are run from (-P)."""
    return execute(sys.executable, "-P", "-m", "webgpu_run.cli.bench", *args, env={"PYTHONPATH": str(tree)})


def measured(tree: Path, out: Path) -> Path:
    result = bench(
        tree, MODEL, "-p", "8", "-n", "8", "-r", "6", "--no-roofline", "--no-tune", "-q", "--out", out
    )  # the variants would be measured once an adapter, with whichever kernels came first
    assert result.code == 0, result.err
    return out


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, with a 4-bit linear that computes its sums over and over before it stores them."""
    tree = tmp_path_factory.mktemp("slow")
    shutil.copytree(ROOT / "webgpu_run", tree / "webgpu_run", ignore=shutil.ignore_patterns("__pycache__", "bundled"))
    shutil.copytree(ROOT / "wgsl", tree / "wgsl")
    kernel = tree / "wgsl" / "include" / "q4_strips.wgsl"
    text = kernel.read_text()
    assert text.count(LOOP) == text.count(AFTER) == 1
    fresh = "acc = array<Sums, STRIPS>(); square = array<f32, ROWS>();"
    again = f"  for (var turn = 0u; turn < {TURNS}u; turn++) {{\n  {fresh}\n"
    kernel.write_text(text.replace(LOOP, again + LOOP).replace(AFTER, "  }\n" + AFTER))
    return tree


def test_a_slower_kernel_is_a_regression(slow: Path, tmp_path: Path) -> None:
    a = measured(ROOT, tmp_path / "a.jsonl")
    b = measured(slow, tmp_path / "b.jsonl")
    same = bench(ROOT, "compare", a, a, "--fail-over", "5%")
    assert same.code == 0, same.out
    worse = bench(ROOT, "compare", a, b, "--fail-over", "5%", "-o", "json")
    assert worse.code == 1, worse.out + worse.err
    assert {row["test"]: row["verdict"] for row in json.loads(worse.out)} == {"pp8": "regression", "tg8": "regression"}
    better = bench(ROOT, "compare", b, a, "--fail-over", "5%")
    assert better.code == 0
    assert "faster" in better.out
    ops_a, ops_b = (
        {op["kernel"]: op["gpu_us"] for op in json.loads(path.read_text().splitlines()[0])["ops"]} for path in (a, b)
    )
    if ops_a:  # an adapter with timestamps: the kernel that changed is the one that takes longer
        growth = {name: ops_b[name] / ops_a[name] for name in ops_a}
        assert "q4gsw" in max(growth, key=lambda name: growth[name])
