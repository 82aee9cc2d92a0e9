"""Every op with every dtype: declared in its schema and right, or refused by name before anything runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from webgpu_run.debug.single_op import sized
from webgpu_run.debug.stepping import Check, Stepper
from webgpu_run.errors import UnsupportedError
from webgpu_run.gpu.device import Device
from webgpu_run.ops.schema import DTYPES, Param
from webgpu_run.ops.spec import Case, Op, load_all
from webgpu_run.shapes import Array, prod

from helpers import opcheck
from helpers.graphs import ANY, Builder, args_of, arrays_of, run, single

ALL = DTYPES["any"]
TESTS = ("eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or")
# Whole numbers, so that an integer tensor stays one; beyond 2^24 a float would lose their last digit.
NUMBERS = {"value": 16777217, "alpha": 3, "low": -2, "high": 16777217}
KERNELS = {"unary", "binary", "binary_vec4", "where", "reduce", "copy_strided", "fill", "gather_rows"}


def taken(dtypes: tuple[str, ...]) -> set[str]:
    return {d for word in dtypes for d in DTYPES.get(word, ())}


def distinct() -> Iterator[Op]:
    """Every op with a case, once for all names of the same declaration."""
    seen: set[tuple[object, object]] = set()
    for op in load_all().values():
        if opcheck.cases_of(op) and (op.plan, op.params) not in seen:
            seen.add((op.plan, op.params))
            yield sized(op, opcheck.cases_of(op)[0])


def test_undeclared_dtypes_are_refused() -> None:
    """An argument of a dtype that the schema does not have is refused; the message names op, argument and dtype."""
    refused = 0
    for op in distinct():
        case = opcheck.cases_of(op)[0]
        for name in case.dims:
            if name in op.outs:
                continue
            for dtype in set(ALL) - taken(op.param(name).dtypes):
                data = arrays_of(op, case)
                data[name] = data[name].astype(dtype)
                wrong = dataclasses.replace(case, dtypes={**case.dtypes, name: dtype})
                with pytest.raises(UnsupportedError) as caught:
                    single(op, wrong, data).builder.graph()
                assert f"argument {name} is {dtype}" in str(caught.value), op.name
                assert op.name in str(caught.value)
                assert caught.value.exit_code == 4
                refused += 1
    print(f"{refused} pairs of argument and dtype are refused")
    assert refused > 400


def test_outputs_of_another_dtype_are_refused() -> None:
    """The same for outputs: a kernel that moves words must not turn integers into floats."""
    for op in distinct():
        case = opcheck.cases_of(op)[0]
        first = op.outs[0]
        given = {case.dtypes.get(n, "float32") for n in case.dims if n not in op.outs}
        same = [w for w in op.out_dtypes[0] if w not in DTYPES]
        allowed = taken(op.out_dtypes[0]) or ({"float32", "float16"} if given == {"float32"} else set(ALL))
        for dtype in set(ALL) - allowed if op.out_kind != "symint" else ():
            wrong = dataclasses.replace(case, dtypes={**case.dtypes, first: dtype})
            with pytest.raises(UnsupportedError, match=f"output {first.replace('*', '')}.* is {dtype}") as caught:
                single(op, wrong, arrays_of(op, case)).builder.graph()
            assert op.name in str(caught.value)
            assert not same or "moves" in str(caught.value)


def widest(op: Op) -> Param:
    """The argument that takes the most dtypes."""
    return max((p for p in op.params if p.kind.startswith("tensor")), key=lambda p: len(taken(p.dtypes)))


def integer_ops() -> list[tuple[Op, str]]:
    """Ops whose kernels take more than one kind of element, each with every dtype that it takes."""
    found = []
    for op in distinct():
        if not opcheck.cases_of(op)[0].dims:
            continue  # of numbers alone; its cases have the dtypes
        kernels = {s.kernel for s in op.plan(args_of(op, opcheck.cases_of(op)[0]), ANY).steps}
        first = widest(op)
        if kernels <= KERNELS and len(taken(first.dtypes)) > 1 and not op.named("index") and "quantize" not in op.name:
            found += [(op, dtype) for dtype in ALL if dtype in taken(first.dtypes) and dtype != "float16"]
    return found


def sized_dims(case: Case, last: int) -> Case:
    """The case with a last dim that makes counts a multiple of four, or not; live shapes are left out."""
    elementwise = {n: (*d[:-1], last) for n, d in case.dims.items() if d}
    return dataclasses.replace(case, dims={**case.dims, **elementwise}, live=())


def filled(name: str, dtype: str, array: Array, op: Op) -> Array:
    """Data over the whole range of the dtype, with its ends; no zero where it divides."""
    rng = np.random.default_rng([len(op.name), prod(array.shape)])
    if dtype == "bool":
        return rng.integers(int(op.short == "div" and name == "b"), 2, array.shape).astype(bool)
    if array.dtype.kind == "f" and dtype.startswith("float"):
        return array
    info = np.iinfo(dtype)
    out = rng.integers(info.min, info.max, array.shape, dtype=dtype, endpoint=True)
    out.reshape(-1)[:3] = (info.min, info.max, 0)[: out.size]
    return np.where(out == 0, np.array(3, dtype), out) if op.short == "div" and name == "b" else out


def output_dtype(op: Op, dtype: str) -> str:
    """What PyTorch gives, of what the schema has."""
    declared = taken(op.out_dtypes[0])
    if op.short in TESTS:
        return "bool"
    if not declared or (dtype in declared and op.short != "sum"):
        return dtype
    return "int32" if "int32" in declared and not dtype.startswith("float") else "float32"


@pytest.mark.parametrize(("op", "dtype"), [pytest.param(o, d, id=f"{o.name}-{d}") for o, d in integer_ops()])
def test_declared_dtypes_are_right(op: Op, dtype: str, device: Device) -> None:
    """Over the whole range of the dtype, with counts that are a multiple of four and others."""
    first = opcheck.cases_of(op)[0]
    variants, main = [first], widest(op)
    kernels = {s.kernel for s in op.plan(args_of(op, first), ANY).steps}
    if kernels and kernels <= {"unary", "binary", "binary_vec4"}:
        variants = [sized_dims(first, 12), sized_dims(first, 7)]
    for case in variants:
        mine = {
            n: dtype if n not in op.outs and op.param(n).dtypes == main.dtypes else case.dtypes.get(n, "float32")
            for n in case.dims
        }
        whole = {} if dtype == "float32" else NUMBERS
        attrs = {n: whole.get(n, v) if v is not None else v for n, v in case.attrs.items()}
        if dtype in ("bool", "int8", "uint8"):
            attrs |= {n: v for n, v in (("value", 3), ("low", 1), ("high", 3)) if n in attrs}
        outs = dict.fromkeys(op.outs, output_dtype(op, dtype))
        case = dataclasses.replace(case, dtypes={**mine, **outs}, attrs=attrs, live=())
        data = {
            n: filled(n, dtype, a, op) if op.param(n).dtypes == main.dtypes else a
            for n, a in arrays_of(op, case).items()
        }
        one = single(op, case, data)
        runner = one.builder.runner(device)
        assert op.reference is not None
        wanted = op.reference(args_of(op, case), data)
        for out, want in zip(run(runner, one.inputs(data)), wanted, strict=True):
            _, worst = opcheck.error(out, want)
            assert worst <= (1e-5 if out.dtype.kind == "f" else 0), f"{op.name} of {dtype}, {case.dims}: off by {worst}"


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int32"])
def test_check_takes_a_right_bitwise_not_for_right(dtype: str, device: Device) -> None:
    """The device holds all of these as 32-bit integers; `--check` must compare them as what they are."""
    b = Builder()
    x = b.input((4, 3), dtype)
    b.output(b.call("aten.bitwise_not.default", x, dtype=dtype))
    runner, check = b.runner(device), Check()
    runner.visitor = Stepper([check], inputs=True)
    data = np.arange(12).reshape(4, 3).astype(dtype)
    (out,) = run(runner, [data])
    assert np.array_equal(out.astype(dtype), np.invert(data))
    assert check.compared == 1
