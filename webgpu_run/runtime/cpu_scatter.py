"""CPU kernels in which several inputs meet in one output: scattered reductions, folding of patches, bags of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..formats.pte import Tensor
from ..shapes import Array
from .cpu_moves import part_of, scattered
from .cpu_table import Ints, fitting, kernel, widened, within

SUM, MEAN, MAX = range(3)  # the modes of an embedding bag


def _identity(reduce: str, dtype: np.dtype[Any]) -> float | int | bool:
    """What a reduction of nothing is."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    is_max = reduce == "amax"
    if dtype.kind == "f":
        return -np.inf if is_max else np.inf
    if dtype.kind == "b":
        return not is_max
    return int(np.iinfo(dtype).min if is_max else np.iinfo(dtype).max)


@kernel("scatter_reduce.two_out")
def scatter_reduce(x: Array, dim: int, index: Array, source: Array, reduce: str, include_self: bool) -> Array:
    combine = {"sum": np.add, "mean": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}.get(reduce)
    if combine is None:
        raise ValueError(f"reduce is {reduce!r}")
    values, start = widened(part_of(source, index)), widened(x)
    reached = scattered(np.zeros(x.shape, np.int64), dim, index, 1, np.add)
    if not include_self:
        start = np.where(reached > 0, np.asarray(_identity(reduce, start.dtype), start.dtype), start)
    total = scattered(start, dim, index, values, combine)
    if reduce != "mean":
        return total
    count = np.maximum(reached + int(include_self), 1)
    return np.asarray(total // count if total.dtype.kind in "iu" else total / count, total.dtype)


@kernel("col2im.out")
def col2im(
    x: Array, size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints, *, out: Tensor
) -> Array:
    """Columns of patches back into an image, where patches that overlap are added up."""
    (high, wide), (kh, kw) = fitting((*out.dims[:-2], *size), out)[-2:], kernel_size
    if min(*kernel_size, *dilation, *stride) < 1 or any(
        not 0 <= p <= d * (k - 1) for k, d, p in zip(kernel_size, dilation, padding, strict=True)
    ):
        raise ValueError(f"patches of {list(kernel_size)} with padding {list(padding)} and stride {list(stride)}")
    rows, columns = (
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(size, kernel_size, dilation, padding, stride, strict=True)
    )
    columned = widened(x if x.ndim == 3 else x[None])
    patches = columned.reshape(columned.shape[0], -1, kh, kw, rows, columns)
    image = np.zeros((*patches.shape[:2], high + 2 * padding[0], wide + 2 * padding[1]), patches.dtype)
    for i in range(kh):
        for j in range(kw):
            top, left = i * dilation[0], j * dilation[1]
            part = image[:, :, top :: stride[0], left :: stride[1]]
            part[:, :, :rows, :columns] += patches[:, :, i, j]
    image = image[:, :, padding[0] : padding[0] + high, padding[1] : padding[1] + wide]
    return image if x.ndim == 3 else image[0]


@kernel("_embedding_bag.out", outs=4)
def embedding_bag(
    table: Array,
    index: Array,
    offsets: Array,
    by_frequency: bool,
    mode: int,
    is_sparse: bool,
    scales: Array | None,
    include_last: bool,
    padding: int,
) -> tuple[Array, Array, Array, Array]:
    """Sums, means or maxima of rows. Of the other three results, which only training reads, the sizes are right."""
    starts = offsets[:-1] if include_last else offsets
    ends = np.append(starts[1:], offsets[-1] if include_last else index.size) if starts.size else starts
    if starts.size and (starts[0] != 0 or (ends < starts).any() or ends[-1] > index.size):
        raise IndexError(f"bags begin at {starts.tolist()} of {index.size} rows")
    rows = widened(table)[within(index, table.shape[0])]
    if scales is not None:
        rows = rows * widened(scales)[:, None]
    bags = np.zeros((starts.size, table.shape[1]), rows.dtype)
    sizes = np.zeros(starts.size, index.dtype)
    for bag, (start, end) in enumerate(zip(starts, ends, strict=True)):
        kept = rows[start:end][index[start:end] != padding]
        sizes[bag] = len(kept)
        if len(kept):
            bags[bag] = kept.max(0) if mode == MAX else kept.sum(0) / (len(kept) if mode == MEAN else 1)
    bag_of = np.repeat(np.arange(starts.size, dtype=index.dtype), ends - starts)
    return bags, bag_of, sizes, np.zeros_like(sizes)
