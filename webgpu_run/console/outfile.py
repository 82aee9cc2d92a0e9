"""Output files: checked before the work starts, then written under a temporary name and renamed."""

from __future__ import annotations

import contextlib
import glob
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

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
    try:
        with writing(path) as file:
            file.write(data)
    except OSError as error:
        raise write_error(error, path) from None


def write_error(error: OSError, path: str | os.PathLike[str]) -> RunError:
    return RunError(f"cannot write: {(error.strerror or str(error)).lower()} ({path})")


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file that appears at `path`, complete, when the block ends without an error. Raises OSError."""
    target = Path(path)
    if _is_device_or_pipe(target):
        with open(target, "wb", buffering=0) as out:
            yield out
        return
    _remove_abandoned(target)
    fd, name = tempfile.mkstemp(prefix=_prefix(target), suffix=".tmp", dir=target.parent)
    try:
        with contextlib.ExitStack() as until_renamed:
            with open(fd, "wb") as out:
                with contextlib.suppress(OSError):  # no locks on this file system: then nothing is removed either
                    until_renamed.enter_context(locked(fd))
                yield out
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):  # an interrupt may arrive just after the rename
            os.unlink(name)
        raise


def _prefix(target: Path) -> str:
    return f".{target.name[:40]}."


def _remove_abandoned(target: Path) -> None:
    """Delete the temporary files that killed runs left behind for this target. A live writer locks its own."""
    for path in target.parent.glob(glob.escape(_prefix(target)) + "????????.tmp"):
        with contextlib.suppress(OSError), open(path, "rb") as file, locked(file.fileno()):
            path.unlink()  # on Windows this fails anyway while a writer has the file open


@contextlib.contextmanager
def locked(fd: int) -> Iterator[None]:
    """Lock a file, also after `fd` is closed; an OSError if another process has locked it."""
    try:
        import fcntl
    except ImportError:  # on Windows
        yield
        return
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
