"""Calls of CPU kernels as a file makes them, and a store of calls with the results that PyTorch gives."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from webgpu_run.formats import pte
from webgpu_run.formats.vkgraph import BoolList, DoubleList, IntList
from webgpu_run.runtime.cpu import KERNELS
from webgpu_run.runtime.interpreter import Interpreter
from webgpu_run.shapes import Array

STORE = Path(__file__).parents[1] / "fixtures" / "cpu_kernels.json.z"


@dataclass(frozen=True)
class KernelCase:
    """One call: arguments without the outputs, and the outputs. A list of tensors is a list."""

    name: str
    args: tuple[Any, ...]
    outs: tuple[Array, ...]


def call(name: str, args: Sequence[Any], outs: Sequence[Array]) -> list[Array]:
    """Run a method that has this one call. `outs` gives dtypes and dims of the outputs."""
    values: list[Any] = []
    inputs: dict[int, Array] = {}

    def add(value: Any) -> int:
        values.append(value)
        return len(values) - 1

    def tensor(array: Array) -> int:
        spec = pte.Tensor(str(array.dtype), array.shape, tuple(range(array.ndim)), allocation=pte.Allocation(1, 0))
        return add(spec)

    def argument(value: Any) -> int:
        if isinstance(value, np.ndarray):
            v = tensor(value)
            inputs[v] = value
            return v
        if isinstance(value, list | tuple) and any(isinstance(x, np.ndarray) for x in value):
            return add(pte.TensorList(tuple(-1 if x is None else argument(x) for x in value), optional=True))
        if isinstance(value, list | tuple):
            if value and isinstance(value[0], bool):
                return add(BoolList(tuple(value)))
            if value and isinstance(value[0], float):
                return add(DoubleList(tuple(value)))
            return add(IntList(tuple(add(x) for x in value)))
        return add(value)

    ids = [argument(a) for a in args]
    targets = [tensor(o) for o in outs]
    kernel = KERNELS[name]
    if kernel.target is not None:
        written = [ids[kernel.target]]
        ids += written
    elif kernel.outs == 1 and (len(outs) != 1 or "split" in name or "unbind" in name):
        written, one = targets, add(pte.TensorList(tuple(targets)))
        ids += [one, one]
    else:
        written = targets
        ids += [*targets, add(pte.TensorList(tuple(targets))) if len(targets) > 1 else targets[0]]
    step = pte.KernelCall(name, tuple(ids))
    method = pte.Method("forward", tuple(inputs), tuple(written), tuple(values), (pte.Chain((), (), (step,)),))
    return Interpreter(method).run(list(inputs.values()), lambda i, given: [])


def difference(case: KernelCase) -> str:
    """How the result of a call differs from the stored one; empty if it does not."""
    got = call(case.name, case.args, case.outs)
    for k, (a, b) in enumerate(zip(got, case.outs, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {k} is {a.dtype} {list(a.shape)}, expected {b.dtype} {list(b.shape)}"
        if b.dtype.kind != "f":
            if not np.array_equal(a, b):
                return f"output {k}: {a.reshape(-1)[:6].tolist()}, expected {b.reshape(-1)[:6].tolist()}"
            continue
        rtol = {"float16": 2e-3, "float32": 2e-5, "float64": 2e-5}[str(b.dtype)]
        top = float(np.abs(b[np.isfinite(b)].astype(np.float64)).max(initial=1))
        close = np.isclose(a.astype(np.float64), b.astype(np.float64), rtol, rtol * min(top, 1e4), equal_nan=True)
        if not close.all():
            at = tuple(np.argwhere(~close)[0])
            return f"output {k} at {[int(i) for i in at]}: {a[at]}, expected {b[at]}"
    return ""


def store(cases: Sequence[KernelCase], path: Path = STORE) -> None:
    """Write the calls as compressed JSON. Equal tensors are stored once."""
    seen: dict[tuple[str, tuple[int, ...], bytes], int] = {}

    def packed(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            key = (str(value.dtype), value.shape, value.tobytes())
            return {"tensor": seen.setdefault(key, len(seen))}
        return [packed(v) for v in value] if isinstance(value, list | tuple) else value

    rows = [[c.name, packed(c.args), packed(c.outs)] for c in cases]
    tensors = [[dtype, dims, _numbers(np.frombuffer(data, dtype))] for dtype, dims, data in seen]
    text = json.dumps({"tensors": tensors, "calls": rows}, separators=(",", ":"))
    path.write_bytes(zlib.compress(text.encode(), 9))


def _numbers(array: Array) -> list[Any]:
    """The elements with the digits that their dtype needs."""
    digits = {"float16": 5, "float32": 9}.get(str(array.dtype))
    return [float(f"{x:.{digits}g}") for x in array.tolist()] if digits else array.tolist()


def stored(path: Path = STORE) -> Iterator[KernelCase]:
    """The calls of a store."""
    content = json.loads(zlib.decompress(path.read_bytes()))
    arrays = [np.array(data, dtype).reshape(dims) for dtype, dims, data in content["tensors"]]

    def unpacked(value: Any) -> Any:
        if isinstance(value, dict):
            return arrays[value["tensor"]]
        return [unpacked(v) for v in value] if isinstance(value, list) else value

    for name, args, outs in content["calls"]:
        yield KernelCase(name, tuple(unpacked(args)), tuple(unpacked(outs)))
