"""What a plan is: output dims, dispatches with their uniforms and grids, and the route they stand for."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from ..errors import ShapeError, UnsupportedError
from ..shapes import Dims, ceil_div
from . import wgsl
from .limits import Limits
from .wgsl import Consts

Grid = tuple[int, int, int]


STAGED_ROWS = 64  # of a layer of an image that rows are copied into


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a tensor that a step binds, in bytes."""

    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Stage:
    """Rows of a tensor that are first copied into an image, a layer of `STAGED_ROWS` after the other."""

    source: str
    image: str
    rows: int
    width: int  # texels a row


@dataclass(frozen=True, slots=True)
class Step:
    """One dispatch: a kernel with its compile-time constants, uniform values and grid."""

    kernel: str
    params: tuple[tuple[str, int | float | tuple[int, ...]], ...]
    grid: Grid
    consts: Consts = ()
    windows: tuple[tuple[str, Window], ...] = ()
    rename: tuple[tuple[str, str], ...] = ()  # kernel binding -> arg, where one kernel serves several args
    work: tuple[int, int] = (0, 0)  # (bytes moved, floating-point operations), for reports
    stage: Stage | None = None  # before the dispatch

    def uniform(self) -> bytes:
        return _packed(self.kernel, self.params)


@functools.lru_cache(maxsize=65536)
def _packed(name: str, params: tuple[tuple[str, int | float | tuple[int, ...]], ...]) -> bytes:
    return wgsl.load(name).pack(dict(params))


@dataclass(frozen=True, slots=True)
class Bound:
    """A SymInt that kernels read from its slot must stay within [0, high]."""

    arg: str
    high: int
    what: str


@dataclass(frozen=True, slots=True)
class Reach:
    """A node's images hold `unit` positions a layer and are bound up to the one of position `arg` + `rows`."""

    arg: str
    rows: int
    unit: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All that one node does for one set of live shapes."""

    outs: tuple[Dims, ...] = ()
    steps: tuple[Step, ...] = ()
    route: str = ""
    bounds: tuple[Bound, ...] = ()
    sym: int | None = None
    reach: Reach | None = None


def fold(groups: int, limits: Limits, what: str = "dispatch") -> Grid:
    """A grid of at least `groups` workgroups; kernels count them as `wid.y * num_workgroups.x + wid.x`."""
    top = limits.max_workgroups
    if groups <= top:
        return (groups, 1, 1)
    rows = ceil_div(groups, top)
    if rows > top:
        raise ShapeError(f"{what}: {groups} workgroups are over the adapter's limit of {top} x {top}")
    return (ceil_div(groups, rows), rows, 1)


def row_parts(rows: int, row_nbytes: int, limits: Limits) -> list[tuple[int, int]]:
    """(first row, number of rows) of the fewest parts that a binding holds and that start where one may."""
    if rows * row_nbytes <= limits.max_binding:
        return [(0, rows)]
    unit = limits.storage_align // math.gcd(limits.storage_align, row_nbytes)
    most = limits.max_binding // row_nbytes // unit * unit
    need(most > 0, f"a row of {row_nbytes:,} bytes is over the {limits.max_binding:,} that the adapter binds")
    return [(first, min(most, rows - first)) for first in range(0, rows, most)]


def need(ok: bool, message: str) -> None:
    """Refuse a shape."""
    if not ok:
        raise ShapeError(message)


def unsupported(ok: bool, message: str) -> None:
    """Refuse a form of the op that has no kernel."""
    if not ok:
        raise UnsupportedError(message)
