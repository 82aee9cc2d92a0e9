"""The commands on our pages, as typed there, and the README's Python.

The folder in which they run has the files that the pages speak of; `models/smollm2` is a small model of ours.
Measurements are shortened through environment variables, not by changing the command.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.language import TEMPLATE

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "examples/export/README.md", *sorted((ROOT / "docs").glob("*.md"))]
# These need the network, torch, Ray or much time.
NOT_RUN = re.compile(r"(make|pip|hf|python examples/export/export\.py|python bench/\S+) |.* --ray ")
COMMAND = r"(?:webgpu-run|webgpu-bench|echo|eval|python|pip|hf|make) "  # other indented lines are output
BUNDLED = ROOT / "webgpu_run" / "bundled"
SHORT = {"REPEAT": "1", "WARMUP": "0", "NO_ROOFLINE": "1", "WINDOWS": "1"}


def commands(text: str) -> list[str]:
    """The lines of a page's shell samples, without comments."""
    lines, fence = [], ""
    for line in text.splitlines():
        if line.startswith("```"):
            fence = "" if fence else line
        elif fence == "```sh" or (not fence and re.match(rf"    {COMMAND}", line)):
            lines.append(re.sub(r"\s+#.*", "", line.strip()))
    return [line for line in lines if line]


SAMPLES = sorted({line for page in PAGES for line in commands(page.read_text()) if not NOT_RUN.match(line)})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the samples name, and a `bin` with our commands."""
    place = tmp_path_factory.mktemp("samples")
    for module, name in (("webgpu_run", "webgpu-run"), ("webgpu_run.cli.bench", "webgpu-bench")):
        script = place / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m {module} "$@"\n')
        script.chmod(0o755)
    shutil.copytree(BUNDLED, place, dirs_exist_ok=True)
    shutil.copy(place / "model.pte", place / "other.pte")
    (place / "persuasion.txt").rename(place / "book.txt")
    for name in ("smollm2", "qwen3"):
        shutil.copytree(BUNDLED, place / "models" / name)
        (place / "models" / name / "model.pte").rename(place / "models" / name / f"{name}.pte")
        (place / "models" / name / "chat_template.jinja").write_text(TEMPLATE)
    np.save(place / "ids.npy", np.array([[1, 2, 3]]))
    np.save(place / "position.npy", np.array([0]))
    for name in ("story.txt", "question.txt", "edit.txt"):
        (place / name).write_text("once upon a time")
    (place / "in.jsonl").write_text('{"prompt": "once upon a time", "max_new_tokens": 4}\n')
    return place


def run(sample: str, place: Path) -> subprocess.CompletedProcess[str]:
    subs = ("", "OP_", "LOAD_", "QUALITY_")
    short = {f"WEBGPU_BENCH_{sub}{name}": value for sub in subs for name, value in SHORT.items()}
    short["WEBGPU_BENCH_COMPARE_BUDGET"] = "5" if "--live" in sample else ""
    env = {**os.environ, **short, "PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", sample],
        cwd=place,
        env=env,
        input="hello\n",
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_command_of_a_page_works(sample: str, place: Path) -> None:
    if "a.jsonl" in sample:
        for name in ("a", "b"):
            assert run(f"webgpu-bench -p 4 -n 0 -q --out {name}.jsonl", place).returncode == 0
    if "eager.npz" in sample:
        assert run("webgpu-bench quality model.pte --text book.txt --save eager.npz", place).returncode == 0
    done = run(sample, place)
    assert done.returncode == 0 or ("compare" in sample and done.returncode == 1), done.stderr


def test_the_samples_are_found() -> None:
    assert len(SAMPLES) >= 25
    page = "    echo 1   # x\n    1\n\n```python\na = 1\n    echo b\n```\n```sh\nls -l\n```\n"
    assert commands(page) == ["echo 1", "ls -l"]


def test_a_wrong_sample_is_seen(place: Path) -> None:
    assert run("webgpu-run --tmp 0.8", place).returncode == 2


def test_python_of_the_readme(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert blocks
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for block in blocks:
        subprocess.run([sys.executable, "-c", block], cwd=tmp_path, env=env, check=True, timeout=300)
