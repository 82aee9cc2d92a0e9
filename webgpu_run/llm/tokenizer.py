"""Tokenizers: tokenizer.json, SentencePiece and tiktoken files, named by the user or found beside the model."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..assets import beside, folders
from ..errors import FormatError, UnsupportedError

NAMES = ("tokenizer.json", "tokenizer.model", "tokenizer.tiktoken")
CONFIGS = ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json")
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3_SPECIALS = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_0|>", "<|reserved_1|>", "<|finetune_right_pad_id|>"),
    *("<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
)


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
    kind: Callable[[Path, Mapping[str, Any]], Tokenizer]
    if head.lstrip().startswith(b"{"):
        kind = _tokenizers
    elif re.match(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n", head):
        kind = _tiktoken
    elif head.startswith(b"\n"):  # the tag of a ModelProto's first field
        kind = _sentencepiece
    else:
        raise FormatError(f"not a tokenizer: neither tokenizer.json, nor SentencePiece, nor tiktoken ({path})")
    try:
        return kind(path, config)
    except (UnsupportedError, FormatError):
        raise
    except BaseException as error:
        # A parser written in Rust may panic, which is no Exception.
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            raise
        # SentencePiece names lines of its own source.
        why = "cut short or damaged" if kind is _sentencepiece else error
        raise FormatError(f"the tokenizer is not valid: {why} ({path})") from None


def _config(path: Path) -> dict[str, Any]:
    """The JSON files beside a tokenizer, merged; the first of CONFIGS wins.

    Next to `small.tokenizer.json`, their names start with `small.` too.
    """
    prefix = path.name[: -len("tokenizer.json")] if path.name.endswith("tokenizer.json") else ""
    config: dict[str, Any] = {}
    for name in reversed(CONFIGS):
        file = beside(path, prefix + name)
        if file:
            try:
                content = json.loads(file.read_text("utf-8"))
            except (ValueError, RecursionError) as error:
                raise FormatError(f"not valid JSON: {error} ({file})") from None
            if isinstance(content, dict):
                config |= {key: value for key, value in content.items() if value is not None}
    return config


def _tokenizers(path: Path, config: Mapping[str, Any]) -> Tokenizer:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def encode_prompt(text: str) -> list[int]:
        ids = list(tokenizer.encode(text).ids)
        bos = config.get("bos_token")
        text_of_bos = bos.get("content") if isinstance(bos, dict) else bos
        first = tokenizer.token_to_id(text_of_bos) if isinstance(text_of_bos, str) else None
        return [first, *ids] if config.get("add_bos_token") and first is not None and ids[:1] != [first] else ids

    return Tokenizer(
        str(path),
        "tokenizers",
        tokenizer.get_vocab_size(),
        lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        encode_prompt,
        lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=True)),
        tokenizer.token_to_id,
        config,
    )


def _sentencepiece(path: Path, config: Mapping[str, Any]) -> Tokenizer:
    try:
        import sentencepiece
    except ImportError:
        hint = "pip install 'webgpu-run[sentencepiece]'"
        raise UnsupportedError(f"a SentencePiece tokenizer needs sentencepiece ({path})", hint=hint) from None
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(path.read_bytes())
    size, bos, eos = processor.GetPieceSize(), processor.bos_id(), processor.eos_id()
    adds = bool(config.get("add_bos_token", bos >= 0))
    specials = {processor.IdToPiece(i): i for i in range(size) if processor.IsControl(i)}

    def decode(ids: Sequence[int]) -> str:
        known = [i for i in ids if 0 <= i < size and not processor.IsControl(i)]
        text = str(processor.DecodeIds(known))
        # SentencePiece drops the space before the first word, but a continuation needs it.
        return (
            f" {text}" if known and processor.IdToPiece(known[0]).startswith("▁") and not text.startswith(" ") else text
        )

    def encode(text: str) -> list[int]:
        out: list[int] = []
        for part in _split(text, specials):
            out += [specials[part]] if part in specials else processor.EncodeAsIds(part)
        return out

    def id_of(text: str) -> int | None:
        token = specials.get(text, processor.PieceToId(text))
        return None if token == processor.unk_id() and text not in specials else token

    return Tokenizer(
        str(path),
        "sentencepiece",
        size,
        encode,
        lambda text: ([bos] if adds and bos >= 0 else []) + encode(text),
        decode,
        lambda text: specials.get(
            text, processor.PieceToId(text) if processor.PieceToId(text) != processor.unk_id() else None
        ),
        {**({"eos_token_id": eos} if eos >= 0 else {}), **config},
    )


def _split(text: str, specials: Mapping[str, int]) -> list[str]:
    if not specials:
        return [text]
    return [part for part in re.split("(" + "|".join(map(re.escape, specials)) + ")", text) if part]


def _tiktoken(path: Path, config: Mapping[str, Any]) -> Tokenizer:
    try:
        import tiktoken
    except ImportError:
        hint = "pip install 'webgpu-run[tiktoken]'"
        raise UnsupportedError(f"a tiktoken tokenizer needs tiktoken ({path})", hint=hint) from None
    rows = [line.split() for line in path.read_bytes().splitlines() if line.strip()]
    ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in rows}
    added = config.get("added_tokens_decoder")
    if isinstance(added, dict):
        specials = {str(t["content"]): int(i) for i, t in added.items()}
    else:
        names = [*_LLAMA3_SPECIALS, *(f"<|reserved_{i}|>" for i in range(2, 247))]
        specials = {name: len(ranks) + i for i, name in enumerate(names)}
    encoding = tiktoken.Encoding(path.stem, pat_str=_LLAMA3, mergeable_ranks=ranks, special_tokens=specials)
    bos = specials.get("<|begin_of_text|>")
    ends = [i for name, i in specials.items() if name in ("<|end_of_text|>", "<|eot_id|>", "<|eom_id|>")]
    known = {*ranks.values(), *specials.values()}
    skip = set(specials.values())

    def encode(text: str) -> list[int]:
        return list(encoding.encode(text, allowed_special="all"))

    return Tokenizer(
        str(path),
        "tiktoken",
        max(known) + 1,
        encode,
        lambda text: ([bos] if bos is not None and config.get("add_bos_token", True) else []) + encode(text),
        lambda ids: encoding.decode_bytes([i for i in ids if i in known and i not in skip]).decode("utf-8", "replace"),
        lambda text: specials.get(text, ranks.get(text.encode())),
        {"eos_token_id": ends, **config},
    )
