"""The totals of a run: tokens and times of prefill and decode, and the reason it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..runtime.calls import Call


class RunTotals:
    """Filled in while a run goes on; gives the stats line or the same numbers as a dictionary."""

    def __init__(self) -> None:
        self.calls: Sequence[Call] = ()
        self.generated = 0
        self.ttft_ns: int | None = None
        self.reason = ""
        self.seed: int | None = None
        self.turns = 0

    def _phase(self, name: str) -> tuple[int, int, int]:
        """Tokens, calls and nanoseconds of one phase. Compile time is excluded."""
        calls = [c for c in self.calls if c.phase == name]
        return sum(c.tokens for c in calls), len(calls), sum(c.wall_ns - c.stats.compile_ns for c in calls)

    @property
    def _compile_ns(self) -> int:
        return sum(c.stats.compile_ns for c in self.calls)

    @property
    def _method(self) -> str | None:
        """The name of the method, if the run was not text generation."""
        return next((c.phase for c in self.calls if c.phase not in ("prefill", "decode")), None)

    def line(self, gpu_bytes: int) -> str:
        """The stats line."""
        if self._method:
            ns = self._phase(self._method)[2]
            return f"{self._method} {ns / 1e6:,.1f} ms · GPU {gpu_bytes / 1e6:,.0f} MB"
        tokens, _, ns = self._phase("prefill")
        parts = [f"prefill {tokens} tok {_rate(tokens, ns)}"]
        steps, _, ns = self._phase("decode")
        parts.append(f"decode {self.generated} tok {_rate(steps, ns)}" if steps else f"decode {self.generated} tok")
        if self.ttft_ns is not None:
            parts.append(f"ttft {self.ttft_ns / 1e6:,.0f} ms")
            if self._compile_ns > self.ttft_ns / 2:  # worth saying: drivers cache kernels, so the next run is faster
                parts.append(f"compiled kernels {self._compile_ns / 1e6:,.0f} ms")
        parts.append(f"GPU {gpu_bytes / 1e6:,.0f} MB")
        if self.reason:
            parts.append(f"stop: {self.reason}")
        return " · ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """The totals for `--stats json`."""
        if self._method:
            _, calls, ns = self._phase(self._method)
            return {
                self._method: {"calls": calls, "ms": round(ns / 1e6, 3)},
                "compile_ms": round(self._compile_ns / 1e6, 3),
            }
        totals: dict[str, Any] = {}
        for name in ("prefill", "decode"):
            tokens, calls, ns = self._phase(name)
            rate = round(tokens / ns * 1e9, 3) if ns else None
            totals[name] = {"tokens": tokens, "calls": calls, "ms": round(ns / 1e6, 3), "tok_s": rate}
        totals["compile_ms"] = round(self._compile_ns / 1e6, 3)
        totals["generated"] = self.generated
        totals["ttft_ms"] = round(self.ttft_ns / 1e6, 3) if self.ttft_ns is not None else None
        totals["stop"] = self.reason or None
        totals["seed"] = self.seed
        if self.turns:
            totals["turns"] = self.turns
        return totals


def _rate(tokens: int, ns: int) -> str:
    return f"{tokens / ns * 1e9:,.1f} tok/s" if ns > 0 else "– tok/s"
