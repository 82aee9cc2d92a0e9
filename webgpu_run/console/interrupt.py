"""Ctrl-C and time limits: the first Ctrl-C lets the token finish, the second ends at once; so does a late call."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator

from ..errors import DeviceError


class Interrupts:
    """While `deferred`, Ctrl-C sets `asked` and calls `notice`; a second one, or one at any other time, raises
    KeyboardInterrupt."""

    def __init__(self) -> None:
        self.asked = False
        self.notice: Callable[[], None] = lambda: None
        self._deferred = False
        self._late: float | None = None
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, number: int, frame: types.FrameType | None) -> None:
        if self._late is not None:
            raise DeviceError(f"a call took more than {self._late:g} s", hint="--timeout sets the limit")
        if self._deferred and not self.asked:
            self.asked = True
            self.notice()
            return
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Ctrl-C waits for the end of the token; inside another such block, what it was told counts too."""
        inside = self._deferred
        if not inside:
            self.asked, self._deferred = False, True
        try:
            yield
        finally:
            self._deferred = inside

    @contextlib.contextmanager
    def limit(self, seconds: float | None) -> Iterator[None]:
        """The block may take this long."""
        if not seconds or not self._main:
            yield
            return
        timer = threading.Timer(seconds, self._on_time, (seconds,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _on_time(self, seconds: float) -> None:
        self._late = seconds
        _thread.interrupt_main(signal.SIGINT)
        # The main thread may sit in a driver that never comes back to Python.
        stuck = threading.Timer(max(1.0, min(seconds, 5.0)), _give_up, (seconds,))
        stuck.daemon = True
        stuck.start()


def _give_up(seconds: float) -> None:
    sys.stderr.write(f"webgpu-run: error: a call took more than {seconds:g} s and does not return\n")
    sys.stderr.flush()
    os._exit(DeviceError.exit_code)
