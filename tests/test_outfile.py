"""Output files: whole or not there, whenever a run ends, and no temporary file stays behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from webgpu_run.console import outfile

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
