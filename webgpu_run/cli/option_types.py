"""Types of options: what a text means, and what is wrong with it."""

from __future__ import annotations

import math
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


class Ids(_Type):
    name = "ids"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(part) for part in str(value).replace(",", " ").split())
        except ValueError:
            self.fail(f"{value!r} is not a list of token ids such as 1,2,3", param, ctx)


class Text(_Type):
    """A text. Bytes of an argument that are not UTF-8 arrive as lone surrogates, which no tokenizer accepts."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value).encode("utf-8", "replace").decode()


class Stop(Text):
    """A text that is not empty. The environment variable may hold several, one per line."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(value, param, ctx) or self.fail("it is empty", param, ctx)

    def split_envvar_value(self, rv: str) -> list[str]:
        return [line for line in rv.split("\n") if line]


class Number(_Type):
    """A finite number within bounds."""

    name = "number"

    def __init__(self, low: float, high: float = math.inf, *, above: bool = False) -> None:
        self.low, self.high, self.above = low, high, above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        low = number > self.low if self.above else number >= self.low
        if not math.isfinite(number) or not low or number > self.high:
            least = f"{'above' if self.above else 'at least'} {self.low:g}"
            most = f" and at most {self.high:g}" if math.isfinite(self.high) else ""
            self.fail(f"{value} must be {least}{most}", param, ctx)
        return number


class PictureSize(_Type):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        parts = str(value).lower().split("x")
        if len(parts) not in (1, 2) or not all(
            p.isascii() and p.isdigit() and 0 < int(p[:9]) <= 1 << 16 for p in parts
        ):
            self.fail(f"{value!r} is not a size such as 224 or 640x480", param, ctx)
        return int(parts[0]), int(parts[-1])


class Numbers(_Type):
    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            numbers = ()
        is_divisor = param is not None and param.name == "std"
        if not numbers or not all(math.isfinite(n) and (n > 0 or not is_divisor) for n in numbers):
            self.fail(
                f"{value!r} is not a list of {'positive ' if is_divisor else ''}numbers such as 0.5,0.5,0.5", param, ctx
            )
        return numbers


class Limit(_Type):
    """A number of tokens, or -1 for no limit."""

    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of tokens", param, ctx)
        return number if number >= 1 or number == -1 else self.fail(f"{number} is neither above 0 nor -1", param, ctx)
