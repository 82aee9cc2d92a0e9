"""The routes of a GPU, on whatever adapter there is: right, and bit for bit the same after a resize."""

from __future__ import annotations

import opcheck
import pytest
from graphs import with_limits

from webgpu_run.device import Device
from webgpu_run.op import GPU, Case, load_all
from webgpu_run.ops.linear_q4gsw import _case, _fused_case
from webgpu_run.resize import Engine

CORE = {"uniform_align": 256, "max_workgroup_bytes": 16384, "max_invocations": 256, "max_texture": 8192}
LINEAR = {
    "et_vk.linear_q4gsw.default": (_case(37, 64, 48, 32, 1, 3, 9, 33), _case(9, 1024, 70, 64, 8, bias=True)),
    "wr.linear_q4gsw.1": (
        _fused_case(40, 64, (44, 44), 9, 3, swiglu=True, norm=True),
        _fused_case(33, 128, (64,), 32, 8, norm=True, res=True),
    ),
    "wr.linear_q4gsw.3": (_fused_case(35, 64, (96, 32, 36), 8, norm=True, bias=True),),
}
CASES = [pytest.param(name, case, id=f"{name}-{i}") for name, found in LINEAR.items() for i, case in enumerate(found)]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_tiled(name: str, case: Case, device: Device) -> None:
    op = load_all()[name]
    gpu = with_limits(device, profile=GPU, software=False, **CORE)
    plan = Engine(opcheck.build(op, case).builder.graph(), gpu.limits).plans[-1]
    assert plan.steps[-1].kernel == "linear_q4gsw_tiled"
    opcheck.check_case(op, case, gpu)
    opcheck.check_case(op, case, opcheck.folding(op, case, gpu))


def test_few_rows_are_not_tiled(device: Device) -> None:
    op, case = load_all()["et_vk.linear_q4gsw.default"], _case(7, 64, 48, 32)
    for changes in ({}, {"max_workgroup_bytes": 8192}):
        limits = with_limits(device, profile=GPU, **{**CORE, **changes}).limits
        wide = _case(40, 64, 48, 32) if changes else case
        assert "tiled" not in Engine(opcheck.build(op, wide).builder.graph(), limits).plans[-1].steps[-1].kernel
