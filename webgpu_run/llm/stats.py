"""Speeds of replies: tokens and times of prefill and decode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..runtime.calls import ModelCall


@dataclass(frozen=True, slots=True)
class ReplyStats:
    """Tokens that were run, and milliseconds. Times of phases exclude compilation, which has its own.

    `decode_tokens` are tokens that were run one at a time. A reply of n tokens has n - 1 of them, because its first
    token comes from the prefill and its last is not run.
    """

    prefill_tokens: int
    prefill_calls: int
    prefill_ms: float
    decode_tokens: int
    decode_calls: int
    decode_ms: float
    compile_ms: float
    ttft_ms: float | None = None  # from the request to the first token

    @classmethod
    def of(cls, calls: Sequence[ModelCall], ttft_ns: int | None = None) -> ReplyStats:
        """The sums over these calls."""
        sums: list[float] = []
        for name in ("prefill", "decode"):
            phase = [c for c in calls if c.phase == name]
            ns = sum(c.wall_ns - c.stats.compile_ns for c in phase)
            sums += [sum(c.tokens for c in phase), len(phase), max(ns, 0) / 1e6]
        compile_ms = sum(c.stats.compile_ns for c in calls) / 1e6
        a, b, prefill_ms, c, d, decode_ms = sums
        ttft_ms = None if ttft_ns is None else ttft_ns / 1e6
        return cls(int(a), int(b), prefill_ms, int(c), int(d), decode_ms, compile_ms, ttft_ms)

    @property
    def prefill_tok_s(self) -> float | None:
        """Tokens per second, or None if nothing was run."""
        return self.prefill_tokens / self.prefill_ms * 1e3 if self.prefill_ms else None

    @property
    def decode_tok_s(self) -> float | None:
        """Tokens per second, or None if nothing was run."""
        return self.decode_tokens / self.decode_ms * 1e3 if self.decode_ms else None

    def phases(self) -> list[str]:
        """Prefill and decode, each as a short text."""
        out = []
        for name, tokens, ms, rate in (
            ("prefill", self.prefill_tokens, self.prefill_ms, self.prefill_tok_s),
            ("decode", self.decode_tokens, self.decode_ms, self.decode_tok_s),
        ):
            out.append(f"{name} {tokens} tok {ms:,.0f} ms" + (f" {rate:,.1f} tok/s" if rate else ""))
        return out

    def __str__(self) -> str:
        ttft = [f"ttft {self.ttft_ms:,.0f} ms"] if self.ttft_ms is not None else []
        return " · ".join([*self.phases(), *ttft])
