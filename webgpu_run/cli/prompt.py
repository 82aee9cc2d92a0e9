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
from ..llm.template import Template, find_template
from ..llm.tokenizer import Tokenizer
from .options import Settings

DEMO = "Once upon a time"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What to start from: text (unless ids were given), its tokens (unless it is a chat), and the tokenizer.

    It is a chat if it has a template.
    """

    tokenizer: Tokenizer | None
    text: str | None
    ids: list[int]
    template: Template | None = None


def find_prompt(settings: Settings, interface: Interface) -> Prompt:
    """The prompt that the settings ask for, checked as far as possible without a device."""
    given = [n for n in ("prompt", "prompt_file", "prompt_ids") if getattr(settings, n) is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join('--' + n.replace('_', '-') for n in given)} exclude each other")
    if settings.chat and settings.prompt_ids is not None:
        raise UsageError("--chat needs text, --prompt-ids gives token ids")
    is_bare = not given and sys.stdin.isatty()
    if not settings.chat and not is_bare and (settings.system is not None or settings.template is not None):
        raise UsageError("--system and --template are for --chat")
    if settings.prompt_ids is not None:
        return _prompt_of_ids(settings, interface, list(settings.prompt_ids))
    tokenizer = tokenizers.find(settings.model, settings.tokenizer)
    _warn_about_size(tokenizer, interface, settings)
    template = _find_template(tokenizer, settings)
    if settings.chat or (is_bare and template):
        text = _read_text(settings) if given else None
        return Prompt(tokenizer, text, [], template)
    text = _read_text(settings)
    if template and "<|" not in text and not settings.quiet:
        stderr_console().print("hint: --chat applies the model's chat template", style="dim", soft_wrap=True)
    ids = tokenizer.encode_prompt(text or "")
    if not ids:
        raise UsageError("the prompt is empty")
    interface.check(ids)
    return Prompt(tokenizer, text, ids)


def _find_template(tokenizer: Tokenizer, settings: Settings) -> Template | None:
    """The chat template. Only a chat that was asked for needs one."""
    try:
        return find_template(tokenizer, settings.template)
    except RunError:
        if settings.chat:
            raise
        return None


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


def _read_text(settings: Settings) -> str:
    """The text of the prompt."""
    if settings.prompt_file is not None:
        try:
            text = _decoded(Path(settings.prompt_file).read_bytes(), settings.prompt_file, settings)
        except OSError as error:
            raise UsageError(
                f"cannot read the prompt: {str(error.strerror).lower()} ({settings.prompt_file})"
            ) from None
    elif settings.prompt == "-" or (settings.prompt is None and _stdin_is_piped()):
        text = _decoded(sys.stdin.buffer.read(), "stdin", settings)
    elif settings.prompt is not None:
        text = settings.prompt
    else:
        if not settings.bundled and not settings.quiet:
            stderr_console().print(f"no --prompt given: {DEMO!r} is used", style="dim", soft_wrap=True)
        text = DEMO
    if not text:
        raise UsageError("the prompt is empty")
    return text


def _decoded(data: bytes, where: str, settings: Settings) -> str:
    """The text in these bytes, without its last newline. Warns about bytes that are not UTF-8."""
    text = data.decode("utf-8", "replace").removesuffix("\n")
    if not settings.quiet and text.encode() != data.removesuffix(b"\n"):
        message = f"warning: the prompt is not UTF-8; the bytes that are wrong became \ufffd ({where})"
        stderr_console().print(message, style="yellow", soft_wrap=True)
    return text


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
