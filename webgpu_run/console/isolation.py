"""`--isolate`: run in a child process, so that a crash of the driver becomes an error line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from ..errors import DeviceError

PARENT_ID = "WEBGPU_RUN_INSIDE"  # environment variable that tells the child which process started it


def is_child() -> bool:
    """True in the child process that `run_child` started."""
    return os.environ.get(PARENT_ID) == str(os.getppid())


def run_child(args: Sequence[str]) -> int:
    """Run the command in a child process that shares our standard streams.

    Returns the exit code of the child. Raises DeviceError if a signal ended it.
    """
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends Ctrl-C to the child too, which decides
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", __package__.partition(".")[0], *args],
            env={**os.environ, PARENT_ID: str(os.getpid())},
            preexec_fn=_default_sigint if os.name == "posix" else None,
        )
        signal.signal(signal.SIGTERM, lambda number, frame: child.terminate())
        code = int(child.wait())
    finally:
        signal.signal(signal.SIGINT, previous)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if code == -signal.SIGTERM:
        return 128 + signal.SIGTERM
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        raise DeviceError(
            f"the run was ended by {name}", hint="the driver crashed or memory ran out; --device picks another"
        )
    return code


def _default_sigint() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
