"""KV caches in files, so that a prefix is prefilled once and not once per process.

A file is a magic line, the length of a JSON header, the header, the bytes of every cache, and a SHA-256 of all this. It
can be used only with the same model, KV type, layout of the caches and version of this package.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..console import outfile
from ..errors import FormatError
from ..runtime import state
from ..version import __version__
from .session import Session

MAGIC = b"webgpu-run KV 1\n"
ChatPart = tuple[str, list[int]]  # a question or reply, as text and as tokens
_SHA = 32
_HEADER = 64 << 20  # most bytes of a header


def save(
    path: str | os.PathLike[str], session: Session, model: str, count: int, chat: Sequence[ChatPart], extra: Any
) -> None:
    """Write the first `count` positions of the session. `model` is the digest of the model, `extra` any JSON value."""
    session.decoder.settle()
    caches = state.parts(session.model)
    data = [part.read(count) for part in caches]
    header = {**_key(session, model, caches), "ids": session.ids[:count], "sizes": [len(d) for d in data]}
    text = json.dumps({**header, "chat": chat, "extra": extra}).encode()
    start = MAGIC + len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(start)
    for content in data:
        digest.update(content)
    outfile.write(path, b"".join((start, *data, digest.digest())))


def load(path: str | os.PathLike[str], session: Session, model: str) -> tuple[list[ChatPart], Any]:
    """Fill the session from a file; returns its chat and `extra`. FormatError if it does not fit."""
    caches = state.parts(session.model)
    most = sum(part.nbytes for part in caches) + _HEADER
    try:
        if os.path.getsize(path) > most:
            raise FormatError(f"it is larger than the caches of this model ({path})")
        content = memoryview(Path(path).read_bytes())
    except OSError as error:
        raise FormatError(f"{(error.strerror or str(error)).lower()} ({path})") from None
    head = len(MAGIC) + 8
    if len(content) < head + _SHA or content[: len(MAGIC)] != MAGIC:
        raise FormatError(f"it is not a prompt cache ({path})")
    if hashlib.sha256(content[:-_SHA]).digest() != content[-_SHA:]:
        raise FormatError(f"it is damaged ({path})")
    end = head + int.from_bytes(content[len(MAGIC) : head], "little")
    try:
        header = json.loads(bytes(content[head:end])) if end <= len(content) - _SHA else {}
        ids, sizes, extra = header["ids"], header["sizes"], header["extra"]
        chat = [(str(text), [int(i) for i in tokens]) for text, tokens in header["chat"]]
        key = {name: header[name] for name in _key(session, model, caches)}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FormatError(f"it is damaged ({path})") from None
    other = [name for name, value in _key(session, model, caches).items() if key[name] != value]
    if other:
        raise FormatError(f"it is that of another {other[0]} ({path})")
    whole = isinstance(ids, list) and all(type(i) is int and 0 <= i < session.interface.vocab for i in ids)
    if not whole or not 0 < len(ids) <= session.capacity or not _fit(sizes, caches, len(content) - _SHA - end):
        raise FormatError(f"it is damaged ({path})")
    session.rewind(0)
    state.restore(caches, _split(content[end:-_SHA], sizes))
    session.ids[:] = ids
    return chat, extra


def _key(session: Session, model: str, caches: list[state.Part]) -> dict[str, Any]:
    return {
        "model": model,
        "KV type": session.model.device.limits.kv,
        "version of webgpu-run": __version__,
        "layout of the caches": [part.layout for part in caches],
    }


def _fit(sizes: Any, caches: list[state.Part], total: int) -> bool:
    """Whether these are sizes that `Part.write` can take."""
    if not isinstance(sizes, list) or len(sizes) != len(caches) or not all(type(n) is int for n in sizes):
        return False
    return sum(sizes) == total and all(part.can_hold(n) for n, part in zip(sizes, caches, strict=True))


def _split(content: memoryview, sizes: list[int]) -> list[memoryview]:
    out, at = [], 0
    for n in sizes:
        out.append(content[at : at + n])
        at += n
    return out
