"""How 4-bit, group-scaled weights are stored: in the file, and in the texture that kernels read.

The file holds a weight as bytes [N, K/2] and scales [K/G, N]. A byte is two values of k, the even one in the low
nibble; nibble 8 stands for zero. Group g of G values of k shares one scale per column.

Kernels read a texture of 16-byte texels. Columns are dealt out in strips: a strip is 4 * LANES columns, and lane l of
strip s owns columns 4 * (s * LANES + l) to 4 * (s * LANES + l) + 3. One texel holds either the four f32 scales of a
lane's columns, or 32 consecutive values of k (a block) of one column, as the 16 bytes of the file. A texture row holds
TOGETHER strips, so that a workgroup that computes them reads one contiguous stream. With TOGETHER = 2 and G = 64:

    row:     | group 0                                                             | group 1 ...
             | scales          | block 0                   | block 1               |
             | s0     | s1     | s0 c0 c1 c2 c3 | s1 c0 .. | s0 c0 c1 c2 c3 | s1 .. |
    texels:  | LANES  | LANES  | 4 * LANES      | 4 * LANES| ...

where s0 and s1 are the two strips, c0 to c3 the four columns of a lane, and every entry is LANES texels, one per lane.
A strip that is wider than the widest texture has a row to itself and continues on the next ones (PARTS rows in all).
Weights that one dispatch multiplies by (queries, keys and values) follow one another, each padded to whole strips.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..shapes import Array, align, ceil_div
from .limits import Limits
from .spec import Packed

BLOCK = 32  # values of k in a texel
WORKGROUPS = 128  # strips that a GPU gets if the weight is wide enough: a workgroup computes one at a time
ZERO = 0x88  # two nibbles that stand for zero


def nibbles(w: Array) -> Array:
    """Bytes [N, K/2] as signed 4-bit values [N, K]."""
    out = np.empty((w.shape[0], w.shape[1] * 2), np.int8)
    out[:, 0::2] = (w & 15).astype(np.int8) - 8
    out[:, 1::2] = (w >> 4).astype(np.int8) - 8
    return out


def swap_nibbles(w: Array) -> Array:
    """Bytes whose high nibble is the even k, in this module's order; and the other way round."""
    return (w >> 4 | w << 4).astype(np.uint8)


def dequantize(w: Array, scales: Array, group: int, n: int, k: int) -> Array:
    """The weight [N, K] in float64. Scales are [K/G, at least N]."""
    full = nibbles(w)[:n, :k].astype(np.float64)
    return full * np.repeat(scales.astype(np.float64)[:, :n], group, 0)[:k].T


def lanes_of(widths: Sequence[int], limits: Limits) -> int:
    """Lanes of a strip. On GPUs strips of narrow weights have fewer lanes, so that there are enough workgroups.

    On software adapters vectors are halved for queries, keys and values whose strips would be padded otherwise, because
    attention_q4gsw.py needs these without gaps.
    """
    lanes = limits.profile.lanes
    if limits.profile.splits == 1 and len(widths) == 3 and any(n % (4 * lanes) for n in widths):
        return min(lanes, 8)
    while limits.profile.splits > 1 and lanes > 1 and sum(widths) < WORKGROUPS * 4 * lanes:
        lanes //= 2
    return lanes


def strip_counts(widths: Sequence[int], limits: Limits) -> list[int]:
    """Strips of each of the weights that share a texture."""
    lanes = lanes_of(widths, limits)
    return [ceil_div(n, 4 * lanes) for n in widths]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the texels of the strips of one texture are."""

    k: int
    group: int
    lanes: int
    strips: int
    strips_per_row: int  # TOGETHER in WGSL
    rows_per_strip: int  # PARTS in WGSL; over 1 only if strips_per_row is 1
    storage_texture: bool  # IMAGES in WGSL: read as a storage texture, not as a sampled one

    @property
    def rows(self) -> int:
        return ceil_div(self.strips, self.strips_per_row) * self.rows_per_strip

    @property
    def nbytes(self) -> int:
        """Bytes of weights and scales."""
        return self.strips * 4 * self.lanes * (self.k // 2 + self.k // self.group * 4)

    def consts(self) -> dict[str, int]:
        """The constants of include/q4_texel.wgsl."""
        return {
            "K": self.k,
            "G": self.group,
            "LANES": self.lanes,
            "TOGETHER": self.strips_per_row,
            "PARTS": self.rows_per_strip,
            "IMAGES": int(self.storage_texture),
        }


def layout(k: int, group: int, widths: Sequence[int], limits: Limits) -> Layout:
    """The layout of weights of these widths.

    Three strips per texture row if that leaves an even number of rows (load balance over two cores), else two: four
    defeat the hardware prefetcher. One where lanes share columns, or where the texture is too narrow for more.
    """
    profile, groups = limits.profile, k // group
    lanes, strips = lanes_of(widths, limits), sum(strip_counts(widths, limits))
    width = groups * (1 + group // 8) * lanes
    per_row = 3 if strips % 6 == 0 else 2
    if profile.splits > 1 or width * per_row > limits.max_texture:
        per_row = 1
    parts = ceil_div(width, limits.max_texture)
    while groups % parts:  # every row holds whole groups
        parts += 1
    return Layout(k, group, lanes, strips, per_row, parts, profile.images)


def fits(k: int, group: int, widths: Sequence[int], limits: Limits) -> bool:
    """Whether weights can be stored as strips: whole blocks, a texture that is tall enough, and on software adapters
    windows of x that start at aligned offsets. A row of x that is larger than a uniform as f32 must fit into one, and
    start at an aligned offset, when it is rounded to pairs, because weights are stored before that is known."""
    if k % BLOCK or group % BLOCK or k % group:
        return False
    row = k * 4 if k * 4 <= limits.max_uniform else k * 2  # bytes in a window; a long row is bound whole as f32
    if limits.profile.splits == 1 and (row > limits.max_uniform or row % limits.uniform_align):
        return False
    if (1 + group // 8) * lanes_of(widths, limits) > limits.max_texture:
        return False
    where = layout(k, group, widths, limits)
    return where.strips * where.rows_per_strip <= limits.max_texture


def texels(weights: Sequence[tuple[Array, Array]], group: int, limits: Limits) -> Packed:
    """The texture of one or more weights (bytes [N, K/2], scales [K/G, N]) that share K and G."""
    k = weights[0][0].shape[1] * 2
    widths = [w.shape[0] for w, _ in weights]
    where = layout(k, group, widths, limits)
    lanes, per_row = where.lanes, where.strips_per_row
    groups, blocks, rows = k // group, group // BLOCK, ceil_div(where.strips, per_row)
    # complex128 is 16 bytes, one texel: numpy copies it as a unit
    out = np.zeros((rows, groups, per_row * (1 + 4 * blocks), lanes), np.complex128)
    columns = out[:, :, per_row:].reshape(rows, groups, blocks, per_row, 4, lanes)
    first = 0
    for (w, scales), n, strips in zip(weights, widths, strip_counts(widths, limits), strict=True):
        pad = strips * 4 * lanes - n
        if pad:
            w = np.concatenate([w, np.full((pad, k // 2), ZERO, np.uint8)])
        s = np.zeros((groups, strips * 4 * lanes), np.float32)
        s[:, :n] = scales[:, :n]
        source = np.ascontiguousarray(w).view(np.complex128).reshape(strips, lanes, 4, groups, blocks)
        scale = s.view(np.complex128).reshape(groups, strips, lanes)
        for strip in range(strips):
            row, at = divmod(first + strip, per_row)
            columns[row, :, :, at] = source[strip].transpose(2, 3, 1, 0)
            out[row, :, at] = scale[:, strip]
        first += strips
    return Packed(out.view(np.uint32).reshape(where.rows, -1, 4), texture=True)


def bias_strips(biases: Sequence[Array], widths: Sequence[int], limits: Limits) -> Array:
    """Biases one after the other, each padded to whole strips as its weight is."""
    rows = []
    lanes = lanes_of(widths, limits)
    for bias, n, strips in zip(biases, widths, strip_counts(widths, limits), strict=True):
        row = np.zeros(strips * 4 * lanes, np.float32)
        row[:n] = bias[:n]
        rows.append(row)
    return np.concatenate(rows)


def paired(gate: tuple[Array, Array], up: tuple[Array, Array]) -> tuple[Array, Array]:
    """Gate and up of a SwiGLU as one weight: a lane's four columns are two of gate and the same two of up."""
    n = gate[0].shape[0]
    odd = n % 2  # the missing odd column is padded with zeros
    w = [np.pad(part, ((0, odd), (0, 0)), constant_values=ZERO) for part, _ in (gate, up)]
    s = [np.pad(scales[:, :n].T, ((0, odd), (0, 0))) for _, scales in (gate, up)]
    both = [np.stack(parts).reshape(2, -1, 2, parts[0].shape[1]).swapaxes(0, 1) for parts in (w, s)]
    return both[0].reshape(-1, both[0].shape[-1]), both[1].reshape(-1, both[1].shape[-1]).T


def paired_width(n: int) -> int:
    """Columns of a `paired` weight of two halves of n columns."""
    return 2 * align(n, 2)
