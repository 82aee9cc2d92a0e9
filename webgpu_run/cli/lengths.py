"""Lists of lengths on the command line: `1,64,512`, `64-512+64` (step 64), `1-512*2` (doubling)."""

from __future__ import annotations

import re

from ..errors import UsageError

MOST = 1000  # lengths in one list
_RANGE = re.compile(r"(\d+)-(\d+)(?:([+*])(\d+))?")
FORM = "such as 1,64,512, a range 64-512+64, or 1-512*2"


def parse(text: str, least: int = 1) -> tuple[int, ...]:
    """The lengths in the order given, without duplicates."""
    lengths: dict[int, None] = {}
    for part in text.replace(" ", "").split(","):
        for n in _expand(part, text, least):
            lengths[n] = None
            if len(lengths) > MOST:
                raise UsageError(f"{text!r} is more than {MOST} lengths")
    return tuple(lengths)


def _expand(part: str, text: str, least: int) -> list[int]:
    if part.isascii() and part.isdigit():
        return [_number(part, text, least)]
    match = _RANGE.fullmatch(part)
    if not match:
        raise UsageError(f"{text!r} is not a list of whole numbers {FORM}")
    first, last = _number(match[1], text, least), _number(match[2], text, least)
    multiplies = match[3] == "*"
    step = int(match[4] or 1)
    if last < first or step < (2 if multiplies else 1) or (multiplies and first < 1):
        raise UsageError(f"{part!r} is a range that goes nowhere")
    out: list[int] = []
    while first <= last and len(out) <= MOST:
        out.append(first)
        first = first * step if multiplies else first + step
    return out


def _number(digits: str, text: str, least: int) -> int:
    n = int(digits[:20])
    if n < least:
        raise UsageError(f"{text!r}: {n} is below {least}")
    return n
