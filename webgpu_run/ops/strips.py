"""f32 weights as strips of a texture, for linears and convolutions on software adapters with subgroups.

A strip is 32 columns (output channels), four for each of the 8 lanes of a workgroup. For each k it has eight texels,
one per lane. Such adapters load a texel faster than four numbers of a storage buffer, and what a lane has loaded
reaches the other lanes by a broadcast.
"""

from __future__ import annotations

import numpy as np

from ..shapes import Array, Dims, align, ceil_div, prod
from .limits import Limits
from .plan import Step, fold
from .spec import Packed

KERNELS = ("linear_strips", "conv2d_strips")  # those that read a packed weight
LANES, COLUMNS = 8, 32
SHARED = 32  # from this many strips times blocks of rows on, a linear has two strips per workgroup
LEAST = 16  # columns for which a strip, most of which would be zeros otherwise, is faster than other layouts


def texture_width(limits: Limits) -> int:
    """Texels per row of the texture: a power of two, so that kernels need no division."""
    return 1 << (limits.max_texture.bit_length() - 1)


def _texels(columns: int, k: int, groups: int) -> int:
    return groups * ceil_div(columns, COLUMNS) * align(k, 8) * LANES


def fits(columns: int, k: int, groups: int, limits: Limits) -> bool:
    """Whether weights of `groups` groups, each with these columns and k, become strips."""
    most = texture_width(limits) * limits.max_texture
    return limits.profile.shuffle and columns >= LEAST and 0 < _texels(columns, k, groups) <= most


def nbytes(w: Dims, groups: int, limits: Limits) -> int:
    """Bytes of the texture of a weight: of a linear [columns, k], or of a convolution [columns, k, height, width]."""
    texels = _texels(w[0] // groups, prod(w[1:]), groups)
    return 16 * align(texels, min(texels, texture_width(limits)))


def pack(w: Array, limits: Limits) -> Packed:
    """The texture of weights with dims [groups, columns, k]; columns and k are padded with zeros."""
    groups, columns, k = w.shape
    w = np.pad(w.astype(np.float32), ((0, 0), (0, -columns % COLUMNS), (0, -k % 8)))
    w = w.reshape(groups * w.shape[1] // COLUMNS, LANES, 4, w.shape[2]).transpose(0, 3, 1, 2)
    texels = np.ascontiguousarray(w).reshape(-1, 4)
    width = min(texture_width(limits), len(texels))
    texels = np.pad(texels, ((0, -len(texels) % width), (0, 0)))
    return Packed(texels.view(np.uint32).reshape(-1, width, 4), texture=True)


def linear(m: int, n: int, k: int, rows: int, bias: int, limits: Limits) -> Step:
    """The dispatch of a linear, `rows` rows per workgroup. Two strips share the rows if enough workgroups remain."""
    across, strips = ceil_div(m, rows), ceil_div(n, COLUMNS)
    together = 2 if rows > 4 and strips % 2 == 0 and across * strips >= SHARED else 1
    return Step(
        "linear_strips",
        (("m", m), ("n", n), ("k", k), ("across", across), ("strips", strips)),
        fold(across * strips // together, limits, f"{m} x {n} outputs"),
        (
            ("WIDTH", texture_width(limits)),
            ("ROWS", rows),
            ("STRIPS", together),
            ("EDGE", int(k % 8 > 0)),
            ("BIAS", bias),
        ),
        work=(4 * (m * k + n * k + m * n), 2 * m * n * k),
    )


def convolution(
    out: Dims,
    groups: int,
    channels: int,
    params: tuple[tuple[str, int | float | tuple[int, ...]], ...],
    bias: tuple[str, int],
    work: tuple[int, int],
    limits: Limits,
) -> Step:
    """The dispatch of a convolution whose groups have this number of input channels.

    Up to four strips share the inputs that a workgroup loads. The weights of four input channels are loaded at once, so
    that sums stay in registers for four products.
    """
    count, strips = prod(out[2:]), ceil_div(out[1] // groups, COLUMNS)
    together = next(n for n in (4, 3, 2, 1) if strips % n == 0)
    places = 8 if count > 1 else 1
    deep = 1 if channels % 4 else 4
    per_image = ceil_div(count, places)
    per_strip = out[0] * per_image
    return Step(
        "conv2d_strips",
        (("per_image", per_image), ("per_strip", per_strip), ("strips", strips), *params),
        fold(per_strip * groups * (strips // together), limits, f"{prod(out)} outputs"),
        (("WIDTH", texture_width(limits)), ("STRIPS", together), ("PLACES", places), ("DEEP", deep), bias),
        work=work,
    )
