"""bfloat16 in CPU kernels: exact moves, arithmetic in float32, and one rounding to nearest even when stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webgpu_run.errors import GraphError
from webgpu_run.formats import pte, pte_writer
from webgpu_run.formats.source import BytesSource, Span
from webgpu_run.formats.vkgraph import IntList
from webgpu_run.gpu.device import Device
from webgpu_run.runtime import bfloat16
from webgpu_run.runtime.interpreter import Interpreter
from webgpu_run.runtime.open import load
from webgpu_run.shapes import Array

FINITE = [0.0, -0.0, 1.0, -1.5, 0.1, 1 / 3, 1e-3, 65504.0, 1e30, -3.4e38, 1.17e-38, 9.2e-41, 1e-45, 257.0, 16777217.0]
TIES = [1 + 2.0**-8, 1 + 3 * 2.0**-8, -(1 + 2.0**-8), 257 * 2.0**-130, 259.0 * 2.0**-133 / 2, 3.3961776e38]


def nearest(x: float) -> float:
    """The definition: 8 significant bits, exponents of float32, ties to even (as Python's `round`)."""
    x = float(np.float32(x))
    if not math.isfinite(x) or not x:
        return x
    step = 2.0 ** max(math.frexp(x)[1] - 8, -133)
    near = round(x / step) * step
    return math.copysign(math.inf if abs(near) >= 2.0**128 else abs(near), x)


def bits(x: Any) -> list[int]:
    """The high halves of float32 numbers, whose low halves must be zero."""
    words = np.ascontiguousarray(x, np.float32).view(np.uint32).reshape(-1)
    assert not (words & 0xFFFF).any()
    return [int(word) >> 16 for word in words]


def short(*dims: int, data: Sequence[int] | None = None, place: int | None = 0) -> pte.Tensor:
    allocation = None if place is None else pte.Allocation(1, place)
    span = None
    if data is not None:
        raw = np.array(data, "<u2").tobytes()
        span = Span(BytesSource(raw), 0, len(raw))
    return pte.Tensor("bfloat16", dims, tuple(range(len(dims))), data=span, allocation=allocation)


def test_all_bit_patterns() -> None:
    """All 65,536 values, NaNs too, are kept by a rounding; the bits are those of the float32 that has the value."""
    patterns = np.arange(2**16, dtype=np.uint16)
    values = bfloat16.from_bits(patterns)
    assert bits(values) == patterns.tolist()
    assert bits(bfloat16.rounded(values)) == patterns.tolist()
    known = {
        0x3F80: 1.0,
        0x4049: 3.140625,
        0xC2F7: -123.5,
        0x7F80: math.inf,
        0x7F7F: 2.0**127 * (2 - 2.0**-7),
        1: 2.0**-133,
    }
    assert {k: float(values[k]) for k in known} == known


def test_rounding() -> None:
    rng = np.random.default_rng(7)
    many = rng.integers(0, 2**32, 20_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    numbers = [*FINITE, *TIES, math.inf, -math.inf, *many[np.isfinite(many)].tolist()]
    got = bfloat16.rounded(np.array(numbers))
    assert bits(got) == bits([nearest(x) for x in numbers])
    assert bits(bfloat16.rounded(np.array(TIES[:3], np.float32))) == [0x3F80, 0x3F82, 0xBF80]
    lost = np.array([0x7F800001, 0xFFFFFFFF, 0x7FFF8000], np.uint32).view(np.float32)
    assert bits(bfloat16.rounded(lost)) == [0x7FC0] * 3
    assert bfloat16.rounded(1).shape == ()
    assert bits(bfloat16.rounded(np.int64(2**24 + 2**16 + 1))) == [0x4B80]  # through float32


def call(op: str, args: Sequence[Any], dtype: str, dims: tuple[int, ...]) -> Array:
    """Run a method of one call. An array of uint16 is given as a bfloat16 tensor, a list of them as a list."""
    values: list[Any] = []
    inputs: dict[int, Array] = {}

    def add(value: Any) -> int:
        if isinstance(value, list):
            value = pte.TensorList(tuple(add(x) for x in value))
        elif isinstance(value, tuple):
            value = IntList(tuple(add(x) for x in value))
        elif isinstance(value, np.ndarray):
            array = bfloat16.from_bits(value) if value.dtype == np.uint16 else value
            name = "bfloat16" if value.dtype == np.uint16 else str(value.dtype)
            inputs[len(values)] = array
            value = pte.Tensor(name, array.shape, tuple(range(array.ndim)))
        values.append(value)
        return len(values) - 1

    ids = [add(arg) for arg in args]
    out = add(pte.Tensor(dtype, dims, tuple(range(len(dims)))))
    chain = pte.Chain((), (), (pte.KernelCall(op, (*ids, out, out)),))
    method = pte.Method("forward", tuple(inputs), (out,), tuple(values), (chain,))
    (result,) = Interpreter(method).run(list(inputs.values()), lambda i, given: [])
    assert result.shape == dims
    return np.asarray(result)


A = np.array([[0x3F80, 0xBFC0, 0x7FA1], [0x0001, 0x4049, 0xFF80]], np.uint16)  # 1, -1.5, a NaN, 2^-133, 3.140625, -inf


@pytest.mark.parametrize(
    ("op", "args", "wanted"),
    [
        ("aten::view_copy.out", (A, (3, 2)), A.reshape(3, 2)),
        ("aten::permute_copy.out", (A, (1, 0)), A.T),
        ("aten::slice_copy.Tensor_out", (A, 1, 1, 3, 1), A[:, 1:]),
        ("aten::select_copy.int_out", (A, 0, 1), A[1]),
        ("aten::cat.out", ([A, A], 1), np.concatenate([A, A], 1)),
        ("aten::expand_copy.out", (A, (2, 2, 3), False), np.stack([A, A])),
        ("aten::index_select.out", (A, 1, np.array([2, 0, 2])), A[:, [2, 0, 2]]),
        ("aten::embedding.out", (A, np.array([1, 1, 0]), -1, False, False), A[[1, 1, 0]]),
        ("aten::gather.out", (A, 1, np.array([[2, 2], [0, 1]]), False), np.array([[A[0, 2]] * 2, A[1, :2]])),
        ("aten::flip.out", (A, (0,)), A[::-1]),
        ("aten::constant_pad_nd.out", (A, (1, 0), 2.0), np.pad(A, ((0, 0), (1, 0)), constant_values=0x4000)),
        ("aten::clone.out", (A, None), A),
        ("dim_order_ops::_to_dim_order_copy.out", (A, False, (0, 1)), A),
        ("aten::full.out", ((2, 2), 0.1), np.full((2, 2), 0x3DCD, np.uint16)),
        ("aten::full_like.out", (A, 257.0, None), np.full((2, 3), 0x4380, np.uint16)),
        ("aten::zeros.out", ((3,),), np.zeros(3, np.uint16)),
        ("aten::ones.out", ((3,),), np.full(3, 0x3F80, np.uint16)),
        ("aten::where.self_out", (A == 0x3F80, A, A[::-1].copy()), np.where(A == 0x3F80, A, A[::-1])),
        ("aten::masked_fill.Scalar_out", (A, A == 0x4049, 0.1), np.where(A == 0x4049, np.uint16(0x3DCD), A)),
    ],
    ids=lambda x: x.split("::")[1] if isinstance(x, str) else "",
)
def test_moves_keep_every_bit(op: str, args: tuple[Any, ...], wanted: Array) -> None:
    assert bits(call(op, args, "bfloat16", wanted.shape)) == wanted.reshape(-1).tolist()


def test_casts() -> None:
    to = "dim_order_ops::_to_dim_order_copy.out"
    row = np.array([*FINITE, *TIES], np.float32)
    wanted = np.array([nearest(x) for x in row.tolist()], np.float32)
    assert bits(call(to, (row, False, (0,)), "bfloat16", row.shape)) == bits(wanted)
    wide = call(to, (A[0, :2], False, (0,)), "float32", (2,))
    assert wide.dtype == np.float32
    assert wide.tolist() == [1.0, -1.5]
    whole = call(to, (A[0, :2], False, (0,)), "int64", (2,))
    assert whole.dtype == np.int64
    assert whole.tolist() == [1, -1]
    assert call(to, (A[0, :2], False, (0,)), "float16", (2,)).dtype == np.float16
    assert bits(call(to, (np.array([True, False]), False, (0,)), "bfloat16", (2,))) == [0x3F80, 0]
    assert bits(call(to, (np.array([257, -259]), False, (0,)), "bfloat16", (2,))) == [0x4380, 0xC382]


X = np.array([0x3F81, 0xC049, 0x3DCD, 0x4280, 0x3EAB], np.uint16)
Y = np.array([0x3F83, 0x3DCD, 0x4049, 0x3F80, 0xBEAB], np.uint16)


@pytest.mark.parametrize(
    ("op", "args", "wanted"),
    [
        ("add.out", (X, Y, 1), lambda x, y: x + y),
        ("add.out", (X, Y, 3), lambda x, y: x + 3 * y),
        ("add.Scalar_out", (X, 0.1, 1), lambda x, y: x + 0.1),
        ("sub.out", (X, Y, 1), lambda x, y: x - y),
        ("mul.out", (X, Y), lambda x, y: x * y),
        ("mul.Scalar_out", (X, 0.1), lambda x, y: x * 0.1),  # the number is a float32, it is not rounded before
        ("div.out", (X, Y), lambda x, y: x / y),
        ("maximum.out", (X, Y), max),
        ("neg.out", (X,), lambda x, y: -x),
        ("abs.out", (X,), lambda x, y: abs(x)),
        ("relu.out", (X,), lambda x, y: max(x, 0.0)),
        ("exp.out", (X,), lambda x, y: math.exp(x)),
        ("tanh.out", (X,), lambda x, y: math.tanh(x)),
        ("sigmoid.out", (X,), lambda x, y: 1 / (1 + math.exp(-x))),
        ("gelu.out", (X, "none"), lambda x, y: x * (1 + math.erf(x / math.sqrt(2))) / 2),
        ("clamp.out", (X, -0.1, 0.1), lambda x, y: min(max(x, -0.1), 0.1)),
    ],
)
def test_elementwise(op: str, args: tuple[Any, ...], wanted: Any) -> None:
    """None of these lies so close to the middle of two bfloat16 numbers that float32 would decide otherwise."""
    pairs = zip(bfloat16.from_bits(X).tolist(), bfloat16.from_bits(Y).tolist(), strict=True)
    assert bits(call(f"aten::{op}", args, "bfloat16", X.shape)) == bits([nearest(wanted(x, y)) for x, y in pairs])


def test_mixed_dtypes() -> None:
    x, halves = bfloat16.from_bits(X), np.array([0.1, 0.2, 0.3, 0.4, 0.5], np.float16)
    assert call("aten::add.out", (X, halves, 1), "float32", X.shape).tolist() == (x + halves.astype("f4")).tolist()
    assert call("aten::lt.Tensor_out", (X, Y), "bool", X.shape).tolist() == (x < bfloat16.from_bits(Y)).tolist()
    doubled = call("aten::mul.out", (X, np.arange(5)), "bfloat16", X.shape)
    assert bits(doubled) == bits([nearest(v * k) for k, v in enumerate(x.tolist())])


def test_sums_are_rounded_once() -> None:
    ones = np.full(1000, 0x3F80, np.uint16)
    for op, args, wanted in (
        ("sum.IntList_out", (ones, (0,), False, None), 1000.0),
        ("mean.out", (ones, (0,), False, None), 1.0),
        ("amax.out", (X, (0,), False), 64.0),
    ):
        assert bits(call(f"aten::{op}", args, "bfloat16", ())) == bits(nearest(wanted))
    product = call("aten::mm.out", (X[None], Y[:, None]), "bfloat16", (1, 1))
    exact = sum(a * b for a, b in zip(bfloat16.from_bits(X).tolist(), bfloat16.from_bits(Y).tolist(), strict=True))
    assert bits(product) == bits(nearest(exact))


def test_a_view_is_of_the_same_type() -> None:
    """A float32 tensor in the memory of a bfloat16 tensor is refused, although both are float32 arrays."""
    step = pte.KernelCall("aten::alias_copy.out", (0, 1, 1))
    for dtype in ("float32", "bfloat16"):
        view = pte.Tensor(dtype, (2,), (0,), allocation=pte.Allocation(1, 0))
        values = (short(2, place=None), short(2), view)
        method = pte.Method("forward", (0,), (2,), values, (pte.Chain((), (), (step,)),))
        given = [np.array([1, 2], np.float32)]
        if dtype == "bfloat16":
            assert bits(Interpreter(method).run(given, lambda i, args: [])[0]) == [0x3F80, 0x4000]
        else:
            what = r"a tensor of float32 \[2\] is placed in the memory of bfloat16 \[2\]"
            with pytest.raises(GraphError, match=what):
                Interpreter(method).run(given, lambda i, args: [])


def test_a_file(tmp_path: Path, device: Device) -> None:
    """Input, constant, buffer and output of a method in bfloat16; the constant is also cast to float32."""
    values = (
        short(2, place=None),
        short(2, data=[0x4049, 0x3DCD], place=None),
        False,
        short(2, place=16),
        pte.Tensor("float32", (2,), (0,), allocation=pte.Allocation(1, 32)),
        short(2, data=[0x4000, 0x4040], place=48),
    )
    steps = (
        pte.KernelCall("aten::mul.out", (0, 1, 3, 3)),
        pte.KernelCall("aten::alias_copy.out", (1, 4, 4)),
        pte.KernelCall("aten::copy_", (5, 0, 2, 5)),
    )
    chain = pte.Chain((0,), (3, 4, 5), steps)
    operators = tuple(step.op for step in steps)
    method = pte.Method("forward", (0,), (3, 4, 5), values, (chain,), operators, non_const_buffer_sizes=(0, 64))
    path = tmp_path / "m.pte"
    pte_writer.write(path, pte.Program(0, (method,)))
    given = np.array([0.1, 257])
    product, wide, kept = load(path, device=device).run([given])
    pi, tenth = 3.140625, 0.10009765625
    assert bits(product) == bits([nearest(tenth * pi), nearest(256 * tenth)])
    assert np.asarray(wide).tolist() == [pi, tenth]
    assert bits(kept) == [0x3DCD, 0x4380]
