"""webgpu-bench where something around it fails: a full disk, a stdout that is not UTF-8, loads that hang or die."""

from __future__ import annotations

import functools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from helpers.command import HERE, TIMEOUT

SMALL = HERE / "fixtures" / "tiny_inline.pte"
RESULTS = HERE.parent / "bench" / "results"
COMPARE = ("compare", RESULTS / "smollm2.jsonl", RESULTS / "smollm2.2.jsonl")
MODEL = (SMALL, "-p", "1", "-n", "0", "-r", "1", "-w", "0", "--no-roofline")
FORMATS = ("table", "md", "csv", "json", "jsonl")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(HERE.parent)}


def command(*args: str | Path) -> list[str]:
    return [sys.executable, "-m", "webgpu_run.cli.bench", *map(str, args)]


def bench(
    *args: str | Path, stdout: str = "", largest: int | None = None, encoding: str = "utf-8"
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; `stdout` is a file instead, and no file may be larger than `largest` bytes."""

    def limit() -> None:
        if largest is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

    with open(stdout or os.devnull, "w") as file:
        done = subprocess.run(
            command(*args),
            stdout=file if stdout else subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT,
            env={**ENVIRONMENT, "PYTHONIOENCODING": encoding},
            preexec_fn=limit,
        )
    return done.returncode, (done.stdout or b"").decode(encoding), done.stderr.decode(encoding)


@functools.cache
def comparison(form: str) -> str:
    """What `compare` prints if nothing is in its way."""
    return bench(*COMPARE, "-q", "-o", form)[1]


# -- a full disk -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_out_on_a_full_disk(form: str) -> None:
    """One line, and the rows are still on stdout."""
    code, out, err = bench(*COMPARE, "-q", "-o", form, "--out", "/dev/full")
    assert code == 1
    assert err == "webgpu-bench: error: cannot write: no space left on device (/dev/full)\n"
    assert out == comparison(form) != ""


def test_rows_one_by_one_on_a_full_disk() -> None:
    code, out, err = bench("op", "sigmoid", "-r", "1", "--no-roofline", "-q", "-o", "jsonl", "--out", "/dev/full")
    assert code == 1
    assert err == "webgpu-bench: error: cannot write: no space left on device (/dev/full)\n"
    assert len(out.splitlines()) == 1


def test_report_on_a_full_disk() -> None:
    code, out, err = bench(*MODEL, "-q", "--report", "/dev/full")
    assert code == 1
    assert err == "webgpu-bench: error: cannot write: no space left on device (/dev/full)\n"
    assert "pp1" in out


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_disk_that_fills_up_leaves_no_half_of_anything(form: str, tmp_path: Path) -> None:
    """JSON lines keep the lines that were complete; other formats keep the file as it was."""
    target = tmp_path / f"rows.{form}"
    target.write_text("before")
    code, _, err = bench(
        "op", "sigmoid", "-r", "1", "--no-roofline", "-q", "--out", target, largest=2000 if "json" in form else 300
    )
    assert code == 1
    assert err == f"webgpu-bench: error: cannot write: file too large ({target})\n"
    if form == "jsonl":
        text = target.read_text()
        assert 1 <= len([json.loads(line) for line in text.splitlines()]) <= 2
        assert text.endswith("\n")
    else:
        assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_a_report_that_does_not_fit(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("before")
    code, _, err = bench(*MODEL, "-q", "--report", page, largest=4000)
    assert code == 1
    assert err == f"webgpu-bench: error: cannot write: file too large ({page})\n"
    assert page.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == [page.name]


@pytest.mark.parametrize("form", FORMATS)
def test_stdout_on_a_full_disk(form: str, tmp_path: Path) -> None:
    """One line; the file of --out is complete, because it is written first."""
    out = tmp_path / "rows.jsonl"
    code, _, err = bench(*COMPARE, "-q", "-o", form, "--out", out, stdout="/dev/full")
    assert code == 1
    assert err == "webgpu-bench: error: cannot write: no space left on device (stdout)\n"
    assert out.read_text() == comparison("jsonl")


# -- a stdout that is not UTF-8 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "encoding"), [*((form, "ascii") for form in FORMATS), ("table", "cp1252"), ("table", "latin-1")]
)
def test_stdout_that_is_not_utf8(form: str, encoding: str) -> None:
    """As many lines and the same numbers; JSON stays JSON."""
    code, out, err = bench(*COMPARE, "-q", "-o", form, encoding=encoding)
    assert (code, err) == (0, "")
    expected = comparison(form)
    assert re.findall(r"[\d.]+", out) == re.findall(r"[\d.]+", expected)
    assert out.count("\n") == expected.count("\n")
    if form == "json":
        assert len(json.loads(out)) == len(json.loads(expected))


# -- loads that hang or die --------------------------------------------------------------------------------------------


def loads_of(process: int) -> list[psutil.Process]:
    """The processes that load a file for this one."""
    try:
        children = psutil.Process(process).children(recursive=True)
        return [c for c in children if "webgpu_run.bench.load" in c.cmdline()]
    except psutil.NoSuchProcess:
        return []


def wait_for_load(running: subprocess.Popen[Any]) -> psutil.Process:
    deadline = time.monotonic() + TIMEOUT
    while not (loads := loads_of(running.pid)):
        assert time.monotonic() < deadline
        assert running.poll() is None
        time.sleep(0.01)
    return loads[0]


@contextmanager
def during_a_load(*args: str) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """A command that loads files again and again, and the process of one of its loads."""
    with subprocess.Popen(
        command("load", SMALL, "-r", "500", *args),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as running:
        try:
            yield running, wait_for_load(running)
        finally:
            running.kill()


def is_gone(process: psutil.Process) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_a_load_that_is_killed_is_one_line() -> None:
    with during_a_load("-q") as (running, load):
        load.send_signal(signal.SIGKILL)
        _, err = running.communicate(timeout=TIMEOUT)
        assert running.returncode == 6
        assert err == f"webgpu-bench: error: the load was ended by SIGKILL ({SMALL})\n"


def test_a_load_that_hangs_is_given_up() -> None:
    with during_a_load("-q", "--timeout", "15") as (running, load):
        load.send_signal(signal.SIGSTOP)
        _, err = running.communicate(timeout=TIMEOUT)
        assert running.returncode == 6
        assert err == f"webgpu-bench: error: the load did not end within 15 s ({SMALL})\n"
        assert is_gone(load)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_load_outlives_its_command(number: signal.Signals, tmp_path: Path) -> None:
    """The load would wait forever: where it looks for the result of tuning there is a pipe that nobody writes to."""
    (tmp_path / "webgpu-run").mkdir()
    os.mkfifo(tmp_path / "webgpu-run" / "tune.json")
    code = f"from webgpu_run.bench.load import _child; _child({str(SMALL)!r}, None, 1000)"
    environment = {**ENVIRONMENT, "XDG_CACHE_HOME": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, env=environment) as running:
        load = wait_for_load(running)
        running.send_signal(number)
        running.communicate(timeout=TIMEOUT)
        assert running.returncode == -number
        assert is_gone(load)
