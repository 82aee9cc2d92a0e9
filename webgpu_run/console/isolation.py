"""`--isolate`: the run in a child process, so that a crash of the driver ends as an error line and not as a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from ..errors import DeviceError

MARK = "WEBGPU_RUN_INSIDE"


def inside() -> bool:
    """This process is the child."""
    return os.environ.get(MARK) == str(os.getppid())


def run_child(args: Sequence[str]) -> int:
    """The same command in a child with our standard streams: its exit code, DeviceError if a signal ended it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the child by itself, and its answer counts
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", __package__.partition(".")[0], *args],
            env={**os.environ, MARK: str(os.getpid())},
            preexec_fn=_default_sigint if os.name == "posix" else None,
        )
        signal.signal(signal.SIGTERM, lambda number, frame: child.terminate())
        code = int(child.wait())
    finally:
        signal.signal(signal.SIGINT, before)
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
