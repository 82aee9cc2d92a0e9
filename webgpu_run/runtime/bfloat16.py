"""bfloat16, which numpy does not have, as float32 arrays that hold bfloat16 values only.

Every bfloat16 is a float32 whose low 16 bits are zero. So moves copy it exactly, kernels compute in float32, as
PyTorch does on a CPU, and a result is rounded once, when it is stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..shapes import Array

_NAN = np.uint32(0x7FC00000)


def from_bits(bits: Array) -> Array:
    """The values of 16-bit patterns."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def rounded(x: Any) -> Array:
    """The nearest bfloat16 of each number, of two equally near ones that with an even last bit.

    As in PyTorch, other types go through float32. A NaN that is not a bfloat16 becomes a quiet NaN.
    """
    values = np.ascontiguousarray(x, np.float32).reshape(np.shape(x))
    bits = values.view(np.uint32)
    is_lost = np.isnan(values) & (bits & np.uint32(0xFFFF) != 0)
    half = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    kept = np.where(is_lost, np.uint32(0), bits) + half & np.uint32(0xFFFF0000)
    return np.asarray(np.where(is_lost, _NAN, kept)).view(np.float32)


def stored(x: Any, dtype: str) -> Array:
    """Numbers as an array that holds a tensor of this dtype."""
    return rounded(x) if dtype == "bfloat16" else np.asarray(x).astype(dtype, copy=False)
