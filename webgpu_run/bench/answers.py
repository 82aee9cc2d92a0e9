"""A language model's answers to the three kinds of requests that evaluation harnesses make, without any harness."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import UsageError
from ..llm import tokenizer as tokenizers
from ..llm.language_model import LLM
from ..llm.session import Session
from ..runtime.open import open_model, open_program
from .windows import Scorer

MAX_NEW_TOKENS = 256  # if a request does not say how long its reply may be


class Answers:
    """One model that returns the logits of every token, with its tokenizer."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        tokenizer: str | None = None,
        device: str | None = None,
        kv: str = "f32",
    ) -> None:
        program = open_program(path)
        self.tokenizer = tokenizers.find(program.path, tokenizer)
        model = open_model(program, device, kv=kv, all_rows=True)
        session = Session(model)
        self.capacity = session.capacity
        self.llm = LLM.of(session, self.tokenizer)
        self.scorer = Scorer(model)

    @property
    def prefix(self) -> int:
        """The token before a text that has no context: BOS, or the end of another text."""
        start = self.tokenizer.encode_prompt("")
        ends = sorted(self.tokenizer.eos_ids())
        if not start and not ends:
            raise UsageError("the tokenizer has neither a BOS nor an EOS token to start an empty context with")
        return (start or ends)[0]

    def likelihood(self, context: str, continuation: str) -> tuple[float, bool]:
        """log p of the continuation, and whether each of its tokens was the likeliest one."""
        kept = context.rstrip()
        continuation = context[len(kept) :] + continuation  # tokenizers put a space at the start of a token
        if not kept:
            return self._scored([self.prefix], self.tokenizer.encode_plain(continuation))
        before = self.tokenizer.encode_prompt(kept)
        return self._scored(before, self.tokenizer.encode_prompt(kept + continuation)[len(before) :])

    def rolling_likelihood(self, text: str) -> float:
        """log p of a whole text. The last window is as long as the context too, so it overlaps the one before it."""
        ids = [self.prefix, *self.tokenizer.encode_plain(text)]
        return sum(self._scored(ids[:at], ids[at:end])[0] for at, end in self._windows(len(ids)))

    def reply(self, context: str, settings: Mapping[str, Any]) -> str:
        """The reply to a prompt, up to one of the strings `until`; greedy unless `do_sample` is set."""
        until = settings.get("until") or []
        most = min(int(settings.get("max_gen_toks") or MAX_NEW_TOKENS), self.capacity - 1)
        prompt = (self.tokenizer.encode_prompt(context) or [self.prefix])[-(self.capacity - most) :]
        is_sampled = settings.get("do_sample") and settings.get("temperature")
        reply = self.llm.generate(
            prompt,
            max_new_tokens=most,
            temperature=float(settings["temperature"]) if is_sampled else 0.0,
            stop=[until] if isinstance(until, str) else list(until),
        )
        return str(reply)

    def _scored(self, before: Sequence[int], after: Sequence[int]) -> tuple[float, bool]:
        return self.scorer.likelihood(before, after, self.capacity) if after else (0.0, True)

    def _windows(self, count: int) -> Iterator[tuple[int, int]]:
        """(first, end) of the tokens that each window scores; the token at 0 is the prefix."""
        for at in range(1, count, self.capacity):
            yield at, min(at + self.capacity, count)
