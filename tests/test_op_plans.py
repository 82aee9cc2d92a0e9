"""The plans of every case of every op, without a GPU."""

from __future__ import annotations

import dataclasses

import pytest

from webgpu_run.errors import RunError, ShapeError
from webgpu_run.graph.planner import Engine
from webgpu_run.ops.limits import PROFILES, SOFTWARE, Limits, Profile
from webgpu_run.ops.spec import Case, Op, load_all
from webgpu_run.shapes import prod

from helpers import graphs, opcheck
from helpers.cases import all_cases

CASES = [pytest.param(op, case, id=label) for label, _, op, case in all_cases()]
KINDS = (
    Limits(dot4=True),
    Limits(software=True, subgroups=True, uniform_align=32, profile=SOFTWARE),
    Limits(subgroups=True, f16=True, max_workgroups=7, uniform_align=32),
)


@pytest.mark.parametrize("limits", KINDS, ids=("gpu", "software", "small"))
@pytest.mark.parametrize(("op", "case"), CASES)
def test_resized_is_built(op: Op, case: Case, limits: Limits) -> None:
    if not opcheck.must_run(op, case, limits):
        return
    if limits.max_workgroups == 7 and refused(op, case, limits):
        roomy = dataclasses.replace(limits, max_workgroups=65535)
        engines = [Engine(opcheck.build(op, case, live).builder.graph(), roomy) for live in opcheck.lives(case)]
        assert any(prod(step.grid) > 7 for engine in engines for plan in engine.plans for step in plan.steps)
    else:
        opcheck.check_plans(op, case, limits)


def refused(op: Op, case: Case, limits: Limits) -> bool:
    """Whether a shape of the case is over the number of workgroups, and the error says so."""
    try:
        for live in opcheck.lives(case):
            Engine(opcheck.build(op, case, live).builder.graph(), limits)
    except ShapeError as err:
        return "over the adapter's limit" in str(err)
    return False


@pytest.mark.parametrize(("op", "case"), CASES)
def test_expected_fields(op: Op, case: Case) -> None:
    """Routes by rule, grids just large enough for what their kernel says it serves, fields that fit their uniforms."""
    for limits in (Limits(), *KINDS[:2], graphs.ANY):
        if not opcheck.must_run(op, case, limits):
            continue
        for live in opcheck.lives(case):
            opcheck.check_expected(op, case, live, limits)


@pytest.mark.parametrize("subgroups", [False, True])
@pytest.mark.parametrize("profile", PROFILES, ids=lambda p: p.name)
def test_every_op_runs_where_it_must(profile: Profile, subgroups: bool) -> None:
    limits = Limits(uniform_align=32, profile=profile, subgroups=subgroups)
    ran = {
        op.name for _, _, op, case in all_cases() if opcheck.must_run(op, case, limits) and planned(op, case, limits)
    }
    assert ran == {op.name for _, _, op, _ in all_cases() if profile in op.profiles}


def planned(op: Op, case: Case, limits: Limits) -> bool:
    return bool(op.plan(graphs.args_of(op, case), limits).outs)


def test_every_op_has_a_case() -> None:
    covered = {op.plan for op in load_all().values() if opcheck.cases_of(op)}
    assert not {op.name for op in load_all().values() if op.out_kind != "symint" and op.plan not in covered}


@pytest.mark.parametrize(("op", "case"), [p for p in CASES if p.values[1].live])  # type: ignore[attr-defined]
def test_dims_of_zero(op: Op, case: Case) -> None:
    """Whatever may vary may be nothing: then nothing is dispatched for it, or an error says why not."""
    one = opcheck.build(op, case)
    engine = Engine(one.builder.graph(), graphs.ANY)
    for live in case.live:
        shapes = {n: dims for n, dims in live.items() if n in case.dims}
        none = {n: tuple(d * (d == m) for d, m in zip(dims, case.dims[n], strict=True)) for n, dims in shapes.items()}
        data = {n: x[tuple(map(slice, none[n]))] if n in none else x for n, x in opcheck.arrays(op, case, live).items()}
        try:
            engine.resize(one.inputs(data))
        except RunError:
            continue
        plan = engine.plans[-1]
        assert all(prod(step.grid) > 0 for step in plan.steps)
        assert not plan.steps or any(map(prod, plan.outs)), f"{plan.route} dispatches {len(plan.steps)} for nothing"
