"""How GPUs multiply by 4-bit weights: the constants of q4_few.wgsl and of the two kernels with tiles."""

from __future__ import annotations

from ..shapes import ceil_div
from .limits import Limits
from .q4_layout import BLOCK, WORKGROUPS, Layout

FEW_ROWS = 16  # up to this many rows go through q4_few.wgsl, which reads the weights once for each 8 rows
TILE_QUADS = 16  # of 4 columns, in a tile of linear_q4gsw_tiled.wgsl
_TILE_INVOCATIONS = 128
_MAX_SPLITS = 64
_BLOCK_BYTES = 144  # struct Block of few_x_staged.wgsl


def uses_tiles(m: int, limits: Limits) -> bool:
    """Whether m rows go through a kernel with tiles."""
    fits = _tile_bytes(8) <= limits.max_workgroup_bytes and limits.max_invocations >= _TILE_INVOCATIONS
    return limits.profile.tiled and m > FEW_ROWS and fits


def tile_consts(m: int, where: Layout) -> dict[str, int]:
    """The compile-time constants of both kernels with tiles: tiles of 64 rows if there are enough of them, else 32."""
    tiles = ceil_div(where.strips * where.lanes, TILE_QUADS) * ceil_div(m, 64)
    return where.consts() | {"TALL": 8 if m > 32 and tiles >= WORKGROUPS else 4}


def _tile_bytes(tall: int) -> int:
    """Workgroup memory of linear_q4gsw_tiled.wgsl."""
    return 8 * (tall * 64 + 64) + 4096


def few_kernel(consts: dict[str, int], *, in_bytes: bool) -> str:
    """The kernel for these constants. Where invocations share no x, it is one without x in workgroup memory."""
    name = "linear_dq8ca_few" if in_bytes else "linear_q4gsw_few"
    if consts["ROUND"]:
        return f"{name}_round"
    return "linear_q4gsw_narrow" if consts["QUADS"] == 1 else name


def few_consts(m: int, where: Layout, norm: bool, rounded: bool, limits: Limits) -> dict[str, int]:
    """The compile-time constants of q4_few.wgsl.

    Every workgroup reads all of x, so with more rows it computes more columns. The blocks of k are dealt out to the
    invocations that own the same columns as evenly as possible. Several turns share a chunk of x as long as an
    invocation copies at most two words at a time, because more of them take too many registers.
    """
    profile, blocks = limits.profile, where.k // BLOCK
    rows = next(r for r in (1, 2, 4, 8) if r >= min(m, 8))
    least = 4 if norm or rounded else 1  # invocations that share the work of a norm or of rounding
    quads = max(where.lanes, 2 * rows if rows > 1 else least)
    splits = min(profile.lanes * profile.splits // quads, limits.max_invocations // quads, blocks, _MAX_SPLITS)
    while splits > 1 and _shared_bytes(rows, quads, splits, 1) > limits.max_workgroup_bytes:
        splits -= 1
    turns = ceil_div(blocks, splits)
    turns += turns % 2 if turns > 4 else 0  # so that two of them can share a chunk
    if rows == 1 and turns > 4:
        turns = _even_turns(blocks, turns, quads, limits)
    splits = ceil_div(blocks, turns)
    copies = 4 * rows * (2 if norm else 1)  # of 8 k: of x, and of the norm's weight
    most = 2 if quads == 1 else 2 * quads // copies
    room = limits.max_workgroup_bytes
    shared = (t for t in (4, 3, 2) if turns % t == 0 and t <= most and _shared_bytes(rows, quads, splits, t) <= room)
    each = next(shared, 1)
    return (
        where.consts()
        | {
            "ROWS": rows,
            "QUADS": quads,
            "SPLITS": splits,
            "TURNS": each,
            "NORM": int(norm),
            "ROUND": int(rounded and m == 1),
        }
        | ({} if rounded and limits.dot4 else {"SIZES": int(rounded and m > 1)})
    )


def _even_turns(blocks: int, turns: int, quads: int, limits: Limits) -> int:
    """Turns that divide the blocks, if up to a quarter more invocations allow it.

    Otherwise the last turns have too few blocks, and every block is behind a branch.
    """
    for fewer in range(turns, 1, -2):
        splits = blocks // fewer
        most = min(limits.max_invocations // quads, _MAX_SPLITS)
        if fewer * 5 < turns * 4 or splits > most or _shared_bytes(1, quads, splits, 1) > limits.max_workgroup_bytes:
            break
        if blocks % fewer == 0:
            return fewer
    return turns


def _shared_bytes(rows: int, quads: int, splits: int, turns: int) -> int:
    """Workgroup memory of q4_few.wgsl."""
    invocations = quads * splits
    return rows * splits * turns * _BLOCK_BYTES + min(rows, 2) * invocations * 16 + invocations * 4
