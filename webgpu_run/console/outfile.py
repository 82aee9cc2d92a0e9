"""Output files: checked before the work starts, then written under a temporary name and renamed."""

from __future__ import annotations

import contextlib
import glob
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
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
        _remove_abandoned(target)
        fd, name = tempfile.mkstemp(prefix=_prefix(target), suffix=".tmp", dir=target.parent)
        try:
            with contextlib.ExitStack() as until_renamed:
                with open(fd, "wb") as out:
                    with contextlib.suppress(OSError):  # no locks on this file system: then nothing is removed either
                        until_renamed.enter_context(_locked(fd))
                    out.write(data)
                os.chmod(name, 0o666 & ~_umask())
                os.replace(name, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):  # an interrupt may arrive just after the rename
                os.unlink(name)
            raise
    except OSError as error:
        raise RunError(f"cannot write: {(error.strerror or str(error)).lower()} ({target})") from None


def _prefix(target: Path) -> str:
    return f".{target.name[:40]}."


def _remove_abandoned(target: Path) -> None:
    """Delete the temporary files that killed runs left behind for this target. A live writer locks its own."""
    for path in target.parent.glob(glob.escape(_prefix(target)) + "????????.tmp"):
        with contextlib.suppress(OSError), open(path, "rb") as file, _locked(file.fileno()):
            path.unlink()  # on Windows this fails anyway while a writer has the file open


@contextlib.contextmanager
def _locked(fd: int) -> Iterator[None]:
    """Lock a file, also after `fd` is closed; an OSError if another process has locked it."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    own = os.dup(fd)
    try:
        fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(own)


def _is_device_or_pipe(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
