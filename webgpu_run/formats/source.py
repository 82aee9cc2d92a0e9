"""Files as checked byte ranges.

Bytes are read on demand. Files are never memory-mapped, because reading a mapped file that has been truncated raises
SIGBUS; a short read is an error we can report.
"""

from __future__ import annotations

import os
import shlex
import threading
from dataclasses import dataclass, field
from typing import Protocol

from ..assets import EXPORT_HINT
from ..errors import FormatError


class Source(Protocol):
    """Something to read bytes from. Reading past `size`, or past the end of a truncated file, raises FormatError."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    def read(self, offset: int, nbytes: int) -> bytes: ...


class FileSource:
    """An open file. `size` is the size at the time it was opened."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fspath(path)
        self._fd = -1
        self._lock = threading.Lock()
        try:
            if os.path.isdir(self.name):
                raise FormatError(f"is a directory, not a file ({self.name})")
            self._fd = os.open(self.name, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
            stat = os.fstat(self._fd)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise FormatError(f"cannot open: {str(reason).lower()} ({self.name!s})") from None
        self.size = stat.st_size

    def read(self, offset: int, nbytes: int) -> bytes:
        """Read exactly `nbytes` bytes at `offset`."""
        parts: list[bytes] = []
        while nbytes > 0:
            try:
                part = self._pread(min(nbytes, 1 << 30), offset)
            except OSError as error:
                raise FormatError(f"cannot read: {str(error.strerror).lower()} ({self.name})") from None
            if not part:
                raise FormatError(f"file ends at byte {offset:#x}: it was cut short or changed ({self.name})")
            parts.append(part)
            offset += len(part)
            nbytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _pread(self, nbytes: int, offset: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._fd, nbytes, offset)
        with self._lock:  # Windows has no pread
            os.lseek(self._fd, offset, os.SEEK_SET)
            return os.read(self._fd, nbytes)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


@dataclass(frozen=True, slots=True)
class BytesSource:
    """Bytes in memory, with the interface of a file."""

    data: bytes = field(repr=False)
    name: str = "<memory>"

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, nbytes: int) -> bytes:
        """Read exactly `nbytes` bytes at `offset`."""
        part = self.data[offset : offset + nbytes]
        if len(part) != nbytes:
            raise FormatError(f"data ends at byte {len(self.data):#x} ({self.name})")
        return part


@dataclass(frozen=True, slots=True)
class Span:
    """A byte range that was checked to lie inside its source. The bytes are read only when `read` is called."""

    source: Source = field(repr=False)
    offset: int
    nbytes: int

    def read(self, start: int = 0, nbytes: int | None = None) -> bytes:
        """Read `nbytes` bytes from `start`; by default, all bytes from `start` to the end."""
        nbytes = self.nbytes - start if nbytes is None else nbytes
        if start < 0 or nbytes < 0 or start + nbytes > self.nbytes:
            raise FormatError(f"bytes {start}..{start + nbytes} of a range of {self.nbytes} ({self.source.name})")
        return self.source.read(self.offset + start, nbytes)

    def part(self, start: int, nbytes: int) -> Span:
        """A sub-range of this range."""
        if start < 0 or nbytes < 0 or start + nbytes > self.nbytes:
            raise FormatError(f"bytes {start}..{start + nbytes} of a range of {self.nbytes} ({self.source.name})")
        return Span(self.source, self.offset + start, nbytes)

    @staticmethod
    def of(data: bytes) -> Span:
        """A span of all of `data`."""
        return Span(BytesSource(data), 0, len(data))


def looks_like(head: bytes) -> str | None:
    """Guess from its first bytes what a file that is not a .pte contains; None if nothing matches."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower()
    if head[4:8] == b"FT01":
        return "a .ptd data file (weights of a .pte, not a model)"
    if head[4:8] in (b"BP08", b"BP09"):
        return "an ExecuTorch bundled program; export the plain .pte"
    if head[4:6] == b"ET" and head[6:8].isdigit():
        return f"an ExecuTorch file of another version ({head[4:8].decode()}; ET12 is known)"
    if head.startswith(b"version https://git-lfs"):
        return "a git-lfs pointer: the real file was never fetched (git lfs pull)"
    for magic, what in _MAGICS:
        if head.startswith(magic):
            return what
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 100_000_000:
        return "a safetensors file"
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return "an HTML or XML page, perhaps an error page saved by a download"
    if text[:1] in (b"{", b"["):
        return "JSON text"
    if head and all(byte in b"\t\r\n\f\x1b" or byte >= 32 for byte in head) and _is_utf8(head):
        return "text"
    if head and not any(head):
        return "zeros only, perhaps an unfinished download"
    return None


def export_hint(seems: str, name: str) -> str | None:
    """The next step for a file that `looks_like` takes for the weights of a model."""
    if seems.startswith("a GGUF file"):
        return EXPORT_HINT.format(model=shlex.quote(name))
    is_weights = seems.startswith(("a safetensors file", "a zip archive", "a Python pickle"))
    return EXPORT_HINT.replace("from it", "from its Hugging Face folder").format(model="FOLDER") if is_weights else None


def _is_utf8(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4  # the end of `head` may split a character
    return True


_MAGICS = (
    (b"GGUF", "a GGUF file (llama.cpp)"),
    (b"PK\x03\x04", "a zip archive (perhaps a PyTorch checkpoint or .pt2)"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x05", "a Python pickle"),
    (b"\x93NUMPY", "a numpy array"),
    (b"\x89PNG", "a PNG image"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x7fELF", "an ELF program"),
    (b"%PDF", "a PDF"),
    (b"\x08\x07\x12", "an ONNX model"),
    (b"\x08\x08\x12", "an ONNX model"),
)
