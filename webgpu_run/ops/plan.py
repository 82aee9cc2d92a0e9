"""What a plan is: the output dims of one call of an op, and the dispatches that compute them.

A plan has no reference to a device. The executor binds its steps to buffers, and tests compare plans as values.
"""

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
TURNS = 16  # most turns in one submission
STAGED_ROWS = 64  # rows in each layer of a texture that activations are copied into


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a tensor that a step binds, in bytes; without a window it binds the whole tensor."""

    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Stage:
    """A copy of the rows of a tensor into a texture before the dispatch, `STAGED_ROWS` rows in each layer."""

    source: str
    image: str
    rows: int
    width: int  # texels per row


@dataclass(frozen=True, slots=True)
class Idle:
    """A dispatch that does nothing while position `arg` is below `below`. The executor omits it then."""

    arg: str
    below: int


@dataclass(frozen=True, slots=True)
class Step:
    """One dispatch of a kernel."""

    kernel: str  # the name of a file in wgsl/
    params: tuple[tuple[str, int | float | tuple[int, ...]], ...]
    grid: Grid  # workgroups
    consts: Consts = ()  # constants and types that the text of the kernel is compiled with
    windows: tuple[tuple[str, Window], ...] = ()
    rename: tuple[tuple[str, str], ...] = ()  # (binding, argument) where the two have different names
    work: tuple[int, int] = (0, 0)  # (bytes moved, floating-point operations), for reports
    stage: Stage | None = None
    idle: Idle | None = None

    def uniform(self) -> bytes:
        """The parameters as the kernel's `struct Params` has them."""
        return _packed(self.kernel, self.params)


@functools.lru_cache(maxsize=4096)
def _packed(name: str, params: tuple[tuple[str, int | float | tuple[int, ...]], ...]) -> bytes:
    return wgsl.load(name).pack(dict(params))


@dataclass(frozen=True, slots=True)
class Bound:
    """The range of a position that kernels read from a slot: 0 to `high`. The planner checks it before a call."""

    arg: str
    high: int
    what: str  # for the message


@dataclass(frozen=True, slots=True)
class Reach:
    """How much of a cache in textures a call binds: the layers up to position `arg` + `rows`, `unit` positions each."""

    arg: str
    rows: int
    unit: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that one node does for one set of live shapes."""

    outs: tuple[Dims, ...] = ()
    steps: tuple[Step, ...] = ()
    route: str = ""  # which way of computing was chosen, for people: "gemv", "vec4", "empty"
    bounds: tuple[Bound, ...] = ()
    sym: int | None = None  # the result of an op that computes an integer
    reach: Reach | None = None


def fold(groups: int, limits: Limits, what: str = "dispatch") -> Grid:
    """A grid of at least `groups` workgroups, in two dimensions if the adapter takes fewer in one.

    Kernels number them `wid.y * num_workgroups.x + wid.x`.
    """
    top = limits.max_workgroups
    if groups <= top:
        return (groups, 1, 1)
    rows = ceil_div(groups, top)
    if rows > top:
        raise ShapeError(f"{what}: {groups} workgroups are over the adapter's limit of {top} x {top}")
    return (ceil_div(groups, rows), rows, 1)


def row_parts(rows: int, row_nbytes: int, limits: Limits) -> list[tuple[int, int]]:
    """Split rows into as few parts as can be bound one at a time, as (first row, number of rows).

    A part has to start at a multiple of the adapter's alignment.
    """
    if rows * row_nbytes <= limits.max_binding:
        return [(0, rows)]
    unit = limits.storage_align // math.gcd(limits.storage_align, row_nbytes)
    most = limits.max_binding // row_nbytes // unit * unit
    need(most > 0, f"a row of {row_nbytes:,} bytes is over the {limits.max_binding:,} that the adapter binds")
    return [(first, min(most, rows - first)) for first in range(0, rows, most)]


def need(ok: bool, message: str) -> None:
    """Refuse a shape unless `ok`."""
    if not ok:
        raise ShapeError(message)


def unsupported(ok: bool, message: str) -> None:
    """Refuse a form of the op that has no kernel unless `ok`."""
    if not ok:
        raise UnsupportedError(message)
