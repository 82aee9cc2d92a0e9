"""What fits itself to a narrow terminal: parts of a line that are never split, and bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text


@dataclass(frozen=True)
class Parts:
    """Short texts side by side, as many as fit on a line. A part is split only if it is longer than a line."""

    parts: Sequence[Text]
    between: str = " · "

    @classmethod
    def of(cls, line: str, between: str = " · ") -> Parts:
        return cls([Text(part) for part in line.split(between)], between)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line, room = Text(), options.max_width - len(self.between.rstrip())
        for part in self.parts:
            if line and len(line) + len(self.between) + len(part) > room:
                yield line.append(self.between.rstrip())
                line = Text()
            line = (line.append(self.between) if line else line).append_text(part)
        yield line

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        lengths = [len(part) for part in self.parts] or [0]
        return Measurement(max(lengths), sum(lengths) + len(self.between) * (len(lengths) - 1))


def print_line(console: Console, line: str, style: str | None = None) -> None:
    """Print one line. On a terminal it is wrapped between its parts, or between words."""
    if console.is_terminal:
        console.print(Parts.of(line), style=style)
    else:
        console.print(line, style=style, soft_wrap=True)


@dataclass(frozen=True)
class TextBar:
    """A bar of `length` columns, or of those that there are: shares of it, each with its character and style."""

    shares: Sequence[tuple[float, str, str]]
    length: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        length, bar, end = min(self.length, options.max_width), Text(no_wrap=True), 0.0
        for share, char, style in self.shares:
            start, end = end, end + share
            bar.append(char * (round(end * length) - round(start * length)), style)
        yield bar

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(4, self.length)
