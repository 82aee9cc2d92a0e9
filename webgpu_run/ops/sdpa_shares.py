"""How attention over caches that are buffers is divided among workgroups.

Decode and short prompts have few queries: a workgroup of sdpa_rows.wgsl keeps them in registers. Longer prompts on GPUs
have tiles of 32 queries, for which sdpa_tiled.wgsl keeps keys and values in workgroup memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..shapes import Dims, align, ceil_div
from .limits import Limits
from .spec import Resource
from .wgsl import Consts

POSITIONS = 4  # positions per tile of a group of eight lanes
WHOLE_TILES = 4  # one workgroup reads these no slower than several would, because their results need another dispatch
FLOATS = 512  # of queries that a workgroup keeps in registers, besides the same number of sums
TILE = 32  # queries, and positions at a time, per workgroup of sdpa_tiled.wgsl
STAGE = 2 * 4 * TILE  # cells of 16 bytes of its queries and keys, in whose place values are next


@dataclass(frozen=True, slots=True)
class Shares:
    """The part of one workgroup, and the number of workgroups."""

    kernel: str
    queries: int  # per workgroup
    tile: int  # positions that a workgroup reads at a time
    items: int  # workgroups if none of them splits the context
    consts: Consts
    splits: int = 1  # workgroups that share one context

    @property
    def span(self) -> int:
        """The longest live context that one workgroup reads alone, even if there are splits for a longer one."""
        return WHOLE_TILES * self.tile


def shares(q: Dims, cache: Dims, limits: Limits) -> Shares:
    """From the live rows and the largest context, so that a new position does not change it."""
    found = _tiles(q, cache, limits) or _rows(q, cache, limits)
    if cache[1] <= found.span:
        return found
    splits = min(limits.profile.fill // found.items, ceil_div(cache[1], found.tile), limits.max_workgroups)
    return replace(found, splits=max(1, splits))


def _tiles(q: Dims, cache: Dims, limits: Limits) -> Shares | None:
    """Tiles in workgroup memory, if the queries of a key head fill one."""
    seq, heads, dim = q[1:]
    queries = seq * (heads // cache[2])
    lanes = 8 if dim <= 128 else 16  # so that the sums of an invocation stay in registers
    values = next((n for n in (32, 16, 8, 4) if n * dim <= 4 * STAGE), 0)  # positions
    room = 16 * (STAGE + 2 * 4 * 2 + 8 * TILE + 8 * lanes)  # with two cells more per row of the stage
    if not limits.profile.tiled or seq == 1 or queries < TILE or dim % 4 or not values:
        return None
    if room > limits.max_workgroup_bytes or 8 * lanes > limits.max_invocations:
        return None
    consts = (("LANES", lanes), ("VALUES", values))
    return Shares("sdpa_tiled", TILE, TILE, cache[2] * ceil_div(queries, TILE), consts)


def _rows(q: Dims, cache: Dims, limits: Limits) -> Shares:
    """Groups of eight lanes, each with some positions of the context, and all queries of the workgroup."""
    seq, heads, dim = q[1:]
    each = heads // cache[2]
    lanes = limits.profile.workgroup * (2 if seq == 1 and limits.profile.fill > 1 else 1)  # one row has few workgroups
    groups = max(1, min(lanes, limits.max_invocations) // 8)
    most = min(FLOATS // dim, _shared_queries(groups, limits))
    share = max(n for n in range(1, each + 1) if each % n == 0 and (n == 1 or n <= most))  # heads of one key head
    rows = max(1, min(4, most // share)) if seq > 1 else 1
    consts = (("SHARE", share), ("QROWS", rows), ("GROUPS", groups), ("POSITIONS", POSITIONS))
    kernel = "sdpa_subgroup" if limits.subgroups else "sdpa"
    return Shares(kernel, share * rows, groups * POSITIONS, heads // share * ceil_div(seq, rows), consts)


def _shared_queries(groups: int, limits: Limits) -> int:
    """Queries per workgroup whose scores fit workgroup memory, where no subgroup sums them."""
    if limits.subgroups:
        return FLOATS
    lanes = 8 * groups
    room = limits.max_workgroup_bytes - 16 * lanes - align(8 * groups, 16)  # besides `sums` and `stats`
    return room // (4 * POSITIONS * lanes)


def part_resources(q: Dims, cache: Dims, limits: Limits) -> dict[str, Resource]:
    """Scratch for the results of the splits. A plan uses at most `fill` workgroups, whatever the number of rows."""
    largest = (1, max(1, q[1]), *q[2:])
    tiles = _tiles(largest, cache, limits)
    each = max(_rows(largest, cache, limits).queries, tiles.queries if tiles else 0)
    queries = limits.profile.fill * each
    return {"part": Resource(queries * q[3] * 4), "stat": Resource(queries * 8)}
