"""Output files: whole or not there, whenever a run ends, and no temporary file stays behind."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from webgpu_run.console import outfile

from helpers import killed_runs
from helpers.command import HERE

WRITER = """
import sys
from webgpu_run.console import outfile
real = outfile.os.replace
def wait(source, target):
    print(source, flush=True)
    sys.stdin.read()
    real(source, target)
outfile.os.replace = wait
outfile.write(sys.argv[1], b"theirs")
"""


def test_temporary_files_of_killed_runs_go_with_the_next_write(tmp_path: Path) -> None:
    target = tmp_path / "rows.json"
    processes = [writing(target) for _ in range(3)]
    for process in processes:
        process.kill()
        process.communicate()
    other = tmp_path / ".rows.json.backup.tmp"  # not a name of ours
    other.write_text("mine")
    assert len(list(tmp_path.iterdir())) == 4
    outfile.write(target, b"ours")
    assert sorted(p.name for p in tmp_path.iterdir()) == [other.name, target.name]
    assert target.read_bytes() == b"ours"


def test_the_temporary_file_of_a_live_run_stays(tmp_path: Path) -> None:
    target = tmp_path / "rows.json"
    process = writing(target)
    outfile.write(target, b"ours")
    assert target.read_bytes() == b"ours"
    process.communicate()
    assert process.returncode == 0
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [(target.name, b"theirs")]


def writing(target: Path) -> subprocess.Popen[bytes]:
    """A process that has written its temporary file and waits before it renames it."""
    command = [sys.executable, "-c", WRITER, str(target)]
    process = subprocess.Popen(command, cwd=HERE.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline()
    return process


@pytest.mark.parametrize("scenario", killed_runs.SCENARIOS, ids=lambda s: s.outputs[0])
def test_killed_while_it_writes(scenario: killed_runs.Scenario, tmp_path: Path) -> None:
    """A sample of what `tests/tools/kill_runs.py` does."""
    folder = tmp_path / "out"
    folder.mkdir()
    rng = random.Random(scenario.outputs[0])
    for number in killed_runs.SIGNALS:
        at_write = number is signal.SIGKILL
        assert killed_runs.kill(scenario, folder, number, rng.uniform(*scenario.seconds), at_write=at_write) == ""
    assert killed_runs.finish(scenario, folder) == ""


def test_half_a_file_is_seen(tmp_path: Path) -> None:
    for name, text in (
        ("a.json", '[{"a": 1}]'),
        ("a.jsonl", '{"a": 1}\n{"a": 2}\n'),
        ("a.csv", "a,b\n1,2\n"),
        ("a.html", "<!DOCTYPE html><html></html>\n"),
    ):
        path = tmp_path / name
        path.write_text(text)
        assert killed_runs.is_whole(path)
        path.write_text(text[: len(text) * 2 // 3])
        assert not killed_runs.is_whole(path), name
