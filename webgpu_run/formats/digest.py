"""The identity of a model: a hash of every byte of its files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from .pte import Program
from .source import FileSource, Source

_PART = 4 << 20  # bytes that one thread hashes at a time


def digest(program: Program) -> str:
    """SHA-256, as hex digits, of the hashes of all parts of the .pte file and of the .ptd files that came with it."""
    sources: dict[str, Source] = {program.path: FileSource(program.path)}
    for span in chain(program.segments, program.constants, program.named.values()):
        sources.setdefault(span.source.name, span.source)
    total = hashlib.sha256()
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        for source in sources.values():
            total.update(f"{source.size} ".encode())
            for part in threads.map(lambda at, s=source: _hash(s, at), range(0, source.size, _PART)):
                total.update(part)
    return total.hexdigest()


def digest_ahead(program: Program) -> Callable[[], str]:
    """Begin to compute the digest in the background; the result waits for it."""
    threads = ThreadPoolExecutor(1)
    found = threads.submit(digest, program)
    threads.shutdown(wait=False)
    return found.result


def _hash(source: Source, at: int) -> bytes:
    return hashlib.sha256(source.read(at, min(_PART, source.size - at))).digest()
