"""One run of a model, as reports see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..gpu.callstats import CallStats
from ..shapes import Dims


@dataclass(frozen=True, slots=True)
class Call:
    """One run of the model, as reports see it."""

    index: int
    phase: str  # prefill or decode
    tokens: int
    position: int  # of the first of them
    start_ns: int
    wall_ns: int
    stats: CallStats
    shapes: tuple[Dims, ...] = ()  # live dims of the inputs


Observer = Callable[[Call], None]
