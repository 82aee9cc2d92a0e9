"""The commands without what only Linux has, as on Windows and macOS. docs/platforms.md says what this cannot show."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import webgpu_run
from webgpu_run.assets import bundled_model

from helpers.command import HERE, Result, execute
from helpers.language import FIXTURES, folder

PACKAGE = Path(webgpu_run.__file__).parent
CODE_PAGE = "cp1252"  # of a Windows in Western Europe
# No UTF-8 as the default encoding of files, and output in a Windows code page.
FOREIGN = {
    "PYTHONPATH": f"{HERE / 'helpers' / 'foreign'}:{HERE.parent}",
    "LC_ALL": "C",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONUTF8": "0",
    "PYTHONIOENCODING": f"{CODE_PAGE}:replace",
}
RUN, BENCH = ("-m", "webgpu_run"), ("-m", "webgpu_run.cli.bench")


def foreign(*args: str | Path) -> Result:
    return execute(sys.executable, *args, env=FOREIGN, encoding=CODE_PAGE)


def test_what_is_taken_away() -> None:
    for code in (
        "import fcntl",
        "import resource",
        "import termios",
        "import readline",
        "open('/proc/meminfo')",
        "import pathlib; pathlib.Path('/proc/meminfo').read_text()",
        "import signal; signal.SIGALRM",
        "import os; os.fork()",
        "import io; io.TextIOWrapper(io.BytesIO(b'\\xc3\\xa9')).read()",
    ):
        assert foreign("-c", code).code != 0, code
        assert execute(sys.executable, "-c", code).code == 0 or "fork" in code, code


@pytest.mark.parametrize(
    "args",
    [
        ("--help",),
        ("--version",),
        ("--doctor",),
        ("--list-devices",),
        ("--inspect",),
        ("--inspect", "json"),
        ("--prompt", "Once upon a time", "-n", "12", "--seed", "3", "-q"),
        ("--prompt", "Once upon a time", "-n", "4", "--timings", "--timeout", "100", "--isolate"),
        ("--kernels", "-", "--profile", "gpu"),
    ],
    ids=" ".join,
)
def test_webgpu_run(args: tuple[str, ...]) -> None:
    result = foreign(*RUN, *args)
    assert result.code == 0, result.err
    assert "Traceback" not in result.err
    if {"json", "--kernels", "--version", "-q"} & set(args):  # without lines and times
        usual = execute(sys.executable, *RUN, *args).out.encode(CODE_PAGE, "replace").decode(CODE_PAGE)
        # Free memory is not known without /proc, and changes.
        ours, theirs = (re.sub(r'"available": (\d+|null)', "", out) for out in (result.out, usual))
        assert ours == theirs


def test_a_chat(tmp_path: Path) -> None:
    """A path with spaces; a chat template and a tokenizer in their own processes; letters beyond ASCII typed."""
    model = folder(tmp_path / "my model's folder")
    done = subprocess.run(
        [sys.executable, *RUN, model, "--chat", "-n", "4"],
        input="h\u00e9llo\n".encode(),
        env={**os.environ, **FOREIGN, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_tensors_from_and_to_files(tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    result = foreign(*RUN, FIXTURES / "tiny_dyn.pte", "--prompt-ids", "1,2,3", "-n", "3", "--trace", out)
    assert result.code == 0, result.err
    assert out.stat().st_size > 100


def test_many_prompts(tmp_path: Path) -> None:
    """With a journal beside the output, which another start would read."""
    prompts, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    prompts.write_text('{"prompt": "Once"}\n{"prompt": "The caf\u00e9"}\n', "utf-8")
    result = foreign(*RUN, "--prompts", prompts, "--out", out, "-n", "3")
    assert result.code == 0, result.err
    assert "Traceback" not in result.err
    assert len(out.read_text("utf-8").splitlines()) == 2


def test_a_file_to_share(tmp_path: Path) -> None:
    shared = tmp_path / "gpu.json"
    for args in (("-p", "8", "-n", "2", "-r", "1", "-w", "0", "--share", shared), ("merge", shared)):
        result = foreign(*BENCH, *args)
        assert result.code == 0, result.err
        assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "args",
    [("--help",), ("MODEL", "-p", "8", "-n", "4", "-r", "1", "-w", "0", "-o", "jsonl"), ("load", "MODEL", "-r", "1")],
    ids=" ".join,
)
def test_webgpu_bench(args: tuple[str, ...]) -> None:
    result = foreign(*BENCH, *(str(bundled_model()) if a == "MODEL" else a for a in args))
    assert result.code == 0, result.err
    assert "Traceback" not in result.err


def test_files_are_read_and_written_in_a_named_encoding() -> None:
    """Python's default is the code page of the machine, except on Linux and macOS."""
    text_modes = {"read_text", "write_text"}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in text_modes:
                given = len(node.args) + len(node.keywords)
                assert given > (node.func.attr == "write_text"), f"{path.name}:{node.lineno} names no encoding"


def test_paths_are_joined_by_pathlib() -> None:
    """No path is built or taken apart with "/" in a string."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                is_split = node.func.attr in ("split", "rsplit", "rpartition", "startswith", "endswith", "join")
                slashes = [a for a in node.args if isinstance(a, ast.Constant) and a.value in ("/", "./", "../")]
                assert not (is_split and slashes), f"{path.name}:{node.lineno}"
