"""The checks of a case of an op, as plain functions: called by the tests and by tests/tools/mutate_plans.py."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping

import numpy as np

from webgpu_run.errors import RunError, ShapeError
from webgpu_run.gpu import turns
from webgpu_run.gpu.device import Device
from webgpu_run.graph.graph import GPU_DTYPE
from webgpu_run.graph.planner import Delta, Engine
from webgpu_run.ops.limits import GPU, PLAIN, SHORT, SOFTWARE, WIDE, Limits
from webgpu_run.ops.linear import is_strips
from webgpu_run.ops.plan import Plan
from webgpu_run.ops.spec import Case, Op
from webgpu_run.runtime.runner import Runner
from webgpu_run.shapes import Array, Dims, prod

from helpers import fields, fields_rows
from helpers.cases import MORE, data_for
from helpers.graphs import SENTINEL, Single, args_of, arrays_of, bits, contents, fill, run, single, unread, with_limits

Live = Mapping[str, Dims]
SMALL_BINDING = 4608  # bytes
# WGSL's sin and cos may be off by this much between -pi and pi, where all but one in 600 of the cases' numbers are.
SIN_ERROR = 2**-11


def lives(case: Case) -> tuple[Live, ...]:
    """The largest shape, then each live one."""
    return ({}, *case.live)


def arrays(op: Op, case: Case, live: Live) -> dict[str, Array]:
    return data_for(op, arrays_of(op, case, live))


def build(op: Op, case: Case, live: Live | None = None, *, symbolic: bool = False) -> Single:
    return single(op, case, arrays(op, case, live or {}), live, symbolic=symbolic)


# (op, width) of cases that a machine with small bindings and large alignment must refuse: with rows of 63 floats, only
# every 64th row starts at a multiple of 256 bytes, and 64 rows are more than it binds.
TOO_WIDE = {("aten.linear.default", (63,))}


def must_run(op: Op, case: Case, limits: Limits) -> bool:
    """Whether the case is declared to run on such a machine. Where it is not, assert that its plan is refused."""
    is_small = limits.max_binding == SMALL_BINDING and limits.storage_align == 256
    too_wide = is_small and (op.name, case.dims.get("x", ())[-1:]) in TOO_WIDE
    if op.name == "wr.attention_rows" and not limits.profile.image_cache:  # its caches are bound whole
        caches = 4 * int(case.attrs["sequences"]) * prod(case.dims["kc"])
        too_wide |= limits.max_binding == SMALL_BINDING < caches
    if op.name == "aten.linear.default" and not is_strips(args_of(op, case), limits):
        rows, most = prod(case.dims["x"][:-1]), max(case.dims["w"])
        if 4 * rows * most > limits.max_binding:
            return False  # planned, but refused when bound: the weight comes in parts, input and output do not
    if limits.profile in op.profiles and not too_wide:
        return True
    try:
        op.plan(args_of(op, case), limits)
    except RunError:
        return False
    raise AssertionError(f"{op.name} is declared to have no kernel for {limits.profile.name}, but it has a plan")


def machines(device: Device) -> tuple[Device, ...]:
    """The device itself, and planned for as if it were of the other kinds, or could bind little at a time."""
    own = device.limits.profile
    common = {"max_invocations": 256, "max_workgroup_bytes": 16384}  # what every adapter has
    kinds = (GPU, PLAIN, SOFTWARE, SHORT, WIDE) if own.shuffle else (GPU, PLAIN)
    others = [with_limits(device, profile=kind, **common) for kind in kinds if kind != own]
    others += [with_limits(device, profile=GPU, dot4=not device.limits.dot4, **common)]
    return (device, *others, with_limits(device, max_binding=SMALL_BINDING))


def planned(op: Op, case: Case, limits: Limits) -> list[Plan]:
    """The op's plans in a graph that was built once and resized: largest first."""
    one = build(op, case)
    engine = Engine(one.builder.graph(), limits)
    found = []
    for live in lives(case):
        engine.resize(one.inputs(arrays(op, case, live)))
        found.append(engine.plans[-1])
    return found


def promised(op: Op, data: Mapping[str, Array]) -> Array | float:
    """The largest error of each element that WGSL allows its own sin, cos and tan, which is sin(x) / cos(x)."""
    if op.name in ("aten.sin.default", "aten.cos.default"):
        return SIN_ERROR
    if op.name == "aten.tan.default":
        x = data["x"].astype(np.float64)
        cos = np.abs(np.cos(x)) - SIN_ERROR
        return np.where(cos > 0, SIN_ERROR * (1 + np.abs(np.tan(x))) / np.maximum(cos, 1e-9), np.inf)
    return 0.0


def error(out: Array, want: Array, allowed: Array | float = 0.0) -> tuple[float, float]:
    """(normalised mean square error, largest error of an element against the largest of its row), beyond `allowed`."""
    out, want = np.asarray(out, np.float64), np.asarray(want, np.float64)
    assert out.shape == want.shape, f"shape {out.shape}, expected {want.shape}"
    if not want.size:
        return 0.0, 0.0
    same = (out == want) | (np.isnan(out) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        diff = np.where(same, 0, np.maximum(np.abs(out - want) - allowed, 0))
    diff, want = np.where(np.isnan(diff), np.inf, diff), np.where(np.isfinite(want), want, 0)
    rows = np.abs(want).reshape(-1, want.shape[-1] if want.ndim else 1).max(-1)
    worst = diff.reshape(len(rows), -1).max(-1) / np.maximum(rows, 1e-30)
    return float((diff**2).sum() / max((want**2).sum(), 1e-300)), float(worst.max())


def check_numbers(op: Op, case: Case, runner: Runner, one: Single, live: Live) -> list[Array]:
    """The outputs fit the float64 reference, and nothing past their live extent was written."""
    data = arrays(op, case, live)
    fill(runner)
    outs = run(runner, one.inputs(data))
    if op.reference is not None:
        want = op.reference(args_of(op, case, live), data)
        want = [want] if isinstance(want, np.ndarray) else list(want)
        assert len(outs) == len(want)
        for name, out, ref in zip(op.outs, outs, want, strict=True):
            nmse, worst = error(out, ref, promised(op, data))
            limit = case.tol if out.dtype.kind == "f" else 0.0
            assert worst <= limit, f"{name}: off by {worst:.2e} of its row at {dict(live)}"
            assert nmse <= 1e-9, f"{name}: NMSE {nmse:.2e} at {dict(live)}"
    check_untouched(runner, silent=op.reference is None)
    check_rows(op, case, runner, data, live)
    return outs if op.reference is not None else []  # an op that only changes its cache writes no output


def check_untouched(runner: Runner, *, silent: bool = False) -> None:
    """Past their live extent inputs and outputs still hold the sentinel. Before it, no output element does."""
    graph = runner.graph
    inputs = {v for v, t in graph.tensors.items() if t.root in graph.input_ids}
    for v in (*graph.input_ids, *graph.output_ids):
        if graph.is_constant(v) or (v in graph.input_ids and v not in runner.executor.device_inputs):
            continue  # never written: a constant, or read by the host only
        if v == turns.words_of(graph):
            continue  # in the arena
        words = contents(runner, v)
        count = prod(runner.engine.live[v])
        same = (unread(words.size) if v in inputs else np.full(words.size, SENTINEL)).view(np.uint32)
        assert (words[count:] == same[count:]).all(), f"{graph.name(v)}: written past its {count} live elements"
        assert silent or not (words[:count] == same[:count]).any(), (
            f"{graph.name(v)}: not all of its {count} elements were written"
        )


def check_rows(op: Op, case: Case, runner: Runner, data: Mapping[str, Array], live: Live) -> None:
    """Caches changed in the live rows only."""
    node = runner.graph.nodes[-1]
    for param in op.params:
        if not param.mutable:
            continue
        name, source = param.name, data[param.source]
        pos = int(case.attrs.get(op.named("position")[0]) or 0)
        want = data[name].copy()
        want[:, pos : pos + source.shape[1]] = source
        got = contents(runner, node.tensors[name])[: want.size].view(np.float32).reshape(want.shape)
        assert np.array_equal(got, want), f"{name}: rows other than {pos}..{pos + source.shape[1]} changed"


def check_case(op: Op, case: Case, device: Device, *, symbolic: bool = False) -> None:
    """At its largest, at each live shape, back again: right, and bit for bit what a graph built so gives."""
    one = build(op, case, symbolic=symbolic)
    runner = one.builder.runner(device)
    state = _state(runner)
    first: dict[int, list[tuple[tuple[int, ...], bytes]]] = {}
    order = [0, *range(1, len(lives(case))), 0]
    for i in order:
        live = lives(case)[i]
        _restore(runner, state)
        got = bits(check_numbers(op, case, runner, one, live))
        if i in first:
            assert got == first[i], f"max -> live -> max came back different at {dict(live)}"
            continue
        first[i] = got
        if i:
            fresh = build(op, case, live, symbolic=symbolic)
            other = fresh.builder.runner(device)
            outs = run(other, fresh.inputs(arrays(op, case, live)))
            assert not got or got == bits(outs), f"built at {dict(live)} differs"


def _state(runner: Runner) -> dict[int, Array]:
    graph = runner.graph
    return {v: graph.constant(v).astype(GPU_DTYPE[t.dtype]) for v, t in graph.tensors.items() if t.mutable}


def _restore(runner: Runner, state: Mapping[int, Array]) -> None:
    runner.executor.reset()
    for v, data in state.items():
        runner.executor.device.write(runner.executor.buffers[v], data)


def folding(op: Op, case: Case, device: Device) -> Device:
    """The device with so few workgroups a dimension that the case's largest grid, of any shape, is two-dimensional."""
    graphs = [build(op, case, live).builder.graph() for live in lives(case)]
    plans = [plan for graph in graphs for plan in Engine(graph, device.limits).plans]
    most = max((prod(s.grid) for plan in plans for s in plan.steps), default=1)
    small = with_limits(device, max_workgroups=math.isqrt(max(most - 1, 1)) + 1)
    try:
        for graph in graphs:
            Engine(graph, small.limits)
    except ShapeError:  # it has a grid of its own making, which is not folded
        return device
    return small


def check_minimal(op: Op, case: Case, device: Device) -> None:
    """No dispatch has a workgroup to spare: without its last one an output, or a cache, is not complete."""
    one = build(op, case)
    runner = one.builder.runner(device)
    data = arrays(op, case, {})
    state = _state(runner)

    def everything() -> list[bytes]:
        _restore(runner, state)
        fill(runner)
        run(runner, one.inputs(data))
        extra = [v for v, t in runner.graph.tensors.items() if t.mutable]
        return [contents(runner, v).tobytes() for v in (*runner.graph.output_ids, *extra)]

    want = everything()
    index = len(runner.graph.nodes) - 1
    plan = runner.engine.plans[index]
    for k, step in enumerate(plan.steps):
        groups = step.grid
        axis = max(a for a in range(3) if groups[a] > 1) if prod(groups) > 1 else 0
        less = (groups[0] - (axis == 0), groups[1] - (axis == 1), groups[2] - (axis == 2))
        steps = (*plan.steps[:k], dataclasses.replace(step, grid=less), *plan.steps[k + 1 :])
        _force(runner, index, dataclasses.replace(plan, steps=steps))
        assert everything() != want, f"step {k} ({step.kernel}) is as right with grid {less} as with {groups}"
        _force(runner, index, plan)


def _force(runner: Runner, index: int, plan: Plan) -> None:
    runner.executor.stream.prepare(Delta({index: plan}, {}, {}))
    runner.executor.stream.commit()


def check_plans(op: Op, case: Case, limits: Limits) -> int:
    """Resized from any shape to any other == built there, in every order; returns the pairs compared."""
    shapes = lives(case)
    one = build(op, case)
    graph = one.builder.graph()
    fresh: list[Plan] = []
    for live in shapes:
        other = build(op, case, live).builder.graph()
        fresh.append(Engine(other, limits).plans[-1])
    data = [one.inputs(arrays(op, case, live)) for live in shapes]
    engine = Engine(graph, limits)
    pairs = 0
    for a, b in itertools.permutations(range(len(shapes)), 2) if len(shapes) > 1 else [(0, 0)]:
        for i in (a, b):
            engine.resize(data[i])
            same_plan(engine.plans[-1], fresh[i], f"{op.name} at {dict(shapes[i])}")
            for v, dims in zip(graph.output_ids, fresh[i].outs, strict=True):
                assert engine.live[v] == dims
        pairs += 1
    return pairs


def same_plan(got: Plan, want: Plan, what: str) -> None:
    """Equal in every field, and in the bytes of every uniform."""
    assert got == want, f"{what}: {got} != {want}"
    assert [s.uniform() for s in got.steps] == [s.uniform() for s in want.steps], what


def cases_of(op: Op) -> tuple[Case, ...]:
    return (*op.cases, *MORE.get(op.name, ()))


def check_expected(op: Op, case: Case, live: Live, limits: Limits) -> None:
    """What can be said of a plan from its shapes alone: every field of its dispatches, route, limits, bounds."""
    plan = Engine(build(op, case, live).builder.graph(), limits).plans[-1]
    a = args_of(op, case, live)
    fields.check(op, a, plan, limits)
    for step in plan.steps:
        assert max(step.grid) <= limits.max_workgroups
        assert len(step.uniform()) <= limits.max_uniform
        sizes = [value for name, value in step.consts if name in ("WG", "LANES")]
        assert all(isinstance(n, int) and n & (n - 1) == 0 < n <= limits.max_invocations for n in sizes), sizes
    assert {b.arg for b in plan.bounds} == set(op.named("position"))
    caches = op.named("cache")
    for bound in plan.bounds:
        heads_first = any(len(a[n]) == 3 for n in op.named("rotary") if op.short == "apply_rotary_emb_hf")
        longest = max(a[n][2 if heads_first else 1] for n in op.named("activation") if n in a)
        longest = 1 if op.short in fields_rows.ATTENTION else longest  # the position is the largest of the call
        room = {a[n][1] for n in caches} | {a[n][-2] for n in op.named("rotary")}
        assert bound.high + longest in room, (
            f"{op.name}: position up to {bound.high}, {longest} rows at a time, of {room}"
        )
    assert not caches or a[caches[0]][1] - longest in {b.high for b in plan.bounds}
