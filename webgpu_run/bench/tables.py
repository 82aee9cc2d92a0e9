"""Benchmark rows on stdout or in a file, as they finish: aligned text, Markdown, CSV, JSON, or JSON lines."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from ..console import outfile
from ..console.terminal import one_line
from ..errors import RunError

FORMATS = ("table", "md", "csv", "json", "jsonl")
# 1 had the shares of submissions as the latency of decode, and fewer settings. 2 had no live comparisons and no energy.
# 3 had the time between two tokens as the latency of decode.
SCHEMA = 4

Row = dict[str, Any]

_LEFT = (
    "backend",
    "profile",
    "first token",
    "first op",
    "model",
    "kv",
    "device",
    "test",
    "op",
    "case",
    "route",
    "for",
    "what",
    "verdict",
    "M×K×N",
    "nearer limit",
    "file",
)
_SHARED = ("model", "size", "params", "kv", "device")


@dataclass(frozen=True, slots=True)
class View:
    """How rows of a kind are shown: cells by column for people, dotted paths into the row for CSV."""

    cells: Callable[[Row], dict[str, str]]
    paths: tuple[str, ...]
    spare: tuple[str, ...] = ()  # columns that a narrow terminal hides, in this order

    def without(self, *columns: str) -> View:
        """This view without these columns."""
        return replace(self, cells=lambda row: {c: text for c, text in self.cells(row).items() if c not in columns})


class LineFile:
    """A file that grows line by line, so that finished lines survive if the run is killed.

    A line that cannot be written completely leaves nothing behind.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._file = open(path, "wb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._error(error) from None

    def write(self, text: str) -> None:
        rest = memoryview(text.encode())
        end = self._file.seek(0, os.SEEK_END) if self._file.seekable() else 0
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(end)
            raise self._error(error) from None

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        self._file.close()

    def _error(self, error: OSError) -> RunError:
        return RunError(f"cannot write: {(error.strerror or str(error)).lower()} ({self.path})")


class Sink:
    """Takes rows one by one (`row`) or all rows so far (`show`); `close` completes the output."""

    def __init__(self, form: str, view: View, todo: Sequence[Row] = (), out: str | None = None) -> None:
        """`todo` has what is known of the rows beforehand: column widths are taken from it."""
        self.form, self.view, self.path = form, view, out
        self.rows: list[Row] = []
        self._text = io.StringIO()
        self._file: TextIO | LineFile | None = sys.stdout if out is None else None
        self._started = False  # whether a heading was written
        self._lines = 0  # lines on the terminal that the next table replaces
        self._whole = False  # whether rows come through `show`
        self._waiting = False  # whether such rows are not yet written
        self._widths: dict[str, int] = {}
        self._fixed: list[str] = []  # columns that are shown above the rows that have the same cells in them
        self._about = ""  # what they were in the last row
        self._hidden: list[str] = []  # columns that the terminal has no room for
        self._narrow = False  # whether there is a terminal that the table must fit
        if form in ("table", "md"):
            self._measure([view.cells(row) for row in todo])

    def row(self, row: Row) -> None:
        """One more row, which will not change."""
        if self._file is None and self.form == "jsonl" and self.path:
            self._file = LineFile(self.path)
        self.rows.append(row)
        self._put(self._rendered(row))

    def show(self, rows: Sequence[Row]) -> None:
        """All rows so far, instead of those shown before: a file is rewritten, and a table on a terminal is updated."""
        self.rows = list(rows)
        self._whole = self._waiting = True
        if self.path is not None or self._live():
            self._all()

    def close(self) -> None:
        """Write what is not yet written, also after an interrupt."""
        if self._waiting:
            self._all()
        elif not self._whole:
            self._put(_array(self.rows) if self.form == "json" else "")
            if self.path and self._file:
                self._file.close()
            elif self.path and self.rows:  # a run that ended before its first row leaves an older file as it is
                outfile.write(self.path, self._text.getvalue().encode())

    def _live(self) -> bool:
        """Whether rows can be replaced on the terminal: all must be on the screen, on one line each."""
        if not self._narrow or os.environ.get("TERM") == "dumb":
            return False
        self._fit()
        room = shutil.get_terminal_size()
        return self._wide() <= room.columns and len(self.rows) + 3 < room.lines

    def _all(self) -> None:
        self._fit()
        self._started = False
        text = _array(self.rows) if self.form == "json" else "".join(self._rendered(row) for row in self.rows)
        if self.path:
            outfile.write(self.path, text.encode())
        else:
            self._put((f"\x1b[{self._lines}A\x1b[J" if self._lines else "") + text)
            self._lines = text.count("\n")
        self._waiting = False

    def _rendered(self, row: Row) -> str:
        first, self._started = not self._started, True
        if self.form == "jsonl":
            return json.dumps(row, ensure_ascii=False) + "\n"
        if self.form == "csv":
            return self._csv(row, first)
        return self._line(self.view.cells(row), first) if self.form in ("table", "md") else ""

    def _put(self, text: str) -> None:
        target = self._file or self._text
        target.write(text)
        target.flush()

    def _csv(self, row: Row, first: bool) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if first:
            writer.writerow(path.replace(".", "_") for path in self.view.paths)
        writer.writerow(_cell(row, path) for path in self.view.paths)
        return text.getvalue()

    def _measure(self, todo: list[dict[str, str]]) -> None:
        """Set column widths from what is known beforehand."""
        for column in todo[0] if todo else ():
            self._widths[column] = max(len(column), *(len(cells[column]) for cells in todo))
        self._narrow = self.form == "table" and self.path is None and sys.stdout.isatty()
        if self._narrow and self._wide() > _columns():
            self._fixed = [c for c in _SHARED if c in self._widths and len({cells[c] for cells in todo}) == 1]
        self._fit()
        for column in ("op", "case"):  # long, and the same in many rows
            if self._narrow and column in self._widths and (self._hidden or self._wide() > _columns()):
                self._fixed.append(column)
                self._fit()

    def _wide(self) -> int:
        """Width of a line of the columns that are shown."""
        shown = [width for c, width in self._widths.items() if c not in (*self._fixed, *self._hidden)]
        return sum(shown) + 2 * len(shown) - 2

    def _fit(self) -> None:
        """Set widths for all rows so far, and hide columns until the table fits the terminal."""
        for row in self.rows if self.form in ("table", "md") else ():
            self._widen(self.view.cells(row))
        self._hidden = []
        for column in self.view.spare if self._narrow else ():
            if column in self._widths and self._wide() > _columns():
                self._hidden.append(column)

    def _widen(self, cells: dict[str, str]) -> None:
        for column, text in cells.items():
            self._widths[column] = max(self._widths.get(column, len(column)), len(text))

    def _line(self, cells: dict[str, str], first: bool) -> str:
        self._widen(cells)
        shown = {c: text for c, text in cells.items() if c not in (*self._fixed, *self._hidden)}
        # cut to one line, because lines are counted when the table is replaced
        about = " · ".join(cells[c] for c in self._fixed)[: _columns()]
        head = about + "\n" if self._fixed and (first or about != self._about) else ""
        self._about = about
        if first:
            head += self._joined({c: c for c in shown})
            if self.form == "md":
                head += self._ruler(list(shown))
        return head + self._joined(shown)

    def _joined(self, cells: dict[str, str]) -> str:
        padded = [
            text.ljust(self._widths[c]) if c in _LEFT else text.rjust(self._widths[c]) for c, text in cells.items()
        ]
        return f"| {' | '.join(padded)} |\n" if self.form == "md" else "  ".join(padded).rstrip() + "\n"

    def _ruler(self, columns: list[str]) -> str:
        marks = [("-" * self._widths[c]) if c in _LEFT else "-" * (self._widths[c] - 1) + ":" for c in columns]
        return f"| {' | '.join(marks)} |\n"


def _columns() -> int:
    return shutil.get_terminal_size().columns


@dataclass(frozen=True, slots=True)
class Sinks:
    """Where rows go: stdout in the requested format, and a file, if there is one, in the format of its ending."""

    all: tuple[Sink, ...]

    def row(self, row: Row) -> None:
        self._each(lambda sink: sink.row(row))

    def show(self, rows: Sequence[Row]) -> None:
        self._each(lambda sink: sink.show(rows))

    def _each(self, action: Callable[[Sink], None]) -> None:
        """Do this to all sinks in order, also to those after one that fails."""
        with ExitStack() as actions:
            for sink in reversed(self.all):
                actions.callback(action, sink)


@contextmanager
def sinks(form: str | None, out: str | None, view: View, todo: Sequence[Row] = ()) -> Iterator[Sinks]:
    """Rows for stdout and, if `out` is given, for a file. Both are completed even if one of them cannot be written."""
    with ExitStack() as closing:
        stdout = Sink(form or "table", view, todo)
        closing.callback(stdout.close)
        if not out:
            yield Sinks((stdout,))
            return
        file = Sink(form_of(form, out), view, todo, out)
        closing.callback(file.close)
        yield Sinks((file, stdout))  # the file first, because stdout may be a closed pipe


def _array(rows: Sequence[Row]) -> str:
    inner = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f"[\n{inner}\n]\n"


def warn(text: str, quiet: bool) -> None:
    if not quiet:
        print(f"warning: {one_line(text)}", file=sys.stderr, flush=True)


def value_at(row: Row, path: str) -> Any:
    """The value at a dotted path; None if there is none."""
    found: Any = row
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _cell(row: Row, path: str) -> Any:
    """The value at a dotted path for CSV; the items of a list are joined."""
    found = value_at(row, path)
    return " ".join(map(str, found)) if isinstance(found, list) else found


def form_of(form: str | None, out: str) -> str:
    """The format of a file: that of its ending, or the requested one, or a table."""
    ending = Path(out).suffix[1:].lower()
    return ending if ending in FORMATS else form or "table"


def number(x: float | None, digits: int = 4) -> str:
    """A number with this many significant digits, at most three decimals, and never an exponent."""
    if x is None:
        return "–"
    if x == 0:
        return "0"
    size = len(str(int(abs(x)))) if abs(x) >= 1 else 1
    return f"{x:,.{max(0, min(3, digits - size))}f}"


def bytes_text(n: int | None) -> str:
    """A size as llama-bench writes it: 84.90 MiB."""
    if n is None:
        return "–"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n} B"


def params_text(n: int | None) -> str:
    if n is None:
        return "–"
    for unit, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if n >= size:
            return f"{n / size:.2f} {unit}"
    return str(n)


def interval_text(row: Row) -> str:
    """Half the width of the 95% interval, as a share of the mean."""
    low, high = row.get("ci95") or (None, None)
    if low is None or high is None:
        return "–"
    share = (high - low) / 2 / row["mean"]
    return f"±{share:.1%}" if share < 1 else "over 100%"
