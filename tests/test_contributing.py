"""The worked examples of CONTRIBUTING.md, carried out in a copy of the repository with the text of that page."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


def copy_of_repository(target: Path) -> Path:
    for name in ("webgpu_run", "wgsl", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "fixtures", "bundled")
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", target)
    return target


def blocks(section: str, language: str) -> list[str]:
    """The code blocks of one section, in order."""
    text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def insert(path: Path, text: str, before: str) -> None:
    source = path.read_text()
    assert source.count(before) == 1, f"{path.name} has no single {before!r}"
    path.write_text(source.replace(before, text + before))


def python(tree: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], cwd=tree, capture_output=True, text=True, timeout=300)


def test_adding_an_op(tmp_path: Path) -> None:
    tree = copy_of_repository(tmp_path)
    module, check, call = blocks("Adding an op", "python")
    (kernel,) = blocks("Adding an op", "wgsl")
    (tree / "webgpu_run/ops/cumsum.py").write_text(module)
    (tree / "wgsl/cumsum.wgsl").write_text(kernel)
    run = (
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/test_ops.py",
        "tests/test_op_plans.py",
        "-k",
        "cumsum",
    )

    unchecked = python(tree, *run)
    assert re.search(r"^2 failed, 16 passed", unchecked.stdout, re.M), unchecked.stdout
    assert "16 tests pass" in PAGE
    assert "no one has worked out its plans a second time" in unchecked.stdout

    insert(tree / "tests/helpers/fields.py", check + "\n\n", "def wanted(")
    insert(tree / "tests/helpers/fields.py", call, '    if short == "pick":\n')
    checked = python(tree, *run)
    assert re.search(r"^18 passed", checked.stdout, re.M), checked.stdout
    assert "All 18 tests pass" in PAGE

    mutants = python(tree, "tests/tools/mutate_plans.py", "cumsum")
    (row,) = re.findall(r"^aten\.cumsum\.default .*", mutants.stdout, re.M)
    assert row.split()[2:4] == ["26", "26"], mutants.stdout
    assert re.search(r"aten\.cumsum\.default +software +26 +26 ", PAGE)


def test_adding_a_pass(tmp_path: Path) -> None:
    tree = copy_of_repository(tmp_path)
    module, test = blocks("Adding a fusion pass", "python")
    (tree / "webgpu_run/graph/passes/relu.py").write_text(module)
    (tree / "tests/test_fuse_relu.py").write_text(test)
    run = ("-m", "pytest", "-q", "tests/test_fuse_relu.py")
    assert "1 failed, 1 passed" in python(tree, *run).stdout  # it is in no list yet

    insert(tree / "webgpu_run/graph/fuse.py", "from .passes.relu import fuse_relu\n", "from .passes.rounding import")
    insert(tree / "webgpu_run/graph/fuse.py", "    fuse_relu,\n", "    fuse_attention,\n")
    fused = python(tree, *run)
    assert "2 passed" in fused.stdout, fused.stdout
