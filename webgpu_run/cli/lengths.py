"""Lists of lengths on the command line: 1,64,512 · 64-512+64 · 1-512*2."""

from __future__ import annotations

import re

from ..errors import UsageError

MOST = 1000  # lengths in a list
_RANGE = re.compile(r"(\d+)-(\d+)(?:([+*])(\d+))?")
FORM = "such as 1,64,512, a range 64-512+64, or 1-512*2"


def parse(text: str, least: int = 1) -> tuple[int, ...]:
    """The lengths, in the order given, each once."""
    found: dict[int, None] = {}
    for part in text.replace(" ", "").split(","):
        for n in _one(part, text, least):
            found[n] = None
            if len(found) > MOST:
                raise UsageError(f"{text!r} is more than {MOST} lengths")
    return tuple(found)


def _one(part: str, text: str, least: int) -> list[int]:
    if part.isascii() and part.isdigit():
        return [_whole(part, text, least)]
    match = _RANGE.fullmatch(part)
    if not match:
        raise UsageError(f"{text!r} is not a list of whole numbers {FORM}")
    first, last = _whole(match[1], text, least), _whole(match[2], text, least)
    times = match[3] == "*"
    step = int(match[4] or 1)
    if last < first or step < (2 if times else 1) or (times and first < 1):
        raise UsageError(f"{part!r} is a range that goes nowhere")
    out: list[int] = []
    while first <= last and len(out) <= MOST:
        out.append(first)
        first = first * step if times else first + step
    return out


def _whole(digits: str, text: str, least: int) -> int:
    n = int(digits[:20])
    if n < least:
        raise UsageError(f"{text!r}: {n} is below {least}")
    return n
