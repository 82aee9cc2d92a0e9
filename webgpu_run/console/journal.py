"""A journal of rows that are done, so that a run that was killed can continue and write its output whole."""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import UsageError
from . import outfile

MAGIC = "webgpu-run journal 1"


class Journal:
    """Rows of an output file, in the order in which they were done, in a file beside it.

    `key` says what the rows depend on, each part under a name that an error can show. A journal with another key is
    refused. Each line has a checksum: a line that a kill or a power failure cut short is dropped, with all after it.
    """

    def __init__(self, output: str | os.PathLike[str], key: Mapping[str, Any]) -> None:
        self.output = Path(output)
        self.path = self.output.with_name(self.output.name + ".journal")
        self.header: dict[str, Any] = {"journal": MAGIC, "key": dict(key)}
        self._places: dict[int, tuple[int, int]] = {}  # row -> start and end of its text in the file
        self._end = 0
        self._exit = contextlib.ExitStack()
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        except OSError as error:
            raise outfile.write_error(error, self.path) from None
        self._exit.callback(os.close, self._fd)
        try:
            self._exit.enter_context(outfile.locked(self._fd))
        except BlockingIOError:
            self._exit.close()
            raise UsageError(f"another process is writing it ({self.path})") from None
        except OSError:
            pass  # this file system has no locks
        try:
            self._read()
        except BaseException:
            self._exit.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()
        if not self._end:
            self._remove()

    def __contains__(self, row: int) -> bool:
        return row in self._places

    def __len__(self) -> int:
        return len(self._places)

    @property
    def seed(self) -> int | None:
        """The seed that the first of these runs drew."""
        seed: int | None = self.header.get("seed")
        return seed

    def begin(self, seed: int | None) -> None:
        """Write the header, unless an earlier run did."""
        if not self._end:
            self.header["seed"] = seed
            self._append(json.dumps(self.header))

    def add(self, row: int, value: Mapping[str, Any]) -> None:
        """Append a row. When this returns, a kill cannot lose it."""
        text = json.dumps(value, ensure_ascii=False)
        start = self._append(f"{row} {text}")
        self._places[row] = start + len(str(row)) + 1, start + len(str(row)) + 1 + len(text.encode())

    def finish(self) -> None:
        """Write all rows to the output, in order, and remove the journal."""
        try:
            with outfile.writing(self.output) as file:
                for row in sorted(self._places):
                    start, end = self._places[row]
                    file.write(_read_at(self._fd, start, end) + b"\n")
        except OSError as error:
            raise outfile.write_error(error, self.output) from None
        self._exit.close()
        self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    def _append(self, text: str) -> int:
        """Write a line with its checksum; returns where the text starts."""
        data = text.encode()
        line = b"%08x %s\n" % (zlib.crc32(data), data)
        try:
            os.lseek(self._fd, self._end, os.SEEK_SET)
            left = memoryview(line)
            while left:
                left = left[os.write(self._fd, left) :]
            os.fsync(self._fd)
        except OSError as error:
            raise outfile.write_error(error, self.path) from None
        start, self._end = self._end + 9, self._end + len(line)
        return start

    def _read(self) -> None:
        data = _read_at(self._fd, 0, os.fstat(self._fd).st_size)
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            text = data[at + 9 : end]
            if data[at : at + 9] != b"%08x " % zlib.crc32(text):
                break
            if at:
                row, space, _ = text.partition(b" ")
                self._places[int(row)] = at + 9 + len(row + space), end
            else:
                self._check_header(text)
            at = self._end = end + 1
        start = json.dumps({"journal": MAGIC})[:-1].encode()
        if not self._end and data[9 : 9 + len(start)] != start[: max(0, len(data) - 9)]:
            raise UsageError(f"this is not a journal of ours, and it is in the way ({self.path})")
        os.ftruncate(self._fd, self._end)

    def _check_header(self, text: bytes) -> None:
        try:
            header = json.loads(text)
            known, wanted = header["key"], json.loads(json.dumps(self.header["key"]))
            is_ours = header["journal"] == MAGIC
        except (ValueError, KeyError, TypeError):
            is_ours = False
        if not is_ours:
            raise UsageError(f"this is not a journal of ours, and it is in the way ({self.path})")
        other = [name for name in {**known, **wanted} if known.get(name) != wanted.get(name)]
        if other:
            raise UsageError(
                f"the journal is that of a run with another {', '.join(other)} ({self.path})",
                hint="choose another --out, or delete the journal to start again",
            )
        self.header = header


def _read_at(fd: int, start: int, end: int) -> bytes:
    os.lseek(fd, start, os.SEEK_SET)
    parts = []
    while start < end and (part := os.read(fd, end - start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)
