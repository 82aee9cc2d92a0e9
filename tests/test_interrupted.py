"""An exception at any point of a call leaves a model that can be used: see tools/interrupt_calls.py."""

from __future__ import annotations

import subprocess
import sys

from helpers.command import HERE

TOOL = HERE / "tools" / "interrupt_calls.py"


def outcome(*args: str) -> str:
    done = subprocess.run([sys.executable, TOOL, *args], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout


def test_a_signal_at_300_points_of_a_call() -> None:
    """Ctrl-C between map and unmap used to leave a mapped buffer, and the next submission aborted the process."""
    assert outcome("signals", "--count", "300").startswith("300 calls")


def test_an_exception_at_calls_into_wgpu() -> None:
    """Every 31st call of several kinds of calls, before and after it is made; the tool alone takes every one."""
    later, first = (int(line.split()[0]) for line in outcome("wgpu", "--stride", "31").splitlines())
    assert later >= 100
    assert first >= 6


AT_EXIT = """
import atexit, sys, threading
atexit.register(lambda: print(*(thread.name for thread in threading.enumerate())))
"""
COMMAND = "from webgpu_run.cli.entry import webgpu_run; sys.argv[1:] = ['--version']; webgpu_run()"
SCRIPT = f"import webgpu_run; model = webgpu_run.load({str(HERE / 'fixtures' / 'tiny_ptd.pte')!r})"


def at_exit(script: str) -> str:
    """What a process prints whose exit handler prints the names of the threads that still live."""
    command = [sys.executable, "-c", AT_EXIT + script]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_command_ends_without_taking_the_driver_down() -> None:
    """A driver that compiles in a thread crashes if its library is taken down meanwhile."""
    (line,) = at_exit(COMMAND).splitlines()
    assert "MainThread" not in line


def test_a_script_ends_after_the_work_that_it_submitted() -> None:
    names = at_exit(SCRIPT).split()
    assert "MainThread" in names
    assert "waiter" not in names


def test_ctrl_c_while_an_object_is_freed() -> None:
    """An exception in a destructor is printed and forgotten; the interrupt must come again."""
    code = """
import signal, time
import click
from webgpu_run.console.command import Command, run

class Freed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

@click.command(cls=Command)
def command():
    Freed()
    time.sleep(20)

run(command, "webgpu-run", [])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE.parent, capture_output=True, timeout=15)
    assert (done.returncode, done.stderr.strip()) == (130, b"")
