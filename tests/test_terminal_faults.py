"""What a terminal, a pipe or a keyboard can do to the commands, as real processes."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from webgpu_run.console.terminal import LONGEST_LINE

from helpers.command import execute, webgpu_run
from helpers.language import FIXTURES, environment, folder, start

TINY = FIXTURES / "tiny_dyn.pte"
RUN = (sys.executable, "-m", "webgpu_run")
BENCH = (sys.executable, "-m", "webgpu_run.cli.bench")
RESULT = '{"schema": 1, "test": "pp1", "samples": [1.0, 2.0], "model": {"name": "é→"}}\n'


def error_of(err: str) -> str:
    """The one error line of a run, without its hint."""
    lines = [line for line in err.splitlines() if not line.startswith(("warning: ", "hint: "))]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    return lines[0].partition(": error: ")[2]


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "latin-1"])
@pytest.mark.parametrize(
    "command",
    [
        (*RUN, TINY, "--inspect"),
        (*RUN, TINY, "--inspect", "ops"),
        (*RUN, "--list-devices"),
        (*RUN, "--doctor"),
        (*RUN, "--help"),
        (*BENCH, "compare", "a.jsonl", "a.jsonl"),
        (*BENCH, "--help"),
    ],
    ids=["inspect", "inspect-ops", "list-devices", "doctor", "help", "compare", "bench-help"],
)
def test_a_stdout_that_is_not_utf8(encoding: str, command: tuple[str | Path, ...], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(RESULT)
    command = tuple(tmp_path / part if part == "a.jsonl" else part for part in command)
    done = subprocess.run(command, capture_output=True, env=environment(PYTHONIOENCODING=encoding), timeout=120)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
    from_click = encoding == "ascii" and "--help" in command  # click takes ASCII for a misconfigured UTF-8
    assert len(done.stdout.decode("utf-8" if from_click else encoding)) > 50


@pytest.mark.parametrize(
    "command",
    [
        (*RUN, TINY, "--inspect"),
        (*RUN, TINY, "--inspect", "json"),
        (*RUN, "--help"),
        (*RUN, "--version"),
        (*RUN, "--list-devices"),
        (*BENCH, "--help"),
        (*BENCH, "compare", "a.jsonl", "a.jsonl"),
    ],
    ids=["inspect", "json", "help", "version", "list-devices", "bench-help", "compare"],
)
def test_a_stdout_that_is_full(command: tuple[str | Path, ...], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(RESULT)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [tmp_path / part if part == "a.jsonl" else part for part in command],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=120,
        )
    assert done.returncode == 1, done.stderr
    assert error_of(done.stderr.decode()) == "cannot write: no space left on device (stdout)"


def test_error_lines_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "in.npy").write_bytes(b"")
    for args in (
        [TINY, "--method", "m" * 100_000],
        [TINY, "--prompt-ids", "x" * 100_000],
        [TINY, "--input", "n" * 100_000],
    ):
        result = webgpu_run(*args)
        assert result.code in (2, 3)
        assert len(error_of(result.err)) <= LONGEST_LINE
        assert all(len(line) <= LONGEST_LINE + 30 for line in result.err.splitlines())


@pytest.mark.parametrize("after", [0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15])
@pytest.mark.parametrize("name", ["webgpu_run", "webgpu_bench"])
def test_interrupted_while_it_imports(name: str, after: float) -> None:
    # The marker is written by the first import after Ctrl-C is handled: what is printed before is not ours.
    script = (
        "import os, sys; sys.argv[1:] = ['--help']; import webgpu_run.cli.entry as entry\n"
        "def told(event, args):\n"
        "    if event == 'import' and args[0] == 'webgpu_run.console.command': os.write(2, b'!')\n"
        f"sys.addaudithook(told); entry.{name}()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stderr
    assert process.stderr.read(1) == b"!"
    time.sleep(after + 0.003)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode in (0, 130), err.strip()) == (True, b"")  # a newline may end the line of ^C


def test_little_is_imported_before_ctrl_c_is_handled() -> None:
    script = "import sys; before = {*sys.modules}; import webgpu_run.cli.entry; print(*{*sys.modules} - before)"
    modules = execute(sys.executable, "-c", script).out.split()
    foreign = {name for name in modules if not name.startswith("webgpu_run")}
    assert (foreign - {"__future__"}, len(modules) < 12) == (set(), True)


@pytest.mark.parametrize("seconds", ["1e300", "1e10", "nan", "inf", "-1", "0", "-inf"])
def test_timeouts_that_are_no_time(seconds: str) -> None:
    result = webgpu_run(TINY, "--prompt-ids", "5,6,7", "-n", "1", "--timeout", seconds)
    assert (result.code, result.out) == (2, "")
    assert "must be above 0 and at most" in error_of(result.err)


def test_the_longest_timeout() -> None:
    result = webgpu_run(TINY, "--prompt-ids", "5,6,7", "-n", "1", "--timeout", "1e9")
    assert (result.code, "Traceback" in result.err) == (0, False), result.err


def test_a_chat_goes_on_after_a_timeout(tmp_path: Path) -> None:
    """The first call takes longer than the limit (it compiles kernels); later questions are answered."""
    model = folder(tmp_path)
    master, slave = pty.openpty()
    script = (
        "import time, webgpu_run.runtime.model as m\nrun, slow = m.Model.run, [True]\n"
        "def late(self, *args, **more):\n"
        "    if slow.pop() if slow else False:\n        time.sleep(30)\n"
        "    return run(self, *args, **more)\n"
        "m.Model.run = late\nfrom webgpu_run.cli.run import main\nmain()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, model, "--chat", "--timeout", "5", "-n", "2"],
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    os.close(slave)
    os.write(master, b"one\n")
    assert process.stderr
    err = b""
    while b"error: a call took more than 5 s" not in err:
        part = os.read(process.stderr.fileno(), 4096)
        assert part, err
        err += part
    time.sleep(6)  # the process would have been ended by now
    os.write(master, b"two\n/exit\n")
    out, rest = process.communicate(timeout=120)
    os.close(master)
    assert process.returncode == 0, err + rest
    assert b"does not return" not in rest
    assert out.count(b"\n") == 1


@pytest.mark.parametrize("where", ["--system", "stdin", "--prompt", "--stop"])
def test_text_that_is_not_utf8(where: str, tmp_path: Path) -> None:
    model = folder(tmp_path)
    bad = b"caf\xe9 \xed\xa0\x80 \xff"
    flags = [os.fsdecode(f) for f in (where.encode(), bad)] if where.startswith("-") else []
    process = start(model, "--chat", "-n", "2", *flags, stdin=subprocess.PIPE)
    _, err = process.communicate((bad if where == "stdin" else b"hello") + b"\n", timeout=180)
    assert (process.returncode, b"error" in err) == (0, False), err


def test_a_template_that_writes_a_surrogate(tmp_path: Path) -> None:
    model = folder(tmp_path, template="{{ '\\ud800' }}{% for m in messages %}{{ m.content }}{% endfor %}")
    process = start(model, "--chat", "-n", "2", stdin=subprocess.PIPE)
    _, err = process.communicate(b"hello\n", timeout=180)
    assert (process.returncode, b"error" in err) == (0, False), err


def npy(header: bytes, data: bytes = b"\0" * 64) -> bytes:
    return b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"PK\x03\x04" + b"\0" * 100, "not a .npy file"),
        (npy(b"{'descr': '<i8', 'fortran_order': False, 'shape': (True, 3), }"), "cut short or does not hold numbers"),
        (npy(b"{'descr': '<i8', 'fortran_order': False, 'shape': (-1,), }"), "cut short or does not hold numbers"),
        (npy(b"{'descr': '<i8', 'fortran_order': False, 'shape': (10**9,), }"), "cut short or does not hold numbers"),
        (
            npy(b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,), }"),
            "cut short or does not hold numbers",
        ),
        (npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }"), "cut short or does not hold numbers"),
        (npy(b"{'descr': '<U4', 'fortran_order': False, 'shape': (3,), }"), "cut short or does not hold numbers"),
        (npy(b"(" * 5000), "cut short or does not hold numbers"),
        (npy(b"{'descr': ('<i8', (True,)), 'fortran_order': 3, 'shape': (3,), }"), "cut short or does not hold"),
        (b"\x93NUMPY", "cut short or does not hold numbers"),
        (b"\x93NUMPY\x09\x09" + b"\0" * 99, "cut short or does not hold numbers"),
        (b"", "not a .npy file"),
    ],
    ids=[
        "zip",
        "bool",
        "negative",
        "power",
        "huge",
        "object",
        "text",
        "nested",
        "subarray",
        "magic",
        "version",
        "empty",
    ],
)
def test_inputs_that_are_no_arrays(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "bad.npy").write_bytes(content)
    np.save(tmp_path / "good.npy", np.asarray([0]))
    result = webgpu_run(TINY, "--input", tmp_path / "bad.npy", "--input", tmp_path / "good.npy")
    assert result.code == 3, result.err
    assert says in error_of(result.err)


@pytest.mark.parametrize("order", ["C", "F"])
def test_inputs_of_both_orders_and_endiannesses(order: str, tmp_path: Path) -> None:
    """A file that numpy reads is read as numpy reads it."""
    from webgpu_run.cli.arrays import read_npy

    for array in (np.arange(6.0).reshape(2, 3), np.arange(4, dtype=">i4"), np.float32(3), np.zeros((0, 3), bool)):
        np.save(tmp_path / "a.npy", np.asarray(array, order=order))  # type: ignore[call-overload]
        got = read_npy(str(tmp_path / "a.npy"))
        assert np.array_equal(got, array)
        assert (got.shape, got.dtype) == (np.shape(array), array.dtype)
