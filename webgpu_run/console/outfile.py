"""Output files: checked before the work starts, written to a temporary name and renamed."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ..errors import RunError, UsageError


def check_target(path: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]], flag: str) -> Path:
    """The path, if a file can be written there without destroying an input."""
    target = Path(path)
    for given in inputs:
        try:
            same = target.exists() and os.path.samefile(target, given)
        except OSError:
            continue
        if same:
            raise UsageError(f"{flag} would overwrite its own input ({target})")
    if target.is_dir():
        raise UsageError(f"{flag}: is a directory ({target})")
    if not target.parent.is_dir():
        raise UsageError(f"{flag}: no such directory ({target.parent})")
    if not os.access(target.parent, os.W_OK) and not _special(target):
        raise UsageError(f"{flag}: the directory is not writable ({target.parent})")
    return target


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """The whole file or none of it. A device or pipe is written to, never replaced."""
    target = Path(path)
    try:
        if _special(target):
            with open(target, "wb", buffering=0) as out:
                out.write(data)
            return
        fd, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
        try:
            with open(fd, "wb") as out:
                out.write(data)
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):  # an interrupt may come just after the rename
                os.unlink(name)
            raise
    except OSError as error:
        raise RunError(f"cannot write: {(error.strerror or str(error)).lower()} ({target})") from None


def _special(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
