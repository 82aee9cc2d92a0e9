"""Requests for many replies: what a row of a file, or an entry of a list, may be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from ..errors import RunError, UsageError
from .language_model import LLM

# Options of a row, and the types that they may have in JSON.
OPTIONS: Mapping[str, tuple[type, ...]] = {
    "max_new_tokens": (int, type(None)),
    "temperature": (int, float),
    "top_k": (int,),
    "top_p": (int, float),
    "min_p": (int, float),
    "repeat_penalty": (int, float),
    "repeat_last_n": (int,),
    "seed": (int,),
    "stop": (str, list),
    "ignore_eos": (bool,),
}
FORMS = ("prompt", "messages", "ids")


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt in one of its forms, with options that differ from those of the other rows. A bad row is its error."""

    id: str | int
    prompt: str | None = None
    messages: Sequence[Mapping[str, str]] | None = None
    ids: Sequence[int] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    def tokens(self, llm: LLM, *, chat: bool = False, system: str | None = None) -> list[int]:
        """The tokens of the prompt. With `chat`, a prompt is a message of the user."""
        messages = self.messages
        if self.prompt is not None and chat:
            messages = [{"role": "user", "content": self.prompt}]
        if messages is not None:
            first = [{"role": "system", "content": system}] if system and messages[0]["role"] != "system" else []
            ids = llm.tokenizer.encode_plain(llm.template.render([*first, *messages]))
        else:
            ids = list(self.ids or ()) if self.prompt is None else llm.tokenizer.encode_prompt(self.prompt)
        if not ids or self.prompt == "":
            raise UsageError("the prompt is empty")
        llm.session.interface.check(ids)
        return ids


def parse(row: Any, number: int) -> Request:
    """A request from a text, ids, messages, or a dictionary. What is wrong with it becomes its `error`."""
    try:
        return _parse(row, number)
    except RunError as error:
        own = row.get("id") if isinstance(row, Mapping) else None
        return Request(own if _is_id(own) else number, error=str(error))


def parse_lines(data: bytes, *, as_json: bool | None = None) -> list[Request]:
    """The requests in a file: JSON objects or texts, one per line. Empty lines are skipped; a line's number is its id.

    By default they are JSON if the first line starts with a brace.
    """
    lines = [(i, line.strip()) for i, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1)]
    lines = [(i, line) for i, line in lines if line]
    if as_json is None:
        as_json = bool(lines) and lines[0][1].startswith(b"{")
    return [_parse_json(line, i) if as_json else parse(line.decode("utf-8", "replace"), i) for i, line in lines]


def _parse_json(line: bytes, number: int) -> Request:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Request(number, error=f"this is not JSON: {error}")
    if not isinstance(row, dict):
        return Request(number, error="this is not a JSON object")
    return parse(row, number)


def _parse(row: Any, number: int) -> Request:
    if isinstance(row, str):
        row = {"prompt": row}
    elif not isinstance(row, Mapping):
        items = list(row) if isinstance(row, Iterable) else []
        row = {"messages" if items and isinstance(items[0], Mapping) else "ids": items}
    forms = [name for name in FORMS if name in row]
    if len(forms) != 1:
        raise UsageError(f"a row has one of {', '.join(FORMS)}; this one has {' and '.join(forms) or 'none'}")
    unknown = [str(name) for name in row if name not in ("id", *FORMS, *OPTIONS)]
    if unknown:
        raise UsageError(f"a row cannot have {', '.join(unknown)}; its options are {', '.join(OPTIONS)}")
    if "id" in row and not _is_id(row["id"]):
        raise UsageError("the id is neither a text nor an integer")
    content = row[forms[0]]
    if not _CHECKS[forms[0]](content):
        raise UsageError(f"{forms[0]} must be {_EXPECTED[forms[0]]}")
    if forms[0] == "prompt":
        content = content.encode("utf-8", "replace").decode()  # JSON can have halves of characters
    options = {name: value for name, value in row.items() if name in OPTIONS}
    check_options(options)
    return Request(row.get("id", number), options=options, **{forms[0]: content})


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that do not exist or have another type than they should."""
    for name, value in options.items():
        types = OPTIONS.get(name)
        if types is None:
            raise UsageError(f"there is no option {name}; there are {', '.join(OPTIONS)}")
        is_right = isinstance(value, types) and (bool in types or not isinstance(value, bool))
        if not is_right or (isinstance(value, list) and not all(isinstance(item, str) for item in value)):
            raise UsageError(f"{name} cannot be {value!r}")
        if isinstance(value, int) and not (0 if name == "seed" else -1) <= value < 2**64:
            raise UsageError(f"{name} cannot be {value}")


def _is_id(value: Any) -> TypeGuard[str | int]:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(value.get(name), str) for name in ("role", "content"))


_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "prompt": lambda v: isinstance(v, str),
    "messages": lambda v: isinstance(v, list) and bool(v) and all(map(_is_message, v)),
    "ids": lambda v: isinstance(v, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in v),
}
_EXPECTED = {
    "prompt": "a text",
    "messages": "a list of objects with a role and a content",
    "ids": "a list of integers",
}
