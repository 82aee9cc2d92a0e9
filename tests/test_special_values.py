"""Elementwise ops and extremes on the adapter with zeros of both signs, infinities and NaN, against the references."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from webgpu_run.debug.single_op import sized
from webgpu_run.gpu.device import Device
from webgpu_run.ops.spec import Case, Op, load_all

from helpers import opcheck
from helpers.graphs import ANY, args_of, run, single

SPECIAL = np.array(
    [0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 2.5, -1.5, 3, -3, 20, -20, np.inf, -np.inf, np.nan, 7, -7, 0.1], np.float32
)
KERNELS = {"unary", "binary", "binary_vec4"}
# Not tried: caches that a fused kernel expects to be empty, and places in an image.
ATTENTION = ("attention", "attention_q4gsw", "attention_rows", "attention_rows_q4gsw")
NOT_TRIED = {(op, name) for op in ATTENTION for name in ("kc", "vc")} | {("grid_sampler_2d", "grid")}
# exp(inf - inf) is not NaN with every driver, so an infinite score may give a number.
NOT_INFINITE = {("attention_q4gsw", "scales1")}
INSTEAD = {"sin": 16, "cos": 16}  # of an infinity they are NaN, which some drivers do not compute


def elementwise() -> list[Op]:
    found = []
    for name, op in load_all().items():
        cases = opcheck.cases_of(op)
        if not name.startswith("aten.") or not cases or op.alias or "bitwise" in name:
            continue
        op = sized(op, cases[0])
        if {s.kernel for s in op.plan(args_of(op, cases[0]), ANY).steps} <= KERNELS:
            found.append(op)
    return found


@pytest.mark.parametrize("op", elementwise(), ids=lambda op: op.name)
def test_elementwise(op: Op, device: Device) -> None:
    """Pairs of all special values, and every attribute that the cases of the op have."""
    grid = np.stack([x.reshape(-1) for x in np.meshgrid(SPECIAL, SPECIAL)])
    for case in {repr(sorted(c.attrs.items())): c for c in opcheck.cases_of(op)}.values():
        if any(d not in ("float32", "bool") for d in case.dtypes.values()):
            continue
        names = [n for n in case.dims if n not in op.outs]
        data = dict(zip(names, grid if len(names) == 2 else [SPECIAL[: INSTEAD.get(op.short, 20) - 2]], strict=True))
        case = dataclasses.replace(case, dims={n: x.shape for n, x in data.items()}, live=())
        check(op, case, data, device)


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin"])
def test_extremes(name: str, device: Device) -> None:
    op = load_all()[f"aten.{name}.default"]
    rows = [
        np.full(7, -np.inf), np.full(7, np.inf), np.array([1, -np.inf, 2, np.inf, 0, 0, 0]),
        np.array([1, 2, np.nan, 9, np.nan, -9, 3]), np.array([np.nan, *range(6)]), np.array([3, 1, 4, 4, 1, 1, 3]),
    ]  # fmt: skip
    x = np.stack([*rows, *(np.tile(r, 20)[:7] for r in rows)]).astype(np.float32)
    attrs = {"dims": (-1,), "dim": -1, "keep": False}
    dtypes = {"out": "int32"} if name.startswith("arg") else {}
    for data in (x, np.concatenate([x] * 30, 1)):
        check(op, Case({"x": data.shape}, attrs, dtypes=dtypes), {"x": data}, device)


def check(op: Op, case: Case, data: dict[str, np.ndarray], device: Device) -> None:  # type: ignore[type-arg]
    one = single(op, case, data)
    assert op.reference is not None
    with np.errstate(all="ignore"):
        (want,) = op.reference(args_of(op, case), data)
        want = np.asarray(want).astype(np.float32).astype(np.float64)
    (out,) = run(one.builder.runner(device), one.inputs(data))
    out = out.astype(np.float64)
    close = np.isclose(out, want, rtol=1e-4, atol=1e-6, equal_nan=True)
    wrong = [
        (*(float(x[i]) for x in data.values() if x.shape == out.shape), float(out[i]), float(want[i]))
        for i in np.argwhere(~close)[:, 0].tolist()
    ]
    assert not wrong, f"{op.name} {dict(case.attrs)}: inputs, result, reference: {wrong[:6]}"


def with_reference() -> list[Op]:
    return [op for op in load_all().values() if op.reference and not op.alias and opcheck.cases_of(op)]


@pytest.mark.parametrize("op", with_reference(), ids=lambda op: op.name)
def test_one_bad_element(op: Op, device: Device) -> None:
    """One NaN or infinity in each input in turn: exactly those outputs are finite that are finite in the reference."""
    for case in opcheck.cases_of(op)[:2]:
        sized_op = sized(op, case)
        whole = opcheck.arrays(sized_op, case, {})
        for name, value in itertools.product(whole, (np.nan, np.inf)):
            if name in op.outs or whole[name].dtype != np.float32 or not whole[name].size:
                continue
            if (op.short, name) in NOT_TRIED or (np.isinf(value) and (op.short, name) in NOT_INFINITE):
                continue
            data = {n: x.copy() for n, x in whole.items()}
            data[name].reshape(-1)[whole[name].size // 3] = value
            with np.errstate(all="ignore"):
                want = op.reference(args_of(sized_op, case), data)  # type: ignore[misc]
            one = single(sized_op, case, data)
            for out, expected in zip(run(one.builder.runner(device), one.inputs(data)), want, strict=True):
                if out.dtype.kind == "f":
                    same = np.isfinite(out) == np.isfinite(np.asarray(expected).astype(np.float32))
                    assert same.all(), f"{value} in {name}: {(~same).sum()} of {out.size} outputs"
