"""The two output streams: stdout carries the result, stderr everything else."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 10_000  # columns of a stream that is no terminal: a folded table is hard to search


class _Pipe:
    """A stream that is no terminal. Spaces at the ends of lines, which rich pads tables with, are removed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(re.sub(" +(?=\n)", "", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def stdout_console() -> Console:
    """A rich console for stdout."""
    from rich.console import Console

    class Stdout(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Stdout(markup=False, highlight=False, emoji=False, **_file_and_width(sys.stdout))


def stderr_console() -> Console:
    """A rich console for stderr."""
    from rich.console import Console

    return Console(stderr=True, markup=False, highlight=False, emoji=False, **_file_and_width(sys.stderr))


def _file_and_width(stream: TextIO) -> dict[str, Any]:
    """Console settings for a stream; rich's defaults if it is a terminal."""
    if stream.isatty():
        return {}
    return {"file": _Pipe(stream), "width": None if os.environ.get("COLUMNS") else PIPE_WIDTH}


def open_missing_streams() -> None:
    """Open the standard streams that were closed when the process started, as with `2>&-`.

    Otherwise the next file we open would get the number of that stream, and a driver that prints would write into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def abandon_stdout() -> None:
    """Redirect stdout to nowhere. Python flushes it once more at exit, and would report the closed pipe there."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def plural(count: int, noun: str) -> str:
    """Such as `1 round` or `2 rounds`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def one_line(text: str) -> str:
    """The text on one line, with control characters replaced."""
    words = " ".join(text.split())
    safe = "".join(c if c.isprintable() else "\ufffd" for c in words)
    return safe.encode("utf-8", "replace").decode()
