"""The record of one call, for reports and other observers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..gpu.callstats import CallStats
from ..shapes import Dims


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One run of the model: which tokens, when, and where the time went."""

    index: int
    phase: str  # prefill or decode
    tokens: int
    position: int  # of the first token
    start_ns: int
    wall_ns: int
    stats: CallStats
    shapes: tuple[Dims, ...] = ()  # live dims of the inputs


Observer = Callable[[ModelCall], None]
