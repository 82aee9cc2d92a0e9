"""The errors users see: each carries its exit code, and ends as one line on stderr."""

from __future__ import annotations


class RunError(Exception):
    """Base of every error this package raises on purpose; `hint` is at most one more line."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(RunError):
    """The call itself is wrong: a bad flag value, a missing argument."""

    exit_code = 2


class FormatError(RunError):
    """The file is missing, corrupt, truncated, or not a .pte at all."""

    exit_code = 3


class MissingDataError(FormatError):
    """The file names weights that it does not hold: they are in a .ptd file."""


class UnsupportedError(RunError):
    """The file is well formed but asks for an op, dtype or version we do not have."""

    exit_code = 4


class ShapeError(RunError):
    """A shape, limit or context overflow."""

    exit_code = 5


class DeviceError(RunError):
    """No adapter, a lost device, or out of memory."""

    exit_code = 6


class CheckError(RunError):
    """A numeric check failed."""

    exit_code = 7


class GraphError(UnsupportedError):
    """The graph cannot be run as written: an id, an order or an argument that makes no sense."""
