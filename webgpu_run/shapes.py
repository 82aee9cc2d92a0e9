"""Arithmetic on dims and dtypes; depends on nothing else of ours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Dims = tuple[int, ...]
Array = np.ndarray[Any, np.dtype[Any]]

ITEMSIZE = {
    "float32": 4,
    "float16": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}


def prod(dims: Dims) -> int:
    """Number of elements; 1 for a scalar."""
    return math.prod(dims)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def align(n: int, to: int) -> int:
    return -(-n // to) * to


def rows_of(dims: Dims) -> int:
    """Number of rows when the last dim is the row."""
    return prod(dims[:-1])


def strides_of(dims: Dims) -> Dims:
    """Row-major strides in elements."""
    out = [1] * len(dims)
    for i in range(len(dims) - 2, -1, -1):
        out[i] = out[i + 1] * dims[i + 1]
    return tuple(out)


def wrap(dim: int, rank: int) -> int:
    """A dim counted from the end made one from the start; out of range raises IndexError."""
    if not -rank <= dim < max(rank, 1):
        raise IndexError(f"dim {dim} of a rank-{rank} tensor")
    return dim + rank if dim < 0 else dim


def broadcast(a: Dims, b: Dims) -> Dims:
    """The broadcast of two shapes; ValueError when they do not fit."""
    n = max(len(a), len(b))
    pa, pb = (1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b
    out = []
    for x, y in zip(pa, pb, strict=True):
        if x != y and 1 not in (x, y):
            raise ValueError(f"shapes {list(a)} and {list(b)} do not broadcast")
        out.append(y if x == 1 else x)
    return tuple(out)


def broadcast_strides(dims: Dims, out: Dims) -> Dims:
    """Strides that read `dims` as if it had shape `out`: 0 for what it has only one of."""
    return (0,) * (len(out) - len(dims)) + tuple(
        0 if d == 1 else s for d, s in zip(dims, strides_of(dims), strict=True)
    )
