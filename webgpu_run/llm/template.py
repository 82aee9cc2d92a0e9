"""Chat templates: how the messages of a conversation become text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..assets import beside, folders
from ..errors import FormatError
from .tokenizer import Tokenizer

LIMIT_S = 5.0


class Template:
    """A chat template. It is rendered in a child process (template_worker.py)."""

    def __init__(self, source: str, where: str, variables: Mapping[str, Any] | None = None) -> None:
        self.source, self.where, self.variables = source, where, dict(variables or {})
        self._process: subprocess.Popen[str] | None = None

    def render(self, messages: Sequence[Mapping[str, str]], *, reply: bool = True, limit_s: float = LIMIT_S) -> str:
        """Render the conversation as text. With `reply`, the text ends where the model's reply begins."""
        request = {
            "template": self.source,
            "messages": list(messages),
            "add_generation_prompt": reply,
            **self.variables,
        }
        process = self._process = self._process or _start()
        timer = threading.Timer(limit_s, process.kill)
        timer.start()
        line = ""
        try:
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            pass
        except BaseException:
            self.close()  # its answer to this request must not be taken for the next one
            raise
        finally:
            in_time = timer.is_alive()
            timer.cancel()
        if not line:
            self.close()
            why = "ended its process" if in_time else f"did not end within {limit_s:g} s"
            raise FormatError(f"the chat template {why} ({self.where})")
        answer = json.loads(line)
        if "error" in answer:
            raise FormatError(f"the chat template failed: {answer['error']} ({self.where})")
        return str(answer["text"]).encode("utf-8", "replace").decode()  # a template can write a lone surrogate

    def close(self) -> None:
        """End the child process."""
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _start() -> subprocess.Popen[str]:
    # In a process group of its own, so that the terminal does not send Ctrl-C to the child.
    new_group: dict[str, Any] = {"start_new_session": True} if os.name == "posix" else {"creationflags": 0x200}
    return subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).with_name("template_worker.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        **new_group,
    )


def find_template(tokenizer: Tokenizer, given: str | None = None) -> Template:
    """Find the chat template: at `given`, else in chat_template.jinja or tokenizer_config.json beside the tokenizer.

    If `given` is a JSON file, its field `chat_template` is the template.
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
    source = _default(tokenizer.config.get("chat_template"))
    if source is not None:
        where = f"chat_template of {Path(tokenizer.path).with_name('tokenizer_config.json')}"
        return Template(source, where, variables)
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
    source = _default(content.get("chat_template")) if isinstance(content, dict) else None
    if source is None:
        raise FormatError(f"it has no chat_template ({path})")
    return source


def _default(templates: object) -> str | None:
    """The template in a `chat_template` field: a string, or the default one of a list of named templates."""
    if isinstance(templates, list):
        templates = next(
            (t.get("template") for t in templates if isinstance(t, dict) and t.get("name") == "default"), None
        )
    return templates if isinstance(templates, str) else None
