"""Ctrl-C and time limits: the first Ctrl-C lets the current token finish, the second one ends the run at once."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator

from ..errors import DeviceError


class Interrupts:
    """Handles SIGINT.

    Inside a `deferred` block, the first Ctrl-C sets `requested`. A second Ctrl-C, and any Ctrl-C outside such a block
    or while `at_once` is set, raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.requested = False
        self.at_once = False
        self._is_deferred = False
        self._expired_limit: float | None = None  # seconds; set when a limit has passed, until the handler has seen it
        self._last_resort: threading.Timer | None = None
        self._in_main_thread = threading.current_thread() is threading.main_thread()
        if self._in_main_thread:
            signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, number: int, frame: types.FrameType | None) -> None:
        if self._expired_limit is not None:
            seconds, self._expired_limit = self._expired_limit, None
            if self._last_resort:
                self._last_resort.cancel()
            raise DeviceError(f"a call took more than {seconds:g} s", hint="--timeout sets the limit")
        if self._is_deferred and not self.requested and not self.at_once:
            self.requested = True
            return
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer Ctrl-C to the end of the current token. Nested blocks share the outer block's `requested`."""
        is_nested = self._is_deferred
        if not is_nested:
            self.requested, self._is_deferred = False, True
        try:
            yield
        finally:
            self._is_deferred = is_nested

    @contextlib.contextmanager
    def limit(self, seconds: float | None) -> Iterator[None]:
        """Raise DeviceError in the main thread if the block takes longer than `seconds`; None means no limit."""
        if not seconds or not self._in_main_thread:
            yield
            return
        timer = threading.Timer(seconds, self._on_expiry, (seconds,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _on_expiry(self, seconds: float) -> None:
        # The main thread may be inside a driver call that never returns to Python, where no handler runs.
        self._last_resort = threading.Timer(max(1.0, min(seconds, 5.0)), _end_process, (seconds,))
        self._last_resort.daemon = True
        self._last_resort.start()
        self._expired_limit = seconds
        if hasattr(signal, "pthread_kill"):  # a real signal also ends a wait in the operating system
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            _thread.interrupt_main(signal.SIGINT)


def _end_process(seconds: float) -> None:
    sys.stderr.write(f"webgpu-run: error: a call took more than {seconds:g} s and does not return\n")
    sys.stderr.flush()
    os._exit(DeviceError.exit_code)
