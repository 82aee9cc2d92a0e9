"""The two output streams: stdout carries the result, stderr everything else."""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 10_000  # columns of a stream that is no terminal: a folded table is hard to search
LONGEST_LINE = 2000  # characters of an error line; a file can contain names of any length
_TAIL = 400  # characters kept of the end of a longer line, where the file is named
_PLAIN = str.maketrans(
    {"→": "->", "≤": "<=", "×": "x", "✓": "+", "✗": "x", "█": "#", "■": "#", "░": ".", "·": "-", "–": "-"}
    | {"µ": "u", "±": "+-", "…": "...", "─": "-", "━": "-", "°": " "}
)


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


def prepare_streams() -> None:
    """Make the standard streams accept any text.

    Streams that were closed when the process started, as with `2>&-`, are opened. Otherwise the next file we open
    would get the number of that stream, and a driver that prints would write into it. Characters that the encoding
    of stdout or stderr lacks (cp1252 is common on Windows) become similar ones; bytes of stdin that are no text become
    U+FFFD.
    """
    codecs.register_error("webgpu-run", _similar)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="webgpu-run" if number else "replace")


def _similar(error: UnicodeError) -> tuple[str, int]:
    """A codec error handler: ASCII that resembles the characters that cannot be encoded."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return "".join(c if c.isascii() else "?" for c in text), error.end


def abandon_stdout() -> None:
    """Redirect stdout to nowhere. Python flushes it once more at exit, and would report the closed pipe there."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def plural(count: int, noun: str) -> str:
    """Such as `1 round` or `2 rounds`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def one_line(text: str) -> str:
    """The text on one line of at most LONGEST_LINE characters, with control characters replaced."""
    if len(text) > 4 * LONGEST_LINE:  # a text of many megabytes need not be searched for its words
        text = f"{text[: 2 * LONGEST_LINE]} … {text[-2 * LONGEST_LINE :]}"
    words = " ".join(text.split())
    if len(words) > LONGEST_LINE:
        words = f"{words[: LONGEST_LINE - _TAIL - 3]} … {words[-_TAIL:]}"
    safe = "".join(c if c.isprintable() else "\ufffd" for c in words)
    return safe.encode("utf-8", "replace").decode()
