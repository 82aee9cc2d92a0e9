"""How the command behaves: quick help, errors in one line, exit codes, a closed pipe."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import webgpu_run as webgpu_run_package
from webgpu_run.cli.options import GROUPS
from webgpu_run.formats import pte_writer
from webgpu_run.version import __version__

from helpers.command import HERE, Result, execute, webgpu_run
from helpers.samples import add_program

NO_ADAPTER = {
    "VK_ICD_FILENAMES": "/nonexistent",
    "VK_DRIVER_FILES": "/nonexistent",
    "__EGL_VENDOR_LIBRARY_FILENAMES": "/nonexistent",
    "LIBGL_DRIVERS_PATH": "/nonexistent",
}


def error(result: Result) -> str:
    """The one line of an error."""
    lines = result.err.splitlines()
    assert lines
    assert lines[0].startswith("webgpu-run: error: "), result.err
    assert len(lines) == 1 or lines[1].startswith("hint: "), result.err
    assert result.out == ""
    return lines[0].removeprefix("webgpu-run: error: ")


def test_help_loads_neither_wgpu_nor_numpy() -> None:
    script = "import sys\nfrom webgpu_run.cli.run import main\ntry:\n    main()\nexcept SystemExit: pass\n"
    script += "print(sorted({'wgpu', 'numpy', 'rich', 'flatbuffers', 'tokenizers', 'jinja2'} & set(sys.modules)))"
    result = execute(sys.executable, "-c", script, "--help")
    assert result.code == 0
    assert "--inspect" in result.out
    assert result.out.splitlines()[-1] == "[]"


def test_help_has_sections_examples_and_exit_codes() -> None:
    lines = webgpu_run("--help", env={"COLUMNS": "200"}).out.splitlines()
    sections = [line for line in lines if re.fullmatch(r"\S.*:", line)]
    assert sections == [f"{title}:" for title in GROUPS]
    shown = {word for line in lines for word in re.findall(r"^  (?:-\w, )?(--[\w-]+)", line)}
    grouped = {name.removesuffix("_option") for title in GROUPS for name in GROUPS[title]}
    assert grouped <= {name[2:].replace("-", "_") for name in shown}
    assert (
        lines.index("  Examples:") < lines.index(sections[0]) < lines.index(sections[-1]) < lines.index("  Exit codes:")
    )
    assert max(map(len, lines)) <= 112


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("--trace-r", "plain,--trace-resize"),
        ("mod", "file,mod"),
        ("--prompt-file mod", "file,mod"),
        ("--template mod", "file,mod"),
        ("--kv f3", "plain,f32"),
        ("model.pte so", ""),  # a prompt
    ],
)
def test_completion(words: str, completed: str) -> None:
    line = f"webgpu-run {words}"
    env = {"_WEBGPU_RUN_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    script = "import sys; sys.argv[0] = 'webgpu-run'\nfrom webgpu_run.cli.run import main\nmain()"
    assert execute(sys.executable, "-c", script, env=env).out.strip() == completed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    """They are printed for each shell, and a shell that is installed accepts its own."""
    script = "import sys; sys.argv[0] = 'webgpu-run'\nfrom webgpu_run.cli.run import main\nmain()"
    text = execute(sys.executable, "-c", script, env={"_WEBGPU_RUN_COMPLETE": f"{shell}_source"}).out
    assert f"_WEBGPU_RUN_COMPLETE={shell}_complete" in text
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=text, text=True, check=True)


@pytest.mark.skipif(not shutil.which("fish"), reason="needs fish")
def test_fish_shows_whole_descriptions_and_commands(tmp_path: Path) -> None:
    for name, module in (("webgpu-run", "webgpu_run.cli.run"), ("webgpu-bench", "webgpu_run.cli.bench")):
        script = tmp_path / name
        script.write_text(f"#!{sys.executable}\nfrom {module} import main\nmain()\n")
        script.chmod(0o755)
    lines = ["set PATH $argv[1] $PATH"]
    lines += [f"_WEBGPU_{n}_COMPLETE=fish_source webgpu-{n.lower()} | source" for n in ("RUN", "BENCH")]
    lines += [
        f'complete -C "webgpu-{words}"' for words in ("run --top-k", "bench roof", "bench op --of", "bench a.pte roof")
    ]
    shown = execute("fish", "-c", "\n".join(lines), str(tmp_path))
    assert shown.out.splitlines() == [
        "--top-k\tSample from the K likeliest tokens only. 0, the default, means all.",
        "roofline\tMeasure what this adapter can do at most.",
        "--of\tMeasure the linears of this model, inside the model.",
    ]


def test_help_is_quick() -> None:
    def seconds(*command: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, capture_output=True, cwd=HERE.parent)
        return time.perf_counter() - start

    # Taken in turns and at their best, so that what else the machine does falls on both.
    pairs = [(seconds("-m", "webgpu_run", "--help"), seconds("-c", "import click")) for _ in range(8)]
    assert min(ours for ours, _ in pairs) < 2 * min(clicks for _, clicks in pairs)


def test_version() -> None:
    result = webgpu_run("--version")
    assert (result.code, result.out, result.err) == (0, f"webgpu-run {__version__}\n", "")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--inspct",), "'--inspect'"),
        (("--inspect=colour",), "'colour' is not one of"),
        (("--inspect", "op"), "'op' is no file and none of its words, did you mean ops?"),
        (("--timings", "bogus"), "--timings: 'bogus' is no file and none of its words: op, dispatch, layer"),
        (("a.pte", "words", "more"), "unexpected extra argument (more)"),
    ],
)
def test_usage(args: tuple[str, ...], message: str) -> None:
    result = webgpu_run(*args)
    assert result.code == 2
    assert message in error(result)


def test_environment_variables(tmp_path: Path) -> None:
    path = tmp_path / "add.pte"
    pte_writer.write(path, add_program())
    result = webgpu_run(path, env={"WEBGPU_RUN_INSPECT": "json"})
    assert result.code == 0
    assert result.out.startswith("{")


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    path = tmp_path / "none.pte"
    assert "Traceback" not in webgpu_run(path, "--inspect").err
    for result in (
        webgpu_run(path, "--inspect", "--debug"),
        webgpu_run(path, "--inspect", env={"WEBGPU_RUN_DEBUG": "1"}),
    ):
        assert result.code == 3
        assert result.err.startswith("Traceback")
        assert result.err.splitlines()[-1].startswith("webgpu-run: error: cannot open")


def test_the_unexpected_is_one_line_too() -> None:
    script = (
        "import webgpu_run.cli.run as cli, webgpu_run.runtime.open as opening\n"
        "def load(*args): raise KeyError('oh\\nno')\nopening.open_program = load\ncli.main()"
    )
    result = execute(sys.executable, "-c", script, "x.pte", "--inspect")
    assert result.code == 1
    assert error(result).startswith("unexpected KeyError:")


def test_interrupted() -> None:
    script = (
        "import webgpu_run.cli.run as cli, webgpu_run.runtime.open as opening\n"
        "def load(*args): raise KeyboardInterrupt\nopening.open_program = load\ncli.main()"
    )
    result = execute(sys.executable, "-c", script, "x.pte", "--inspect")
    assert result.code == 130
    assert "Traceback" not in result.err


@pytest.mark.parametrize("view", ["json", "summary"])
def test_closed_pipe(tmp_path: Path, view: str) -> None:
    path = tmp_path / "add.pte"
    pte_writer.write(path, add_program())
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "webgpu_run", str(path), "--inspect", view]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=HERE.parent, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("flag", ["--list-devices", "--doctor"])
def test_no_adapter(flag: str) -> None:
    result = webgpu_run(flag, env=NO_ADAPTER)
    assert result.code == 6
    assert "webgpu-run: error: " in result.err
    assert result.err.splitlines()[-1].startswith("hint: install a Vulkan driver")
    assert ("✗  adapter" in result.out) == (flag == "--doctor")


def test_inspect_needs_no_adapter(tmp_path: Path) -> None:
    path = tmp_path / "add.pte"
    pte_writer.write(path, add_program())
    assert webgpu_run(path, "--inspect", env=NO_ADAPTER).code == 0


def test_doctor_holds_a_model_against_the_limits(tmp_path: Path) -> None:
    path = tmp_path / "add.pte"
    pte_writer.write(path, add_program())
    result = webgpu_run(path, "--doctor")
    assert (result.code, result.err) == (0, "")
    assert "forward largest binding  128 of" in result.out


def test_errors_can_be_caught() -> None:
    """By their names in the package."""
    base = webgpu_run_package.RunError
    assert {error.__name__ for error in (base, *base.__subclasses__())} <= set(webgpu_run_package.__all__)
