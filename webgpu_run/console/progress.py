"""Progress bars on stderr while loading, compiling and prefilling. They appear only on a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any


class Progress:
    """Call it with `(what, done, total)`; it shows one transient bar per `what`, or nothing if stderr is no terminal.
    A `note` is shown behind the bar.

    With `manual`, a bar is drawn only when it is called. There is no refresh thread, which would take processor time
    from a measurement.
    """

    def __init__(self, *, quiet: bool = False, manual: bool = False) -> None:
        self.manual = manual
        self.is_shown = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._bar: Any = None
        self._tasks: dict[str, Any] = {}

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        if not self.is_shown:
            return
        if self._bar is None:
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as Bars

            from .terminal import stderr_console

            self._bar = Bars(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                console=stderr_console(),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                auto_refresh=not self.manual,
            )
            self._bar.start()
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total, note=note)
        self._bar.update(self._tasks[what], completed=done, total=total, note=note, refresh=self.manual)

    def close(self) -> None:
        """Remove the bars."""
        if self._bar is not None:
            self._bar.stop()
            self._bar, self._tasks = None, {}

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
