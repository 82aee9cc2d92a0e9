"""An independent computation of tensors that are made from numbers, and of elements that are picked by index."""

from __future__ import annotations

import struct

import numpy as np

from webgpu_run.ops.spec import Args
from webgpu_run.shapes import Dims

from helpers.fields_moves import Want, size, words

FILLED = {"full": None, "full_like": None, "scalar_tensor": None}
FILLED |= dict.fromkeys(("ones", "ones_like"), 1) | dict.fromkeys(("zeros", "zeros_like", "empty"), 0)


def filled(short: str, a: Args, out: Dims) -> tuple[str, list[Want]]:
    fixed = FILLED[short]
    value = a.attrs["value"] if fixed is None else fixed
    is_float = a.dtypes["out"].startswith("float")
    value = bool(value) if a.dtypes["out"] == "bool" else value
    (word,) = struct.unpack("<I", struct.pack("<f", value) if is_float else struct.pack("<i", int(value)))
    return "fill", [Want("fill", {"count": size(out), "word": word}, lanes=size(out))]


def arange(a: Args) -> tuple[str, list[Want]]:
    numbers = np.arange(a.attrs["start"], a.attrs["end"], a.attrs["step"])
    is_int = a.dtypes["out"] == "int32"
    first, by = ("int_start", "int_by") if is_int else ("start", "by")
    others = dict.fromkeys(("start", "by") if is_int else ("int_start", "int_by"), 0)
    params = {"count": numbers.size, first: a.attrs["start"], by: a.attrs["step"], **others}
    return "lanes", [Want("arange", params, lanes=numbers.size, consts={"INT": int(is_int)})]


def gather(a: Args) -> tuple[str, list[Want]]:
    x, out, dim = words(a["x"]), a["at"], a.int("dim")
    params = {"count": size(out), "rank": x.ndim, "dims": out, "size": 1, "step": -1, "strides": ()}
    if x.ndim:
        real = [s // 4 for s in x.strides]
        dim %= x.ndim
        params |= {"size": x.shape[dim], "step": real[dim] if x.shape[dim] > 1 else -1}
        params["strides"] = tuple(0 if i == dim else s if out[i] > 1 else -1 for i, s in enumerate(real))
    return "lanes", [Want("gather", params, lanes=size(out))]
