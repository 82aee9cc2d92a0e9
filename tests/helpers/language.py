"""Folders with a small language model, its tokenizer and a chat template; `webgpu-run` on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from helpers.command import HERE

FIXTURES = HERE / "fixtures"
VOCAB = 512
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer(size: int = VOCAB) -> Tokenizer:
    """Every byte, some pairs of letters, three special tokens at the end."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = "etaoinshrdlucmfwypgb"
    pairs = [(a, b) for a in letters for b in letters][: size - len(alphabet) - len(SPECIALS)]
    words = alphabet + [a + b for a, b in pairs]
    made = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=pairs))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(SPECIALS))
    return made


def word_tokenizer(words: list[str]) -> Tokenizer:
    """One token a word, spaces between them."""
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token=words[0]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def folder(path: Path, model: str = "tiny_dyn", tokenizer: Tokenizer | None = None, template: str = TEMPLATE) -> Path:
    """The model's path, in a folder with a tokenizer and a chat template."""
    path.mkdir(parents=True, exist_ok=True)
    shutil.copy(FIXTURES / f"{model}.pte", path / "model.pte")
    (tokenizer or byte_tokenizer()).save(str(path / "tokenizer.json"))
    config = {"eos_token": SPECIALS[2], "chat_template": template}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path / "model.pte"


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE.parent), **more}


def start(*args: str | Path, **how: object) -> subprocess.Popen[bytes]:
    """`webgpu-run` as a running process, in a group of its own."""
    command = [sys.executable, "-m", "webgpu_run", *map(str, args)]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **how}
    return subprocess.Popen(command, env=environment(), start_new_session=True, **settings)  # type: ignore[call-overload]


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is a signal


def on_terminal(
    *args: str | Path, columns: int = 80, typed: str = "", then: Sequence[tuple[str, str]] = (), **more: str
) -> tuple[int, str]:
    """Run on a terminal of this width: exit code, and everything that appeared.

    `then` has pairs: a text to wait for, and what to type when it has appeared.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    clean = {k: v for k, v in environment(TERM="xterm", **more).items() if k not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "webgpu_run", *map(str, args)]
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=clean, start_new_session=True, preexec_fn=_own_terminal
    )
    os.close(slave)
    os.write(master, typed.encode())
    seen, rest = bytearray(), list(then)

    def read() -> None:
        told = 0
        with contextlib.suppress(OSError):  # the terminal is gone when the process is
            while part := os.read(master, 4096):
                seen.extend(part)
                if rest and rest[0][0].encode() in seen[told:]:
                    told = len(seen)
                    time.sleep(0.2)  # nobody types sooner, and readline misses a signal that comes with its prompt
                    os.write(master, rest.pop(0)[1].encode())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        code = process.wait(timeout=180)
    finally:
        process.kill()
    reader.join(timeout=10)
    os.close(master)
    return code, seen.decode()
