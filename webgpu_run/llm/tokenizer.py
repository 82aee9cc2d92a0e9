"""Tokenizers: tokenizer.json, SentencePiece and tiktoken files, named by the user or found beside the model."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..assets import beside, folders, model_dir
from ..errors import FormatError
from .tokenizer_process import TokenizerProcess
from .tokenizer_worker import KINDS

NAMES = ("tokenizer.json", "tokenizer.model", "tokenizer.tiktoken")
CONFIGS = ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json")
MOST_CONFIG = 8 << 20  # bytes; Gemma's, one of the largest, has 1.2 MB


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer of any kind. `config` is the content of the JSON files beside it."""

    path: str
    kind: str
    size: int
    encode_plain: Callable[[str], list[int]]  # recognizes special tokens in the text, adds none
    encode_prompt: Callable[[str], list[int]]  # adds the tokens that a prompt starts with, such as BOS
    decode: Callable[[Sequence[int]], str]  # omits special tokens; an incomplete character becomes U+FFFD
    id_of: Callable[[str], int | None]
    config: Mapping[str, Any] = field(default_factory=dict)

    def special(self, name: str) -> str | None:
        """The text of `bos_token`, `eos_token` and so on."""
        value = self.config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        return value if isinstance(value, str) else None

    def eos_ids(self) -> frozenset[int]:
        """The end-of-text ids that the files beside the tokenizer name."""
        listed = self.config.get("eos_token_id")
        ids = {i for i in (listed if isinstance(listed, list) else [listed]) if isinstance(i, int)}
        text = self.special("eos_token")
        token = self.id_of(text) if text else None
        return frozenset(ids | ({token} if token is not None else set()))


class TextStream:
    """Decodes a stream of ids. A character whose bytes span several tokens appears when its last byte has arrived."""

    LONGEST = 64  # tokens that wait for a complete character, at most; keeps decoding linear in the number of tokens

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._start = self._shown = 0

    def push(self, token: int) -> str:
        """Add a token; returns the text that it completes."""
        self._ids.append(token)
        return self._take(final=len(self._ids) - self._shown >= self.LONGEST)

    def finish(self) -> str:
        """The rest of the text. A character that stayed incomplete becomes U+FFFD."""
        return self._take(final=True)

    def _take(self, *, final: bool) -> str:
        # New tokens are decoded together with the tokens before them, because a decoder may strip a leading space.
        before = self._decode(self._ids[self._start : self._shown])
        now = self._decode(self._ids[self._start :])
        if len(now) <= len(before) or (now.endswith("\ufffd") and not final):
            return ""
        self._start, self._shown = self._shown, len(self._ids)
        return now[len(before) :]


class StopStrings:
    """Passes text through up to the first stop string. Text that may be the start of a stop string is kept back."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = [s for s in stops if s]
        self._pending = ""
        self.found = ""

    def push(self, text: str) -> str:
        """Add text; returns the text that is certainly not part of a stop string."""
        self._pending += text
        hits = [(at, s) for s in self._stops if (at := self._pending.find(s)) >= 0]
        if hits:
            at, self.found = min(hits)
            out, self._pending = self._pending[:at], ""
            return out
        keep = max((n for s in self._stops for n in range(1, len(s)) if self._pending.endswith(s[:n])), default=0)
        out = self._pending[: len(self._pending) - keep]
        self._pending = self._pending[len(out) :]
        return out

    def finish(self) -> str:
        """The rest of the text, which turned out not to be a stop string."""
        out, self._pending = self._pending, ""
        return out


def find(model: str | os.PathLike[str], given: str | None = None) -> Tokenizer:
    """Find and load the tokenizer at `given`, a file or a folder, or beside the model."""
    if given and not os.path.isdir(given):
        if not os.path.isfile(given):
            raise FormatError(f"no such tokenizer ({given})")
        return load(Path(given))
    stem, places = Path(model).stem, [Path(given)] if given else folders(model)
    names = (*NAMES, f"{stem}.tokenizer.json", f"{stem}_tokenizer.json")
    for folder in places:
        for path in (*(folder / name for name in names), *sorted(folder.glob("*.tiktoken"))):
            if path.is_file():
                return load(path)
    raise FormatError(
        f"no tokenizer: tried {', '.join(names)}, *.tiktoken (in {' and '.join(map(str, places))})",
        hint="--tokenizer PATH names one; --prompt-ids 1,2,3 needs none",
    )


def load(path: Path) -> Tokenizer:
    """Load a tokenizer file. Its content decides its kind."""
    try:
        head = path.open("rb").read(4096)
        config = _config(path)
    except OSError as error:
        raise FormatError(f"cannot read the tokenizer: {str(error.strerror).lower()} ({path})") from None
    if head.lstrip().startswith(b"{"):
        kind = "tokenizers"
    elif re.match(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n", head):
        kind = "tiktoken"
    elif head.startswith(b"\n"):  # the tag of a ModelProto's first field
        kind = "sentencepiece"
    else:
        raise FormatError(f"not a tokenizer: neither tokenizer.json, nor SentencePiece, nor tiktoken ({path})")
    # The file that comes with this package is as safe as its code, and is loaded here, which takes no new process.
    is_ours = path.resolve().parent == model_dir().resolve()
    backend = KINDS[kind](path, config) if is_ours else TokenizerProcess(path, kind, config)
    return Tokenizer(
        str(path),
        kind,
        backend.size,
        backend.encode_plain,
        backend.encode_prompt,
        backend.decode,
        backend.id_of,
        {**backend.defaults, **config},
    )


def _config(path: Path) -> dict[str, Any]:
    """The JSON files beside a tokenizer, merged; the first of CONFIGS wins.

    Next to `small.tokenizer.json`, their names start with `small.` too.
    """
    prefix = path.name[: -len("tokenizer.json")] if path.name.endswith("tokenizer.json") else ""
    config: dict[str, Any] = {}
    for name in reversed(CONFIGS):
        file = beside(path, prefix + name)
        if file:
            if file.stat().st_size > MOST_CONFIG:
                raise FormatError(f"{file.stat().st_size:,} bytes, {MOST_CONFIG:,} at most ({file})")
            try:
                content = json.loads(file.read_text("utf-8"))
            except (ValueError, RecursionError) as error:
                raise FormatError(f"not valid JSON: {error} ({file})") from None
            if isinstance(content, dict):
                config |= {key: value for key, value in content.items() if value is not None}
    return config
