"""A conversation: messages, the chat template that makes text of them, and which tokens of it are new."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..assets import beside, folders
from ..errors import FormatError, ShapeError
from .session import Reply, Session
from .tokenizer import Tokenizer

LIMIT_S = 5.0


class Template:
    """A chat template, rendered in a process of its own (see template_worker.py)."""

    def __init__(self, source: str, where: str, variables: Mapping[str, Any] | None = None) -> None:
        self.source, self.where, self.variables = source, where, dict(variables or {})
        self._process: subprocess.Popen[str] | None = None

    def render(self, messages: Sequence[Mapping[str, str]], *, reply: bool = True, limit_s: float = LIMIT_S) -> str:
        """The conversation as text, ending where the model is to go on if `reply`."""
        request = {
            "template": self.source,
            "messages": list(messages),
            "add_generation_prompt": reply,
            **self.variables,
        }
        process = self._process = self._process or _start()
        late = threading.Timer(limit_s, process.kill)
        late.start()
        line = ""
        try:
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            pass
        finally:
            ended = late.is_alive()
            late.cancel()
        if not line:
            self.close()
            why = "ended its process" if ended else f"did not end within {limit_s:g} s"
            raise FormatError(f"the chat template {why} ({self.where})")
        answer = json.loads(line)
        if "error" in answer:
            raise FormatError(f"the chat template failed: {answer['error']} ({self.where})")
        return str(answer["text"])

    def close(self) -> None:
        """End the process."""
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _start() -> subprocess.Popen[str]:
    # A group of its own: Ctrl-C is for us.
    alone: dict[str, Any] = {"start_new_session": True} if os.name == "posix" else {"creationflags": 0x200}
    return subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).with_name("template_worker.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        **alone,
    )


def find_template(tokenizer: Tokenizer, given: str | None = None) -> Template:
    """The template at `given`, else chat_template.jinja or the one in tokenizer_config.json beside the tokenizer.

    A JSON file, such as a tokenizer_config.json, is looked into for its `chat_template`.
    """
    variables = {name: tokenizer.special(name) or "" for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
    path = Path(given) if given else beside(tokenizer.path, "chat_template.jinja")
    if path:
        try:
            text = path.read_text("utf-8")
        except (OSError, ValueError) as error:
            reason = str(error.strerror).lower() if isinstance(error, OSError) else "not UTF-8"
            raise FormatError(f"cannot read the chat template: {reason} ({path})") from None
        if path.suffix == ".json":
            text = _field(text, path)
        return Template(text, str(path), variables)
    found = _default(tokenizer.config.get("chat_template"))
    if found is not None:
        return Template(found, f"chat_template of {Path(tokenizer.path).with_name('tokenizer_config.json')}", variables)
    places = " and ".join(map(str, folders(tokenizer.path)))
    raise FormatError(
        f"no chat template: tried chat_template.jinja, tokenizer_config.json (in {places})",
        hint="--template FILE names one; --prompt needs none",
    )


def _field(text: str, path: Path) -> str:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise FormatError(f"not valid JSON ({path})") from None
    found = _default(content.get("chat_template")) if isinstance(content, dict) else None
    if found is None:
        raise FormatError(f"it has no chat_template ({path})")
    return found


def _default(found: object) -> str | None:
    """The text of a `chat_template` field, which may hold several by name."""
    if isinstance(found, list):
        found = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}.get("default")
    return found if isinstance(found, str) else None


@dataclass(slots=True)
class Conversation:
    """Messages so far, and the text that the session's KV cache stands for."""

    session: Session
    tokenizer: Tokenizer
    template: Template
    messages: list[dict[str, str]] = field(default_factory=list)
    dropped: int = 0  # messages forgotten because the context was full
    _text: str = ""
    _pending: list[int] = field(default_factory=list)

    def ask(self, content: str) -> list[int]:
        """Add a question; the tokens to prefill for it. What the KV cache holds already is not run again."""
        self.messages.append({"role": "user", "content": content})
        text = self.template.render(self.messages)
        if self._text and text.startswith(self._text):
            new = self._pending + self.tokenizer.encode_plain(text[len(self._text) :])
        else:
            new = self._from_common_prefix(text)
        while len(new) > self.session.room:
            text = self._shorter(len(new))
            new = self._from_common_prefix(text)
        self._text, self._pending = text, []
        return new

    def answered(self, reply: Reply, text: str) -> None:
        """Add what the model said."""
        self.messages.append({"role": "assistant", "content": text})
        self._text += self.tokenizer.decode(reply.ids)
        self._pending = reply.pending

    def withdraw(self) -> None:
        """Take a question back whose prefill was stopped; the next finds out what of it the KV cache holds."""
        del self.messages[-1]
        self._text, self._pending = "", []

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.messages = [m for m in self.messages if m["role"] == "system"]
        self._text, self._pending = "", []
        self.session.rewind(0)

    def _from_common_prefix(self, text: str) -> list[int]:
        ids = self.tokenizer.encode_plain(text)
        have = self.session.ids
        same = next((i for i, (a, b) in enumerate(zip(ids, have, strict=False)) if a != b), min(len(ids), len(have)))
        same = min(same, len(ids) - 1)  # the last token is run in any case: its logits are needed
        self.session.rewind(max(same, 0))
        return ids[max(same, 0) :]

    def _shorter(self, tokens: int) -> str:
        """The conversation without its oldest question and answer."""
        first = next((i for i, m in enumerate(self.messages) if m["role"] != "system"), 0)
        if len(self.messages) - first < 3:
            del self.messages[-1]
            raise ShapeError(f"the message has {tokens} tokens with its template, the context {self.session.capacity}")
        del self.messages[first : first + 2]
        self.dropped += 2
        return self.template.render(self.messages)
