"""The options of a reply, which `generate`, `chat` and `generate_many` share."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import ParamSpec, TypedDict, TypeVar

from ..errors import UsageError
from .sampling import Sampler, random_seed

P = ParamSpec("P")
R = TypeVar("R")
MAX_NEW_TOKENS = 512


class ReplyOptions(TypedDict, total=False):
    """The options of a reply as keyword arguments. `LLM.generate` says what they mean."""

    max_new_tokens: int | None
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    repeat_last_n: int
    seed: int | None
    stop: str | Sequence[str]
    ignore_eos: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one reply, with their defaults. Values that mean nothing are refused."""

    max_new_tokens: int | None = MAX_NEW_TOKENS
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    seed: int | None = None
    stop: str | Sequence[str] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        self.sampler()
        if (limit := self.max_new_tokens) is not None and limit < 1 and limit != -1:
            raise UsageError(f"max_new_tokens is {limit}, expected at least 1, or -1 for no limit")

    def sampler(self) -> Sampler:
        """The sampler. Its seed is random if none is given and it is used."""
        return make_sampler(
            self.temperature, self.top_k, self.top_p, self.min_p, self.seed, self.repeat_penalty, self.repeat_last_n
        )

    def limit(self) -> int:
        """The most tokens of the reply."""
        return sys.maxsize if self.max_new_tokens in (None, -1) else self.max_new_tokens

    def stops(self) -> Sequence[str]:
        """The texts that end the reply."""
        return (self.stop,) if isinstance(self.stop, str) else self.stop


def takes_reply_options(method: Callable[P, R]) -> Callable[P, R]:
    """Let help(), notebooks and editors see each option with its default, in the place of **options."""
    signature = inspect.signature(method)
    known = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    shared = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
        for f in fields(Options)
    ]
    method.__signature__ = signature.replace(parameters=[*known, *shared])  # type: ignore[attr-defined]
    return method


def make_sampler(
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int | None = None,
    repeat_penalty: float = 1.0,
    repeat_last_n: int = 64,
) -> Sampler:
    """A sampler with checked settings. Its seed is random if none is given and it is used."""
    sampler = Sampler(
        float(temperature), int(top_k), float(top_p), float(min_p), seed or 0, float(repeat_penalty), repeat_last_n
    )
    sampler.check()
    return replace(sampler, seed=random_seed()) if seed is None and not sampler.greedy else sampler
