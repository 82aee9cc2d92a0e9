"""Output files: checked before the work starts, then written under a temporary name and renamed."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ..errors import RunError, UsageError


def check_target(path: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]], flag: str) -> Path:
    """Check that a file can be written to `path` and that this would not overwrite one of `inputs`."""
    target = Path(path)
    for source in inputs:
        try:
            is_input = target.exists() and os.path.samefile(target, source)
        except OSError:
            continue
        if is_input:
            raise UsageError(f"{flag} would overwrite its own input ({target})")
    if target.is_dir():
        raise UsageError(f"{flag}: is a directory ({target})")
    if not target.parent.is_dir():
        raise UsageError(f"{flag}: no such directory ({target.parent})")
    if not os.access(target.parent, os.W_OK) and not _is_device_or_pipe(target):
        raise UsageError(f"{flag}: the directory is not writable ({target.parent})")
    return target


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write the whole file or nothing. A device or pipe is written to directly, never replaced."""
    target = Path(path)
    try:
        if _is_device_or_pipe(target):
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
            with contextlib.suppress(FileNotFoundError):  # an interrupt may arrive just after the rename
                os.unlink(name)
            raise
    except OSError as error:
        raise RunError(f"cannot write: {(error.strerror or str(error)).lower()} ({target})") from None


def _is_device_or_pipe(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
