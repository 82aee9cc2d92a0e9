"""Progress on stderr while loading, compiling and prefilling: only on a terminal, and gone when the text starts."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any


class Progress:
    """Takes `(what, done, total)`; shows one transient bar, or nothing. A still one is drawn only when it is told
    something: measurements share the processor with nobody."""

    def __init__(self, *, quiet: bool = False, still: bool = False) -> None:
        self.still = still
        self.shown = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._bar: Any = None
        self._tasks: dict[str, Any] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        if not self.shown:
            return
        if self._bar is None:
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as Bars

            from .terminal import aside

            columns = TextColumn("{task.description}", markup=False), BarColumn(bar_width=20), MofNCompleteColumn()
            self._bar = Bars(
                *columns,
                console=aside(),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                auto_refresh=not self.still,
            )
            self._bar.start()
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total)
        self._bar.update(self._tasks[what], completed=done, total=total, refresh=self.still)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar, self._tasks = None, {}

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
