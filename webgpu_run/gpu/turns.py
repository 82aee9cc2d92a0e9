"""Where the data of each turn is: at the start of the arena every turn of a submission has an area of its own.

An area holds the slots, the last of which is the number of the turn, and then the sampler words of wr.pick. Kernels
bind these with a dynamic offset, so the turns of a submission are one compute pass without a copy between them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..graph.graph import Graph
from ..graph.passes.pick import PICK
from ..ops.plan import TURNS
from ..shapes import Array
from .native import Native, Offsets, RecordedDispatch

SLOTS = 64  # integers that kernels can read, with the number of the turn; slots.wgsl declares an array of this length
WORDS_AT = 4 * SLOTS  # where the sampler words are in an area
AREA = 512  # bytes; a single turn may have more sampler words, which take up the areas after its own
AREAS = AREA * TURNS


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of the current plans. If a submission has several, each brings its own slots and inputs."""

    slots: Sequence[int] = ()
    inputs: tuple[tuple[int, Array], ...] = ()  # (tensor, data as the device stores it)


def words_of(graph: Graph) -> int | None:
    """The input with the sampler words, if the graph chooses ids."""
    last = graph.nodes[-1] if graph.nodes else None
    return last.tensors["how"] if last and last.op.name == PICK else None


def areas(turns: Sequence[Turn], words: int | None) -> Iterator[tuple[int, bytes]]:
    """(offset in the arena, bytes) of everything in the areas of these turns."""
    for k, turn in enumerate(turns):
        yield k * AREA, struct.pack(f"<{len(turn.slots)}i", *turn.slots)
        yield k * AREA + WORDS_AT - 4, struct.pack("<i", k)
        for v, data in turn.inputs:
            if v == words:
                yield k * AREA + WORDS_AT, data.tobytes()


class Recorded:
    """The dispatches of the current commands, recorded for each turn."""

    def __init__(self, native: Native, first: Sequence[RecordedDispatch]) -> None:
        self._native = native
        self._turns: list[Sequence[RecordedDispatch]] = [first]

    def turn(self, k: int) -> Sequence[RecordedDispatch]:
        while len(self._turns) <= k:
            at = len(self._turns) * AREA
            moved: dict[int, Offsets] = {n: self._native.offsets(n, at) for n in (0, 1, 2)}
            self._turns.append([(*c[:6], moved[c[6][0]]) for c in self._turns[0]])
        return self._turns[k]
