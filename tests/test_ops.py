"""Every case of every op on the adapter: right numbers, resized == freshly built, no write past the live extent."""

from __future__ import annotations

import pytest

from webgpu_run.gpu.device import Device
from webgpu_run.ops.spec import Case, Op

from helpers import opcheck
from helpers.cases import all_cases

CASES = [pytest.param(op, case, id=label) for label, _, op, case in all_cases()]


@pytest.mark.parametrize(("op", "case"), CASES)
def test_case(op: Op, case: Case, device: Device) -> None:
    if opcheck.must_run(op, case, device.limits):
        opcheck.check_case(op, case, device)


@pytest.mark.parametrize(("op", "case"), CASES)
def test_case_folded(op: Op, case: Case, device: Device) -> None:
    """The same where the grid folds into two dimensions and mostly has workgroups to spare."""
    if opcheck.must_run(op, case, device.limits):
        opcheck.check_case(op, case, opcheck.folding(op, case, device))


@pytest.mark.parametrize(("op", "case"), CASES)
def test_case_for_other_machines(op: Op, case: Case, device: Device) -> None:
    """The routes of a GPU on a software adapter, or the other way round, with subgroups and without; small bindings."""
    machines = [m for m in opcheck.machines(device) if opcheck.must_run(op, case, m.limits)]
    plans = [opcheck.planned(op, case, m.limits) for m in machines]
    for i, machine in enumerate(machines):
        if machine is not device and plans[i] not in plans[:i]:
            opcheck.check_case(op, case, machine)


@pytest.mark.parametrize(("op", "case"), CASES)
def test_minimal_grid(op: Op, case: Case, device: Device) -> None:
    if opcheck.must_run(op, case, device.limits):
        opcheck.check_minimal(op, case, device)
