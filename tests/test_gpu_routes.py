"""The routes of a GPU, and of unusual limits, on whatever adapter there is: right, and the same bits after a resize."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from webgpu_run.gpu.callstats import CallStats
from webgpu_run.gpu.device import Device
from webgpu_run.graph.planner import Engine
from webgpu_run.ops import attention, attention_q4gsw, sdpa
from webgpu_run.ops.limits import GPU, PLAIN, SHORT, SOFTWARE, WIDE, Profile
from webgpu_run.ops.linear_q4gsw import _case
from webgpu_run.ops.linear_q4gsw_fused import _case as _fused_case
from webgpu_run.ops.spec import Case, load_all

from helpers import opcheck
from helpers.graphs import args_of, fill, with_limits

CORE = {"uniform_align": 256, "max_workgroup_bytes": 16384, "max_invocations": 256, "max_texture": 8192}
LINEAR = {
    "et_vk.linear_q4gsw.default": (_case(37, 64, 48, 32, 1, 3, 9, 33), _case(65, 1024, 70, 64, 17, 8, bias=True)),
    "wr.linear_q4gsw.1": (
        _fused_case(40, 64, (44, 44), 9, 3, swiglu=True, norm=True),
        _fused_case(33, 128, (64,), 32, 8, norm=True, res=True),
    ),
    "wr.linear_q4gsw.3": (_fused_case(35, 64, (96, 32, 36), 8, norm=True, bias=True),),
}
BYTES = {
    "wr.linear_q4gsw.1": (
        _fused_case(40, 64, (44, 44), 9, 33, swiglu=True, norm=True, rounded=True),
        _fused_case(65, 256, (70,), 64, 17, 8, bias=True, res=True, rounded=True, group=128),
        _fused_case(37, 64, (8196,), 36, rounded=True),  # so wide that tiles have 64 rows
    ),
}
ATTENTION = {
    "wr.attention": (
        attention._case(1, 300, 9, 3, 64, 290),
        attention._case(5, 300, 6, 2, 64, 200, 1, 3, halves=True),
        attention._case(30, 100, 6, 6, 8, 3, 1, 20),  # too few rows for a tile
    ),
    "wr.attention_q4gsw": (
        # Scores of hundreds of positions lie so far apart that softmax multiplies the projection's error, 1e-6, by 50.
        dataclasses.replace(attention_q4gsw._case(11, 64, 4, 2, 32, 300, 280, 1, 2), tol=1e-4),
        attention_q4gsw._case(5, 64, 3, 1, 64, 33, 17, 1, 3, halves=True, bias=True),
        attention_q4gsw._case(3, 64, 6, 2, 16, 24, 7, 1, norm=False, rounded=True),
    ),
    "sdpa_with_kv_cache.default": (
        sdpa._case(6, 70, 10, 2, 32, 30, 1, 5),
        sdpa._case(3, 50, 2, 1, 6, 20, 1),  # cells of one element
        sdpa._case(3, 50, 2, 1, 256, 20, 1),
    ),
}
TILES = {
    "wr.attention": (
        attention._case(90, 100, 6, 6, 8, 3, 1, 40),  # so many rows that the context stays whole
        attention._case(43, 300, 9, 3, 64, 250, 12, 11, 10, halves=True),  # of 9 tiles, the last has a query
    ),
    "wr.attention_q4gsw": (
        dataclasses.replace(attention_q4gsw._case(70, 64, 4, 2, 32, 300, 230, 1, 33, 16), tol=1e-4),
    ),
    "sdpa_with_kv_cache.default": (
        sdpa._case(40, 170, 10, 2, 32, 130, 1, 7, 13),
        sdpa._case(33, 40, 2, 2, 96, 7),
        sdpa._case(37, 200, 4, 2, 12, 150, 16),  # fewer cells than lanes, and than are staged together
        sdpa._case(33, 190, 4, 1, 128, 157, 8),
        sdpa._case(33, 190, 2, 1, 256, 150, 17),  # 128 invocations
    ),
}
CASES, TILE_CASES = (
    [pytest.param(name, case, id=f"{name}-{i}") for name, found in cases.items() for i, case in enumerate(found)]
    for cases in (LINEAR, TILES)
)


@pytest.mark.parametrize("dot4", [True, False])
@pytest.mark.parametrize(("name", "case"), [(name, case) for name, found in BYTES.items() for case in found])
def test_tiled_bytes(name: str, case: Case, dot4: bool, device: Device) -> None:
    """8-bit rows as bytes where a GPU multiplies four of them at a time, else as f32."""
    op = load_all()[name]
    gpu = with_limits(device, profile=GPU, software=False, dot4=dot4, **CORE)
    plan = Engine(opcheck.build(op, case).builder.graph(), gpu.limits).plans[-1]
    assert plan.steps[-1].kernel == ("linear_dq8ca_tiled" if dot4 else "linear_q4gsw_tiled")
    opcheck.check_case(op, case, gpu)
    opcheck.check_case(op, case, opcheck.folding(op, case, gpu))


@pytest.mark.parametrize(("name", "case"), CASES)
def test_tiled(name: str, case: Case, device: Device) -> None:
    op = load_all()[name]
    gpu = with_limits(device, profile=GPU, software=False, **CORE)
    plan = Engine(opcheck.build(op, case).builder.graph(), gpu.limits).plans[-1]
    assert plan.steps[-1].kernel == "linear_q4gsw_tiled"
    opcheck.check_case(op, case, gpu)
    opcheck.check_case(op, case, opcheck.folding(op, case, gpu))


@pytest.mark.parametrize("form", [{"norm": True}, {"rounded": True}, {}])
@pytest.mark.parametrize("group", [32, 64])
def test_strips_on_several_texture_rows(group: int, form: dict[str, bool], device: Device) -> None:
    """A strip that is wider than the widest texture, for one row and for few."""
    case = _fused_case(5, 1088, (12,), 1, 2, group=group, **form)
    op = load_all()["wr.linear_q4gsw.1"]
    gpu = with_limits(device, profile=GPU, software=False, **CORE | {"max_texture": 64})
    plan = Engine(opcheck.build(op, case).builder.graph(), gpu.limits).plans[-1]
    assert dict(plan.steps[-1].consts)["PARTS"] == 17
    opcheck.check_case(op, case, gpu)


@pytest.mark.parametrize("profile", [SOFTWARE, SHORT, WIDE], ids=lambda p: p.name)
@pytest.mark.parametrize("form", [{"norm": True, "res": True}, {"rounded": True}, {}])
def test_numbers_of_rows(form: dict[str, bool], profile: Profile, device: Device) -> None:
    """Each number of rows per workgroup that a software adapter gets, and of strips: 3 per texture row, or 2."""
    if not device.limits.subgroups:
        pytest.skip("the adapter has no subgroups of eight")
    op, case = load_all()["wr.linear_q4gsw.1"], _fused_case(27, 128, (192,), 8, 6, 5, 4, 3, 2, 1, **form)
    software = with_limits(device, profile=profile, software=True)
    found = set()
    for live in case.live:
        plan = Engine(opcheck.build(op, case, live).builder.graph(), software.limits).plans[-1]
        found.add(tuple(dict(plan.steps[-1].consts).get(name) for name in ("ROWS", "STRIPS")))
    long = {(8, 2), (6, 3), (4, 3), (3, 3), (2, 3), (1, 3)}
    short = {(4, 2), (3, 2), (2, 2), (1, 2 if profile is WIDE else 3)}
    assert found == (long if profile is SOFTWARE else short)
    opcheck.check_case(op, case, software)


@pytest.mark.parametrize("subgroups", [True, False])
@pytest.mark.parametrize(
    ("name", "case"),
    [pytest.param(name, case, id=f"{name}-{i}") for name, found in ATTENTION.items() for i, case in enumerate(found)],
)
def test_context_dealt_out(name: str, case: Case, subgroups: bool, device: Device) -> None:
    """Attention whose context is shared by workgroups, sums handed round subgroups or workgroup memory."""
    if subgroups and not device.limits.subgroups:
        pytest.skip("the adapter has no subgroups of eight")
    op = load_all()[name]
    gpu = with_limits(device, profile=GPU, software=False, subgroups=subgroups, **CORE)
    steps = Engine(opcheck.build(op, case).builder.graph(), gpu.limits).plans[-1].steps
    whole = steps[-1] if steps[-1].kernel != "sdpa_reduce" else steps[-2]
    assert whole.kernel == ("sdpa_subgroup" if subgroups else "sdpa")
    opcheck.check_case(op, case, gpu)
    if name != "wr.attention_q4gsw":  # its linear has a folded grid only for millions of columns
        opcheck.check_case(op, case, opcheck.folding(op, case, gpu))


@pytest.mark.parametrize(("name", "case"), TILE_CASES)
def test_attention_in_tiles(name: str, case: Case, device: Device) -> None:
    """Keys and values go through workgroup memory; WebGPU's smallest is enough."""
    op = load_all()[name]
    gpu = with_limits(device, profile=GPU, software=False, **CORE)
    kernels = [s.kernel for s in Engine(opcheck.build(op, case).builder.graph(), gpu.limits).plans[-1].steps]
    assert "sdpa_tiled" in kernels
    opcheck.check_case(op, case, gpu)
    if name != "wr.attention_q4gsw":
        opcheck.check_case(op, case, opcheck.folding(op, case, gpu))


@pytest.mark.parametrize("name", ["wr.attention_q4gsw", "wr.linear_q4gsw.1", "wr.linear_q4gsw.3"])
def test_folded_grids_without_subgroups(name: str, device: Device) -> None:
    """A folded grid may have workgroups past the last strip, which must store nothing."""
    op, plain = load_all()[name], with_limits(device, profile=PLAIN, software=True, subgroups=False)
    for case in op.cases:
        opcheck.check_case(op, case, opcheck.folding(op, case, plain))


@pytest.mark.parametrize("subgroups", [True, False])
def test_moving_position_plans_nothing(subgroups: bool, device: Device) -> None:
    """From the first token on, past every edge of a tile and of the splits: one plan, and the right numbers."""
    if subgroups and not device.limits.subgroups:
        pytest.skip("the adapter has no subgroups of eight")
    op, case = load_all()["wr.attention"], attention._case(1, 300, 6, 2, 16, 0)
    gpu = with_limits(device, profile=GPU, software=False, subgroups=subgroups, **CORE)
    data = opcheck.arrays(op, case, {})
    one = opcheck.build(op, case, symbolic=True)
    runner = one.builder.runner(gpu)
    assert op.reference
    assert op.remember
    for pos in (0, 1, 31, 32, 63, 64, 255, 256, 299, 256, 255):
        data |= {
            n: np.random.default_rng([pos, i]).standard_normal(data[n].shape, np.float32)
            for i, n in enumerate(("xq", "xk", "v"))
        }
        args = args_of(op, dataclasses.replace(case, attrs={**case.attrs, "pos": pos}))
        fill(runner)
        stats = CallStats()
        (got,) = runner.call([np.array([pos]) if n == "pos" else data[n] for n in one.names], stats)
        assert stats.dispatches == (2 if pos < 256 else 3)  # one workgroup reads up to 256 positions alone
        wanted = op.reference(args, data)[0]
        assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max(), f"at {pos}"
        assert pos == 0 or not runner.delta.plans
        data |= {n: c.astype(np.float32) for n, c in zip(("kc", "vc"), op.remember(args, data), strict=True)}


def test_few_rows_are_not_tiled(device: Device) -> None:
    op, case = load_all()["et_vk.linear_q4gsw.default"], _case(16, 64, 48, 32)
    for changes in ({}, {"max_workgroup_bytes": 8192}):
        limits = with_limits(device, profile=GPU, **{**CORE, **changes}).limits
        wide = _case(40, 64, 48, 32) if changes else case
        assert "tiled" not in Engine(opcheck.build(op, wide).builder.graph(), limits).plans[-1].steps[-1].kernel


def test_rows_past_the_layers_of_an_image(device: Device) -> None:
    """More rows than an image holds come through windows, fewer are copied into it, few are normalised into it."""
    op, case = load_all()["wr.linear_q4gsw.1"], _fused_case(70, 64, (64,), 64, 17, 16, 1, norm=True, res=True)
    narrow = with_limits(device, profile=SOFTWARE, software=True, max_layers=1, uniform_align=32)
    if not narrow.limits.subgroups:
        pytest.skip("the adapter has no subgroups of eight")
    engine = Engine(opcheck.build(op, case).builder.graph(), narrow.limits)
    assert engine.plans[-1].steps[-1].stage is None
    engine = Engine(opcheck.build(op, case, case.live[0]).builder.graph(), narrow.limits)
    assert [s.kernel for s in engine.plans[-1].steps] == ["norm_rows", "linear_q4gsw_rows"]
    opcheck.check_case(op, case, narrow)


def test_rounded_rows_past_the_layers_of_an_image(device: Device) -> None:
    """The same for rounded rows, of which few are a window; the scratch of the largest number serves all others."""
    narrow = with_limits(device, profile=SOFTWARE, software=True, max_layers=1, uniform_align=32)
    if not narrow.limits.subgroups:
        pytest.skip("the adapter has no subgroups of eight")
    op = load_all()["wr.linear_q4gsw.1"]
    for k in (32, 96):  # packed rows are padded to four times their length, and to 4/3
        case = _fused_case(70, k, (64,), 64, 17, 65, 16, 1, norm=True, res=True, rounded=True)
        found = []
        for live in opcheck.lives(case):
            plan = Engine(opcheck.build(op, case, live).builder.graph(), narrow.limits).plans[-1]
            found.append(plan.steps[-1].kernel.removeprefix("linear_"))
        assert found == ["dq8ca_strips_subgroup", *["dq8ca_rows"] * 2, *["dq8ca_strips_subgroup"] * 2, "dq8ca_fresh"]
        opcheck.check_case(op, case, narrow)
