"""The table of CPU kernels, and PyTorch's rules for the dtype in which operands meet.

A kernel takes its inputs in the order of the schema and returns the value, or a sequence of values if it has several
outputs. The interpreter casts each to the dtype of its output. Nothing is written in place, so a call that fails
changes nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..formats.pte import Tensor
from ..shapes import Array

Ints = Sequence[int]
Scalar = bool | int | float
Function = Callable[..., Any]
NUMBERS = {bool: np.dtype(bool), int: np.dtype(np.int64), float: np.dtype(np.float32)}
RANKS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}  # of numpy's kinds: a higher one decides the common dtype


@dataclass(frozen=True, slots=True)
class CpuKernel:
    """A function, and the layout of its calls: `inputs` arguments, then the outputs, as a rule twice."""

    f: Callable[..., Any]
    inputs: int
    outs: int = 1
    target: int | None = None  # the input that is overwritten, if there is no separate output
    takes: frozenset[str] = frozenset()  # `out`: the declaration of the first output; `order`: dim order of argument 0

    def outputs(self, args: Sequence[int]) -> tuple[int, ...]:
        """The ids of the values that a call fills; empty if the call has another number of arguments."""
        if self.target is not None:
            return (args[self.target],) if len(args) in (self.inputs, self.inputs + 1) else ()
        end = self.inputs + self.outs
        return tuple(args[self.inputs : end]) if len(args) in (end, end + 1) else ()


KERNELS: dict[str, CpuKernel] = {}


def kernel(
    names: str, *, outs: int = 1, target: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under each of the names. A name without a namespace belongs to aten."""

    def add(f: Function) -> Function:
        params = inspect.signature(f).parameters.values()
        takes = frozenset(p.name for p in params if p.kind == p.KEYWORD_ONLY)
        for name in names.split():
            KERNELS[_full(name)] = CpuKernel(f, len(params) - len(takes), outs, target, takes)
        return f

    return add


def plain(names: str, f: Callable[..., Any], count: int) -> None:
    """Register a function of `count` arguments that has no signature of its own, such as those of `operator`."""
    for name in names.split():
        KERNELS[_full(name)] = CpuKernel(f, count)


def elementwise(names: str, f: Callable[..., Any], count: int, *, floats: bool = False) -> None:
    """Register f under each of the names. Its `count` operands arrive in their common dtype, see `common`."""
    plain(names, lambda *args: f(*common(args, floats=floats)), count)


def _full(name: str) -> str:
    return name if "::" in name else f"aten::{name}"


def common(args: Sequence[Any], *, floats: bool = False) -> list[Any]:
    """The operands in the dtype that PyTorch computes in; None stays None. With `floats`, integers become float32.

    Tensors with dims come first. A tensor without dims, and then a number, counts only if it is of a higher kind
    (boolean, integer, floating point). float16 is computed in float32, as PyTorch does on a CPU.
    """
    dtype: np.dtype[Any] | None = None
    groups: tuple[list[np.dtype[Any]], ...] = ([], [], [])
    for arg in args:
        if isinstance(arg, np.ndarray | np.generic):
            groups[0 if arg.ndim else 1].append(arg.dtype)
        elif arg is not None:
            groups[2].append(
                np.dtype(bool if isinstance(arg, bool) else np.int64 if isinstance(arg, int) else np.float32)
            )
    for group in groups:
        for other in group:
            dtype = other if dtype is None else _promoted(dtype, other, is_weak=group is not groups[0])
    if dtype is None:
        raise TypeError("no operand")
    if floats and RANKS[dtype.kind] < RANKS["f"]:
        dtype = np.dtype(np.float32)
    wide = np.dtype(np.float32) if dtype == np.float16 else dtype
    return [arg if arg is None else _cast(arg, dtype).astype(wide, copy=False) for arg in args]


def _promoted(a: np.dtype[Any], b: np.dtype[Any], *, is_weak: bool) -> np.dtype[Any]:
    if RANKS[a.kind] != RANKS[b.kind]:
        return max(a, b, key=lambda dtype: RANKS[dtype.kind])
    return a if is_weak else np.promote_types(a, b)


def _cast(value: Any, dtype: np.dtype[Any]) -> Array:
    if isinstance(value, int) and dtype.kind in "iu":
        most = int(np.iinfo(dtype).max)
        if not -most - 1 <= value <= most:
            raise OverflowError(f"{value} does not fit {dtype}")
    return np.asarray(value).astype(dtype, copy=False)


def widened(x: Array) -> Array:
    """float16 as float32, in which it is computed; anything else as it is."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def axes(x: Array, dims: Ints | int | None) -> tuple[int, ...] | None:
    """Dims as numpy takes them; None means all."""
    if dims is None or x.ndim == 0:
        return None
    return (dims,) if isinstance(dims, int) else tuple(dims) or None


def fitting(dims: Ints, out: Tensor) -> tuple[int, ...]:
    """The dims, if the output can hold them: checked before memory is allocated for them."""
    if len(dims) != len(out.dims) or any(not 0 <= n <= most for n, most in zip(dims, out.dims, strict=True)):
        raise ValueError(f"dims {list(dims)} for an output of {list(out.dims)}")
    return tuple(dims)


def within(index: Array, size: int, *, least: int = 0) -> Array:
    """The index, if all of it is in a dim of this size; IndexError names the first value that is not."""
    outside = index[(index < least) | (index >= size)]
    if outside.size:
        raise IndexError(f"index {outside.flat[0]} is out of range of a dim of {size}")
    return index
