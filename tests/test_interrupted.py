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
