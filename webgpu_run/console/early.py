"""Ctrl-C before the command has been imported: the process ends quietly, with the exit code of an interrupt."""

import _signal  # type: ignore[import-not-found]  # `signal`, which wraps it, takes milliseconds to import
import os

INTERRUPTED = 130


def exit_on_interrupt(number: int, frame: object) -> None:
    """A signal handler for the time in which nothing has been printed or written yet."""
    os._exit(INTERRUPTED)


def guard_imports() -> None:
    """Install the handler, unless the process was started with SIGINT ignored, as with nohup."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, exit_on_interrupt)
