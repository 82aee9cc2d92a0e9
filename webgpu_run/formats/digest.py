"""The identity of a model: a hash of every byte of its files."""

from __future__ import annotations

import hashlib
from itertools import chain

from .pte import Program
from .source import FileSource, Source

_PART = 4 << 20


def digest(program: Program) -> str:
    """SHA-256 of the .pte file and of the .ptd files that it was loaded with, as hex digits."""
    sources: dict[str, Source] = {program.path: FileSource(program.path)}
    for span in chain(program.segments, program.constants, program.named.values()):
        sources.setdefault(span.source.name, span.source)
    total = hashlib.sha256()
    for source in sources.values():
        total.update(f"{source.size} ".encode())
        for at in range(0, source.size, _PART):
            total.update(source.read(at, min(_PART, source.size - at)))
    return total.hexdigest()
