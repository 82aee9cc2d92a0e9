"""Kernels give the same bits in whatever order their workgroups and invocations run."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from test_goldens import FIXTURES, Golden

from webgpu_run.assets import wgsl_dir
from webgpu_run.gpu.device import Device
from webgpu_run.ops import wgsl
from webgpu_run.ops.spec import load_all
from webgpu_run.runtime.open import load

from helpers import reorder


def test_every_kernel(device: Device) -> None:
    """A case for each kernel in one other order; tests/tools/reorder_kernels.py runs all cases in all orders."""
    sample = list(reorder.covering(device))
    for (machine, what, op, case), order in zip(sample, itertools.cycle(reorder.ORDERS), strict=False):
        other = reorder.in_order(machine, order)
        assert reorder.results(op, case, other) == reorder.results(op, case, machine), f"{what}, {order}"
    assert len(sample) > 50


@pytest.mark.parametrize(("machine", "order"), [("gpu", "random 1"), ("software, no subgroups", "reversed")])
def test_a_model(machine: str, order: str, device: Device) -> None:
    plain = reorder.machines(device)[machine]
    calls = Golden("tiny_dyn").sessions[0]
    first, second = (load(FIXTURES / "tiny_dyn.pte", device=d) for d in (plain, reorder.in_order(plain, order)))
    for tokens, pos, _ in calls:
        assert first.run([tokens, pos])[0].tobytes() == second.run([tokens, pos])[0].tobytes()


@pytest.mark.parametrize(
    ("kernel", "barrier", "op"),
    [("softmax", 0, "aten._softmax.default"), ("linear_q4gsw_tiled", 1, "et_vk.linear_q4gsw.default")],
)
def test_a_missing_barrier_is_noticed(kernel: str, barrier: int, op: str, device: Device) -> None:
    plain = reorder.machines(device)["gpu"]
    case = next(
        c for c in load_all()[op].cases if any(k == kernel for k, _ in reorder.kernels_of(load_all()[op], c, plain))
    )
    want = reorder.results(load_all()[op], case, plain)
    drop = reorder.without_barrier(kernel, barrier)
    devices = (reorder.in_order(plain, order, drop) for order in reorder.ORDERS)
    assert any(reorder.results(load_all()[op], case, d) != want for d in devices)


def test_the_table_of_barriers_has_every_kernel_with_one() -> None:
    page = (Path(__file__).parent / "README.md").read_text("utf-8")
    table = page.split("| kernel | barriers |")[1].split("\n\n")[0]
    kernels = {path.stem for path in wgsl_dir().glob("*.wgsl") if "workgroupBarrier();" in wgsl.load(path.stem).source}
    assert set(re.findall(r"^\| (\w+) \|", table, re.MULTILINE)) == kernels


@pytest.mark.parametrize("formula", reorder.ORDERS.values())
def test_orders_are_permutations(formula: str) -> None:
    expression = formula.replace("u", "").replace("select", "_select")
    for n in (1, 2, 8, 63, 64, 5003, 6997, 10006):
        found = {eval(expression, {"_select": lambda a, b, c: b if c else a, "i": i, "n": n}) for i in range(n)}
        assert found == set(range(n))


def test_all_entry_points_are_reordered() -> None:
    for path in sorted(wgsl_dir().glob("*.wgsl")):
        text = reorder.reordered(wgsl.load(path.stem).source, "i")
        assert not re.search(r"@builtin\((workgroup_id|local_invocation_index)\) \w+(?<!_in):", text), path.stem
