"""CPU kernels give what PyTorch gives: calls and results that `tests/tools/cpu_with_torch.py` stored."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from webgpu_run.errors import GraphError, ShapeError, UnsupportedError
from webgpu_run.formats import pte
from webgpu_run.formats.vkgraph import IntList
from webgpu_run.runtime.cpu import KERNELS
from webgpu_run.runtime.cpu_table import common
from webgpu_run.runtime.interpreter import Interpreter
from webgpu_run.runtime.support import check_method

from helpers.kernel_calls import KernelCase, call, difference, stored

CASES: dict[str, list[KernelCase]] = defaultdict(list)
for _case in stored():
    CASES[_case.name].append(_case)
# What the store cannot have: no result is right, or there is no tensor, or PyTorch has no such op.
OTHERS = ("executorch_prim::", "dim_order_ops::", "et_copy::", "quantized_decomposed::")
RANDOM = {"aten::rand.out", "aten::randn.out", "aten::empty.out", "aten::empty_like.out"}
SMALL = {"aten::_to_copy.out", "aten::sym_size.int", "aten::sym_numel", "aten::_local_scalar_dense"}
SMALL |= {"aten::_embedding_bag.out"}  # three of its four results are only for training


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.filterwarnings("error")
def test_as_pytorch(name: str) -> None:
    for case in CASES[name]:
        shown = [f"{a.dtype} {a.shape}" if isinstance(a, np.ndarray) else a for a in case.args]
        assert not difference(case), f"{name} of {shown}: {difference(case)}"


def test_every_kernel_is_compared() -> None:
    missing = {n for n in KERNELS if n not in CASES and not n.startswith(OTHERS)} - RANDOM - SMALL
    assert missing == {"aten::view_as_real_copy.out"}  # complex tensors are not read
    assert sum(map(len, CASES.values())) > 1500


def test_common_dtype() -> None:
    """Tensors with dims decide; others only if they are of a higher kind."""
    row, scalar = (lambda dtype: np.ones(2, dtype)), (lambda dtype: np.ones((), dtype))
    wanted = [
        ((row("float32"), scalar("float64")), "float32"),
        ((row("int32"), scalar("float64")), "float64"),
        ((row("int64"), row("float32")), "float32"),
        ((row("uint8"), row("int8")), "int16"),
        ((row("bool"), 2), "int64"),
        ((row("int8"), 2), "int8"),
        ((row("int8"), 2.0), "float32"),
        ((scalar("float64"), 2.0), "float64"),
        ((row("float16"), row("int64")), "float32"),  # float16 is computed in float32
    ]
    for args, dtype in wanted:
        assert {str(x.dtype) for x in common(args)} == {dtype}, args
    with pytest.raises(OverflowError, match="300 does not fit uint8"):
        common((row("uint8"), 300))


@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        ("floordiv", (-7, 2), -4),
        ("mod", (-7, 2), 1),
        ("truediv", (7, 2), 3.5),
        ("sym_max", (3, 5), 5),
        ("sym_ite", (False, 3, 5), 5),
        ("ceil", (2.25,), 3),
        ("neg", (4,), -4),
        ("ne", (4, 4), False),
    ],
)
def test_numbers(name: str, args: tuple[float, ...], result: float) -> None:
    got = KERNELS[f"executorch_prim::{name}.Scalar"].f(*args)
    assert got == result
    assert type(got) is type(result)


def test_quantized() -> None:
    a = np.array([[-128, 0, 127]], np.int8)
    whole = call(
        "quantized_decomposed::dequantize_per_tensor.out", (a, 0.5, 3, -128, 127, 1, None), [np.zeros((1, 3), "f")]
    )
    assert whole[0].tolist() == [[-65.5, -1.5, 62.0]]
    args = (a, 0.5, 0, -128, 127, a, 0.25, 0, -128, 127, 1.0, 0, -128, 127)
    assert call("quantized_decomposed::add.out", args, [a])[0].tolist() == [[-96, 0, 95]]
    w, scales = np.array([[1, -2, 3, 4], [5, 6, 7, -8]], np.int8), np.array([[1, 2], [3, 4]], np.float32)
    x = np.ones((1, 4), np.float32)
    got = call("quantized_decomposed::mixed_linear.out", (x, w, scales, None, None), [np.zeros((1, 2), "f")])
    assert got[0].tolist() == [[13.0, 29.0]]
    rows = call("quantized_decomposed::mixed_mm.out", (x, w.T.copy(), np.ones(4, "f"), None), [np.zeros((1, 2), "f")])
    assert rows[0].tolist() == [[6.0, 10.0]]


@pytest.mark.parametrize(("mode", "bags"), [(0, [[5.0, 7.0], [0, 0], [4, 5]]), (1, [[2.5, 3.5], [0, 0], [4, 5]])])
def test_bags_of_rows(mode: int, bags: list[list[float]]) -> None:
    """Row 0 is padding, the second bag is empty, and the last ends with the index or with the last offset."""
    table, index = np.arange(6, dtype=np.float32).reshape(3, 2) + np.float32(0), np.array([1, 0, 2, 0, 2])
    table[1] = [1, 2]
    outs = [np.zeros((3, 2), "f"), np.zeros(5, np.int64), np.zeros(3, np.int64), np.zeros(3, np.int64)]
    for offsets, include_last in ((np.array([0, 3, 3]), False), (np.array([0, 3, 3, 5]), True)):
        args = (table, index, offsets, False, mode, False, None, include_last, 0)
        got = call("aten::_embedding_bag.out", args, outs)
        assert got[0].tolist() == bags
        assert got[1].tolist() == [0, 0, 0, 2, 2]
        assert got[2].tolist() == [2, 0, 1]
    weighted = (table, index, np.array([0]), False, 0, False, np.full(5, 0.5, "f"), False, -1)
    assert call("aten::_embedding_bag.out", weighted, [outs[0][:1], *outs[1:2], *(outs[2][:1],) * 2])[0].tolist() == [
        [4.5, 7.0]
    ]
    largest = (table, index, np.array([0, 3]), False, 2, False, None, False, -1)
    got = call("aten::_embedding_bag.out", largest, [outs[0][:2], outs[1], outs[2][:2], outs[2][:2]])
    assert got[0].tolist() == [[4, 5], [4, 5]]


def test_copies_between_dim_orders() -> None:
    """Memory is strided as the file declares: element 1 of a channels_last tensor is the next channel."""
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    out = np.zeros((2,), np.float32)
    for order, second in (((0, 1, 2, 3), 1.0), ((0, 2, 3, 1), 12.0)):
        values = (pte.Tensor("float32", x.shape, order), pte.Tensor("float32", (2,), (0,)), 2, 1, None)
        lists = (IntList((2,)), IntList((3,)))
        step = pte.KernelCall("aten::as_strided_copy.out", (0, 5, 6, 4, 1, 1))
        method = pte.Method("forward", (0,), (1,), (*values, *lists), (pte.Chain((), (), (step,)),))
        assert Interpreter(method).run([x], lambda i, given: [])[0].tolist() == [0.0, second]
    for name in ("_clone_dim_order", "_to_dim_order_copy"):
        assert np.array_equal(call(f"dim_order_ops::{name}.out", (x, False, [0, 2, 3, 1]), [x])[0], x)
    assert call("dim_order_ops::_empty_dim_order.out", ([2], None), [out])[0].shape == (2,)


@pytest.mark.parametrize(
    ("name", "args", "out", "problem"),
    [
        ("full.out", ([1 << 40], 0.0), (4,), "dims"),
        ("arange.out", (1 << 40,), (4,), "dims"),
        ("repeat.out", (np.zeros(2), [1 << 40]), (4,), "dims"),
        ("floor_divide.out", (np.ones(2, np.int64), np.zeros(2, np.int64)), (2,), "divided by zero"),
        ("topk.values", (np.zeros(2), 3, 0, True, True), (3,), "k is 3"),
        ("scatter.value_out", (np.zeros((2, 2)), 0, np.full((1, 1), 2), 1.0), (2, 2), "out of range"),
        ("slice_copy.Tensor_out", (np.zeros(2), 0, 0, 2, 0), (2,), "step 0"),
        ("scatter_reduce.two_out", (np.zeros(2), 0, np.zeros(1, int), np.zeros(1), "median", True), (2,), "'median'"),
    ],
)
def test_refused_calls(name: str, args: tuple[object, ...], out: tuple[int, ...], problem: str) -> None:
    """A call that cannot be right is an error with its name, and allocates nothing large."""
    outs = [np.zeros(out)] * (2 if name == "topk.values" else 1)
    with pytest.raises(ShapeError, match=f"aten::{name}: .*{problem}"):
        call(f"aten::{name}", args, outs)


def test_everything_missing_is_named_at_once() -> None:
    spec = pte.Tensor("float32", (2,), (0,))
    steps = [pte.KernelCall(n, (0, 1, 1)) for n in ("aten::one.out", "aten::abs.out", "aten::two.out", "aten::one.out")]
    method = pte.Method("forward", (0,), (1,), (spec, spec), (pte.Chain((), (), tuple(steps)),))
    with pytest.raises(UnsupportedError) as caught:
        check_method(method)
    assert str(caught.value) == "'forward' needs ops that are not supported: aten::one.out ×2, aten::two.out ×1"
    wrong = pte.KernelCall("aten::topk.values", (0, 1, 1))
    with pytest.raises(GraphError, match="3 arguments, expected 5 and 2 outputs"):
        Interpreter(pte.Method("forward", (0,), (1,), (spec, spec), (pte.Chain((), (), (wrong,)),)))
