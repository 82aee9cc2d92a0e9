"""Tokenizer libraries, and the process that runs them for files that did not come with this package.

A tokenizer file can make its library panic, abort, run without end or take all memory. So it is loaded in a process of
its own, with limits of time and memory, which serves the whole session. Each line of stdin is a JSON request, each
line of stdout its JSON answer.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MEMORY = 2 << 30  # address space of the process
MOST_IDS = 4 << 20  # ids of one text
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3_SPECIALS = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_0|>", "<|reserved_1|>", "<|finetune_right_pad_id|>"),
    *("<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
)


@dataclass(frozen=True, slots=True)
class Backend:
    """A loaded tokenizer. `defaults` are settings that the file itself contains."""

    size: int
    encode_plain: Callable[[str], list[int]]
    encode_prompt: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]
    id_of: Callable[[str], int | None]
    defaults: Mapping[str, Any] = field(default_factory=dict)


def load_tokenizers(path: Path, config: Mapping[str, Any]) -> Backend:
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

    return Backend(
        tokenizer.get_vocab_size(),
        lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        encode_prompt,
        lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=True)),
        tokenizer.token_to_id,
    )


def load_sentencepiece(path: Path, config: Mapping[str, Any]) -> Backend:
    import sentencepiece

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

    return Backend(
        size,
        encode,
        lambda text: ([bos] if adds and bos >= 0 else []) + encode(text),
        decode,
        lambda text: specials.get(
            text, processor.PieceToId(text) if processor.PieceToId(text) != processor.unk_id() else None
        ),
        {"eos_token_id": eos} if eos >= 0 else {},
    )


def _split(text: str, specials: Mapping[str, int]) -> list[str]:
    if not specials:
        return [text]
    return [part for part in re.split("(" + "|".join(map(re.escape, specials)) + ")", text) if part]


def load_tiktoken(path: Path, config: Mapping[str, Any]) -> Backend:
    import tiktoken

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

    return Backend(
        max(known) + 1,
        encode,
        lambda text: ([bos] if bos is not None and config.get("add_bos_token", True) else []) + encode(text),
        lambda ids: encoding.decode_bytes([i for i in ids if i in known and i not in skip]).decode("utf-8", "replace"),
        lambda text: specials.get(text, ranks.get(text.encode())),
        {"eos_token_id": ends},
    )


KINDS: dict[str, Callable[[Path, Mapping[str, Any]], Backend]] = {
    "tokenizers": load_tokenizers,
    "sentencepiece": load_sentencepiece,
    "tiktoken": load_tiktoken,
}


def _answer(backend: Backend, request: Mapping[str, Any]) -> dict[str, Any]:
    if "decode" in request:
        return {"text": backend.decode(request["decode"])}
    if "id_of" in request:
        return {"id": backend.id_of(request["id_of"])}
    encode = backend.encode_prompt if request["prompt"] else backend.encode_plain
    ids = encode(request["encode"])
    return {"ids": ids} if len(ids) <= MOST_IDS else {"error": f"it made {len(ids):,} tokens of one text"}


def main() -> None:
    """Load the tokenizer that the first request names, then answer requests until stdin ends."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    backend: Backend | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if hasattr(signal, "setitimer"):  # ends this process, also from inside a library
            signal.setitimer(signal.ITIMER_REAL, request["limit_s"])
        try:
            if backend is None:
                backend = KINDS[request["kind"]](Path(request["path"]), request["config"])
                answer: dict[str, Any] = {"size": backend.size, "defaults": backend.defaults}
            else:
                answer = _answer(backend, request)
        except ModuleNotFoundError as error:
            answer = {"missing": error.name}
        except BaseException as error:  # a panic of a library written in Rust is no Exception
            answer = {"error": (str(error) or type(error).__name__)[:1000]}
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
