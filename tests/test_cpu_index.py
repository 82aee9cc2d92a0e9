"""Indices of CPU kernels follow PyTorch: where negative ones count from the end, and what is out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_run.runtime.cpu import KERNELS
from webgpu_run.shapes import Array

X = np.arange(12.0).reshape(4, 3)


def call(name: str, *args: Any) -> Array:
    result: Array = KERNELS[f"aten::{name}"].f(*args)
    return result


def at(*index: int) -> Array:
    return np.array(index, np.int64)


def test_index_counts_negative_ones_from_the_end() -> None:
    assert np.array_equal(call("index.Tensor_out", X, [at(-1, 0, -4)]), X[[3, 0, 0]])
    assert np.array_equal(call("index.Tensor_out", X, [None, at(-3, 2)]), X[:, [0, 2]])


def test_index_put_counts_negative_ones_from_the_end() -> None:
    got = call("index_put.out", X, [at(-1)], np.full((1, 3), 7.0), False)
    assert np.array_equal(got[3], [7, 7, 7])
    assert np.array_equal(got[:3], X[:3])
    assert np.array_equal(call("index_put_", X, [at(0, 0)], np.ones(3), True)[0], X[0] + 2)


@pytest.mark.parametrize("index", [-5, 4, 2**40])
@pytest.mark.parametrize("name", ["index.Tensor_out", "index_put.out"])
def test_places_out_of_range_are_refused(name: str, index: int) -> None:
    rest = (np.zeros(3), False) if name == "index_put.out" else ()
    with pytest.raises(IndexError, match=rf"^index {index} is out of range of a dim of 4$"):
        call(name, X, [at(0, index)], *rest)
    with pytest.raises(IndexError, match=r"^3 indices for a tensor of 2 dims$"):
        call(name, X, [at(0), at(0), at(0)], *rest)


@pytest.mark.parametrize("index", [-1, 4])
def test_picked_rows_have_no_negative_index(index: int) -> None:
    """PyTorch refuses them here, unlike in `index`."""
    for name, args in (("index_select.out", (0, at(index))), ("gather.out", (0, at(index).reshape(1, 1), False))):
        with pytest.raises(IndexError, match=f"^index {index} is out of range of a dim of 4$"):
            call(name, X, *args)
    with pytest.raises(IndexError, match=f"^index {index} is out of range of a dim of 4$"):
        call("embedding.out", X, at(index), -1, False, False)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8])
def test_masks(dtype: type) -> None:
    mask = np.array([1, 0, 0, 1], dtype)
    assert np.array_equal(call("index.Tensor_out", X, [mask]), X[[0, 3]])
