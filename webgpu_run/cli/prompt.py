"""Where a prompt comes from: a flag, a file, token ids, piped stdin, or the demo's default."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from ..console.terminal import stderr_console
from ..errors import RunError, UsageError
from ..llm import tokenizer as tokenizers
from ..llm.session import Interface
from ..llm.tokenizer import Tokenizer
from .options import Settings

DEMO = "Once upon a time"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What to start from: text (unless ids were given), its tokens (unless it is a chat), and the tokenizer."""

    tokenizer: Tokenizer | None
    text: str | None
    ids: list[int]


def find_prompt(settings: Settings, interface: Interface) -> Prompt:
    """The prompt that the settings ask for, checked as far as possible without a device."""
    given = [n for n in ("prompt", "prompt_file", "prompt_ids") if getattr(settings, n) is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join('--' + n.replace('_', '-') for n in given)} exclude each other")
    if settings.chat and settings.prompt_ids is not None:
        raise UsageError("--chat needs text, --prompt-ids gives token ids")
    if not settings.chat and (settings.system is not None or settings.template is not None):
        raise UsageError("--system and --template are for --chat")
    if settings.prompt_ids is not None:
        return _prompt_of_ids(settings, interface, list(settings.prompt_ids))
    text = _read_text(settings)
    tokenizer = tokenizers.find(settings.model, settings.tokenizer)
    _warn_about_size(tokenizer, interface, settings)
    if settings.chat:
        return Prompt(tokenizer, text, [])
    ids = tokenizer.encode_prompt(text or "")
    if not ids:
        raise UsageError("the prompt is empty")
    interface.check(ids)
    return Prompt(tokenizer, text, ids)


def _prompt_of_ids(settings: Settings, interface: Interface, ids: list[int]) -> Prompt:
    if not ids:
        raise UsageError("--prompt-ids is empty")
    interface.check(ids)
    tokenizer = None
    try:
        tokenizer = tokenizers.find(settings.model, settings.tokenizer)
    except RunError:  # without a tokenizer, the reply is printed as ids
        if settings.tokenizer:
            raise
    return Prompt(tokenizer, None, ids)


def _read_text(settings: Settings) -> str | None:
    """The text of the prompt. None in a chat without a first question: the questions come from stdin."""
    text: str | None
    if settings.prompt_file is not None:
        try:
            text = Path(settings.prompt_file).read_bytes().decode("utf-8", "replace").removesuffix("\n")
        except OSError as error:
            raise UsageError(
                f"cannot read the prompt: {str(error.strerror).lower()} ({settings.prompt_file})"
            ) from None
    elif settings.prompt == "-":
        text = _read_stdin()
    elif settings.prompt is not None:
        text = settings.prompt
    elif settings.chat:
        return None
    elif _stdin_is_piped():
        text = _read_stdin()
    else:
        if not settings.bundled and not settings.quiet:
            stderr_console().print(f"no --prompt given: {DEMO!r} is used", style="dim", soft_wrap=True)
        text = DEMO
    if not text:
        raise UsageError("the prompt is empty")
    return text


def _read_stdin() -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace").removesuffix("\n")


def _stdin_is_piped() -> bool:
    """True if stdin is a pipe or a regular file; false for a terminal, /dev/null or a closed stdin."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _warn_about_size(tokenizer: Tokenizer, interface: Interface, settings: Settings) -> None:
    """Warn if the tokenizer cannot belong to the model. A model may have a few unused rows at its end."""
    spare = max(64, tokenizer.size // 100)
    if not settings.quiet and not interface.vocab - spare <= tokenizer.size <= interface.vocab:
        sizes = f"{tokenizer.size:,} tokens, the model {interface.vocab:,}"
        stderr_console().print(f"warning: the tokenizer has {sizes} ({tokenizer.path})", style="yellow", soft_wrap=True)
