"""The totals of a run: times that add up, tokens, and the reason it ended."""

from __future__ import annotations

import time
from typing import Any

from ..llm.reply import Reply
from ..llm.stats import ReplyStats
from ..runtime.calls import ModelCall


class RunTotals:
    """Filled in while a run goes on; gives the stats line or the same numbers as a dictionary.

    Load, compile, prefill and decode are disjoint parts of the total. The rest of it is text: tokenizing and printing.
    The time in which a chat waits for a question does not count.
    """

    def __init__(self, zero_ns: int) -> None:
        self.zero_ns = zero_ns
        self.load_ns = 0
        self.waited_ns = 0
        self.calls: list[ModelCall] = []
        self.generated = 0
        self.ttft_ms: float | None = None
        self.reason = ""
        self.seed: int | None = None
        self.turns = 0

    def add(self, reply: Reply) -> None:
        """Add a reply that has ended."""
        self.calls += reply.calls
        self.generated += len(reply.ids)
        self.reason = reply.reason
        if self.ttft_ms is None:
            self.ttft_ms = reply.stats.ttft_ms

    @property
    def _method(self) -> str | None:
        """The name of the method, if the run was not text generation."""
        return next((c.phase for c in self.calls if c.phase not in ("prefill", "decode")), None)

    @property
    def _method_ms(self) -> float:
        return sum(c.wall_ns - c.stats.compile_ns for c in self.calls) / 1e6

    @property
    def _total_ms(self) -> float:
        return (time.perf_counter_ns() - self.zero_ns - self.waited_ns) / 1e6

    def line(self, gpu_bytes: int) -> str:
        """The stats line. Its parts add up to at most the total."""
        stats, total_ms = ReplyStats.of(self.calls), self._total_ms
        phases = [f"{self._method} {self._method_ms:,.1f} ms"] if self._method else stats.phases()
        parts = [f"load {self.load_ns / 1e6:,.0f} ms", f"compile {stats.compile_ms:,.0f} ms", *phases]
        parts.append(f"total {total_ms:,.0f} ms")
        if self.ttft_ms is not None:
            parts.append(f"ttft {self.ttft_ms:,.0f} ms")
        parts.append(f"GPU {gpu_bytes / 1e6:,.0f} MB" if gpu_bytes >= 1e6 else f"GPU {gpu_bytes / 1e3:,.0f} kB")
        if self.reason:
            parts.append(f"stop: {self.reason}")
        return " · ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """The totals for `--stats json`."""
        stats = ReplyStats.of(self.calls)
        totals: dict[str, Any] = {
            "load_ms": round(self.load_ns / 1e6, 3),
            "compile_ms": round(stats.compile_ms, 3),
            "total_ms": round(self._total_ms, 3),
        }
        if self._method:
            return totals | {self._method: {"calls": len(self.calls), "ms": round(self._method_ms, 3)}}
        for name in ("prefill", "decode"):
            rate = getattr(stats, f"{name}_tok_s")
            totals[name] = {
                "tokens": getattr(stats, f"{name}_tokens"),
                "calls": getattr(stats, f"{name}_calls"),
                "ms": round(getattr(stats, f"{name}_ms"), 3),
                "tok_s": round(rate, 3) if rate else None,
            }
        totals["generated"] = self.generated
        totals["ttft_ms"] = round(self.ttft_ms, 3) if self.ttft_ms is not None else None
        totals["stop"] = self.reason or None
        totals["seed"] = self.seed
        if self.turns:
            totals["turns"] = self.turns
        return totals
