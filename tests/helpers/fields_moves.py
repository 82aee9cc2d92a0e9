"""An independent computation of copies: the strides of numpy's own views say where each element is."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from webgpu_run.ops.spec import Args
from webgpu_run.shapes import Array, Dims


@dataclass(frozen=True, slots=True)
class Want:
    """One dispatch: kernel, uniforms (those named), workgroups before they are folded, or lanes of 64 to a group."""

    kernel: str
    params: dict[str, Any]
    groups: int = 0
    lanes: int = 0
    consts: dict[str, int] = field(default_factory=dict)
    window: tuple[int, int] | None = None  # offset and size in bytes of the bound part; None: the whole buffer


def up(a: int, b: int) -> int:
    return (a + b - 1) // b


def size(dims: Sequence[int]) -> int:
    return int(np.prod(dims, dtype=np.int64))


def words(dims: Dims) -> Array:
    """A tensor as it lies in memory."""
    return np.empty(dims, np.uint32)


def strides(view: Array) -> Dims:
    """In elements; what no element is reached by, of a dim of 1, is not told."""
    return tuple(s // 4 % 2**32 if n > 1 else -1 for s, n in zip(view.strides, view.shape, strict=True))


def start(view: Array, of: Array) -> int:
    return int(view.__array_interface__["data"][0] - of.__array_interface__["data"][0]) // 4


def moved(x: Array, view: Array, out: Array, target: Array | None = None) -> Want:
    """A copy of a view of x into (a view of) the output."""
    target = out.reshape(view.shape) if target is None else target
    assert view.shape == target.shape
    params = {
        "count": view.size,
        "rank": view.ndim,
        "in_base": start(view, x),
        "out_base": start(target, out),
        "dims": view.shape,
        "in_strides": strides(view),
        "out_strides": strides(target),
    }
    return Want("copy_strided", params, lanes=view.size)


def along(dim: int, pick: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * dim, pick)


def slice_copy(a: Args, x: Array, out: Array) -> list[Want]:
    pick = slice(a.attrs["start"], a.attrs["end"], a.attrs["step"])
    return [moved(x, x[along(a.int("dim") % x.ndim, pick)], out)]


def select_copy(a: Args, x: Array, out: Array) -> list[Want]:
    return [moved(x, x[along(a.int("dim") % x.ndim, a.int("index"))], out)]


def permute_copy(a: Args, x: Array, out: Array) -> list[Want]:
    return [moved(x, x.transpose(a.attrs["order"]), out)]


def expand_copy(a: Args, x: Array, out: Array) -> list[Want]:
    return [moved(x, np.broadcast_to(x, out.shape), out)]


def flip(a: Args, x: Array, out: Array) -> list[Want]:
    return [moved(x, np.flip(x, a.attrs["dims"]), out)]


def repeat(a: Args, x: Array, out: Array) -> list[Want]:
    times = a.attrs["times"]
    dims = (1,) * (len(times) - x.ndim) + x.shape
    apart = x.reshape([n for d in dims for n in (1, d)])
    tiles = [n for t, d in zip(times, dims, strict=True) for n in (t, d)]
    return [moved(x, np.broadcast_to(apart, tiles).squeeze(), out)]


def pixel_shuffle(a: Args, x: Array, out: Array) -> list[Want]:
    (c, h, w), r = x.shape[-3:], a.int("factor")
    return [moved(x, x.reshape(-1, c // r**2, r, r, h, w).transpose(0, 1, 4, 2, 5, 3), out)]


def constant_pad_nd(a: Args, x: Array, out: Array) -> list[Want]:
    pads = a.attrs["pads"]
    ends = [(0, 0)] * (x.ndim - len(pads) // 2) + [(pads[i], pads[i + 1]) for i in range(len(pads) - 2, -1, -2)]
    kept = x[tuple(slice(max(-p, 0), n - max(-q, 0)) for (p, q), n in zip(ends, x.shape, strict=True))]
    place = out[tuple(slice(max(p, 0), n - max(q, 0)) for (p, q), n in zip(ends, out.shape, strict=True))]
    word = int.from_bytes(struct.pack("<f", a.num("value")), "little")
    fill = Want("fill", {"count": out.size, "word": word}, lanes=out.size)
    return [fill, moved(x, kept, out, place)]


def t_copy(a: Args, x: Array, out: Array) -> list[Want]:
    return [moved(x, x.T, out)]


def repeat_interleave(a: Args, x: Array, out: Array) -> list[Want]:
    view, at = (x.reshape(-1), 1) if a.attrs["dim"] is None else (x, a.int("dim") % x.ndim + 1)
    each = np.expand_dims(view, at)
    return [moved(x, np.broadcast_to(each, (*view.shape[:at], a.int("times"), *view.shape[at:])), out)]


def unfold_copy(a: Args, x: Array, out: Array) -> list[Want]:
    dim = a.int("dim") % x.ndim
    windows = np.lib.stride_tricks.sliding_window_view(x, a.int("size"), dim)
    return [moved(x, windows[along(dim, slice(None, None, a.int("step")))], out)]


MOVES: dict[str, Callable[[Args, Array, Array], list[Want]]] = {
    f.__name__: f
    for f in (
        slice_copy,
        select_copy,
        permute_copy,
        expand_copy,
        flip,
        repeat,
        pixel_shuffle,
        constant_pad_nd,
        t_copy,
        repeat_interleave,
        unfold_copy,
    )
} | {"permute": permute_copy, "select": select_copy, "slice": slice_copy}


def cat(a: Args, out: Array) -> list[Want]:
    dim, at, found = a.int("dim") % out.ndim, 0, []
    for i in range(len(a.attrs["xs"])):
        x = words(a[f"xs{i}"])
        if x.size:
            found.append(moved(x, x, out, out[along(dim, slice(at, at + x.shape[dim]))]))
        at += x.shape[dim]
    return found


def split(a: Args, x: Array, outs: Sequence[Dims]) -> list[Want]:
    dim, at, found = a.int("dim") % x.ndim, 0, []
    for dims in outs:
        if size(dims):
            found.append(moved(x, x[along(dim, slice(at, at + dims[dim]))], words(dims)))
        at += dims[dim]
    return found
