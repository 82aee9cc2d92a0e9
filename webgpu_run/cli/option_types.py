"""Types of options: what a text means, and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .lengths import parse

MOST_SEQUENCES = 64  # of --parallel and --batch

if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:
    _Type = click.ParamType  # generic in click 8.2 and later only


class Lengths(_Type):
    """A list of lengths; `none` is the empty list."""

    name = "lengths"

    def __init__(self, least: int = 1) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return () if value == "none" else parse(str(value), self.least)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Pair(_Type):
    """Two lengths: 64,32."""

    name = "pair"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        parts = str(value).split(",")
        if len(parts) != 2 or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
            self.fail(f"{value!r} is not a pair of lengths such as 64,32", param, ctx)
        return int(parts[0]), int(parts[1])


class Count(_Type):
    """A number of sequences, or `auto`, which is None."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value == "auto":
            return None
        if not str(value).isdecimal() or not 1 <= int(value) <= MOST_SEQUENCES:
            self.fail(f"{value!r} is neither auto nor a number from 1 to {MOST_SEQUENCES}", param, ctx)
        return int(value)


class Formats(_Type):
    """A list of formats of the KV cache."""

    name = "formats"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        formats = tuple(dict.fromkeys(str(value).split(",")))
        if not set(formats) <= {"f32", "f16"}:
            self.fail(f"{value!r} is not f32, f16 or f32,f16", param, ctx)
        return formats


class Percent(_Type):
    """A percentage: 5% and 5 are 0.05."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            share = float(str(value).strip().removesuffix("%")) / 100
        except ValueError:
            share = -1.0
        if not 0 <= share < 10:
            self.fail(f"{value!r} is not a percentage such as 5%", param, ctx)
        return share
