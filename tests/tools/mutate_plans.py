#!/usr/bin/env python3
"""Change one field of every op's plans at a time, and see that a check of that op's cases fails.

    python tests/tools/mutate_plans.py [--runs] [OP ...]    by default every op; prints one row per op

A mutant changes one field in every plan of an op: an output dim, a uniform or one of its elements, a constant, one
axis of a grid, the route, a bound, how far caches are bound, a window, a missing dispatch. The change is +1, -1, or the
value at the largest shape ("stale": the field that a resize forgot). Uniforms that the kernel's text does not read are
left out. The checks are the functions that the tests call, in one process: first those of plans alone (resized ==
built, and an independent computation of each field), then, if these see nothing or with --runs, those that run the op
(numbers, sentinels, minimal grids). With --runs a row also counts the mutants that runs alone kill, and names those
that they do not. Each op is tried for every kind of machine for which it has different plans.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from webgpu_run.debug.single_op import varying  # noqa: E402
from webgpu_run.gpu.device import Device, open_device  # noqa: E402
from webgpu_run.ops import wgsl  # noqa: E402
from webgpu_run.ops.limits import Limits  # noqa: E402
from webgpu_run.ops.plan import Plan  # noqa: E402
from webgpu_run.ops.spec import REGISTRY, Args, Case, Op  # noqa: E402

from helpers import opcheck  # noqa: E402
from helpers.cases import all_cases  # noqa: E402

Path_ = tuple[str | int, ...]
SMALL = 1 << 20
Change = Callable[[Plan, Plan], Plan]  # of a plan, given that of the largest shape


def get(thing: Any, path: Path_) -> Any:
    """What a field holds; None where the plan has no such field."""
    for key in path:
        if isinstance(key, int):
            thing = thing[key] if key < len(thing) else None
        elif isinstance(thing, tuple):
            thing = dict(thing).get(key)
        else:
            thing = getattr(thing, key)
        if thing is None:
            return None
    return thing


def put(thing: Any, path: Path_, value: Any) -> Any:
    """The same with one field replaced."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(key, int):
        return (*thing[:key], put(thing[key], rest, value), *thing[key + 1 :])
    if isinstance(thing, tuple):
        return tuple((name, put(v, rest, value) if name == key else v) for name, v in thing)
    return dataclasses.replace(thing, **{key: put(getattr(thing, key), rest, value)})


def numbers(plan: Plan) -> Iterator[Path_]:
    """Every number of a plan that has an effect."""
    for o, dims in enumerate(plan.outs):
        yield from (("outs", o, i) for i in range(len(dims)))
    yield from (("bounds", b, "high") for b in range(len(plan.bounds)))
    yield from (("reach", name) for name in ("rows", "unit") if plan.reach)
    for k, step in enumerate(plan.steps):
        yield from (("steps", k, "grid", axis) for axis in range(3))
        text = wgsl.load(step.kernel).text(step.consts)
        for name, value in step.params:
            if f"params.{name}" not in text:
                continue
            if not isinstance(value, tuple):
                yield ("steps", k, "params", name)
                continue
            rank = dict(step.params).get("outer_rank" if "outer" in name else "rank", len(value))
            yield from (("steps", k, "params", name, i) for i in range(rank))  # type: ignore[arg-type]
        yield from (("steps", k, "consts", name) for name, value in step.consts if not isinstance(value, str))
        yield from (("steps", k, "stage", name) for name in ("rows", "width") if step.stage)
        yield from (("steps", k, "idle", name) for name in ("below",) if step.idle)
        for name, _ in step.windows:
            yield from (("steps", k, "windows", name, at) for at in ("offset", "nbytes"))


def is_read(plan: Plan, path: Path_) -> bool:
    """Whether the plan has the field and, if it is a uniform, its kernel reads it."""
    if get(plan, path) is None:
        return False
    if "params" not in path:
        return True
    step = plan.steps[int(path[1])]
    return f"params.{path[3]}" in wgsl.load(step.kernel).text(step.consts)


def by(path: Path_, amount: int) -> Change:
    """One more or one less (windows move by what bindings are aligned to); no field goes below nothing."""
    step = 256 * amount if "windows" in path else amount

    def changed(plan: Plan, largest: Plan) -> Plan:
        value = get(plan, path)
        if value is None or isinstance(value, str) or not is_read(plan, path):  # the kernel has no such number
            return plan
        if isinstance(value, float):
            return put(plan, path, value * 1.5 + 0.25) if amount > 0 else plan  # type: ignore[no-any-return]
        return put(plan, path, max(0, value + step))  # type: ignore[no-any-return]

    return changed


def stale(path: Path_) -> Change:
    def changed(plan: Plan, largest: Plan) -> Plan:
        value = get(largest, path)
        return plan if value is None or not is_read(plan, path) else put(plan, path, value)

    return changed


def mutants(plan: Plan, routes: set[str]) -> Iterator[tuple[str, Change]]:
    """Every single change of a plan like this one."""
    for path in numbers(plan):
        label = ".".join(map(str, path)).replace("steps.", "").replace("params.", "")
        yield f"{label} +1", by(path, 1)
        yield f"{label} -1", by(path, -1)
        yield f"{label} stale", stale(path)
    for route in sorted({*routes, "mutant"}):
        yield f"route {route}", lambda p, _, r=route: dataclasses.replace(p, route=r)
    yield "route stale", stale(("route",))
    for k in range(len(plan.steps)):
        yield f"{k} left out", lambda p, _, k=k: dataclasses.replace(p, steps=(*p.steps[:k], *p.steps[k + 1 :]))


def wrong(op: Op, case: Case, change: Change) -> Op:
    first = {name: case.attrs[name] for name in varying(op, case)}

    def plan(a: Args, limits: Limits) -> Plan:
        dims, attrs = {n: a.max_dims[n] for n in a.dims}, {**a.attrs, **first}
        top = Args(dims, attrs, max_dims=a.max_dims, dtypes=a.dtypes, slots=a.slots)
        return change(op.plan(a, limits), op.plan(top, limits))

    return dataclasses.replace(op, plan=plan)


def fails(op: Op, case: Case, change: Change, *checks: Callable[[Op], object]) -> bool:
    """Whether some check fails when every plan of the op is changed so."""
    bad, registered = wrong(op, case, change), REGISTRY[op.name]  # which has no number of outputs of its own
    REGISTRY[op.name] = wrong(registered, case, change)
    try:
        for check in checks:
            check(bad)
    except Exception:
        return True
    finally:
        REGISTRY[op.name] = registered
    return False


def of_plans(op: Op, case: Case, device: Device, change: Change) -> bool:
    return fails(
        op,
        case,
        change,
        *(lambda o, live=live: opcheck.check_expected(o, case, live, device.limits) for live in opcheck.lives(case)),
        lambda o: opcheck.check_plans(o, case, device.limits),
    )


def of_runs(op: Op, case: Case, device: Device, change: Change) -> bool:
    folded = opcheck.folding(op, case, device)
    checks: list[Callable[[Op], object]] = [
        lambda o: opcheck.check_case(o, case, device),
        lambda o: opcheck.check_case(o, case, folded),
    ]
    if device.limits.max_binding > SMALL:  # a part of a table may serve nothing, so its grid may be too large
        checks.append(lambda o: opcheck.check_minimal(o, case, device))
    return fails(op, case, change, *checks)


def survivors(pairs: list[tuple[Op, Case]], device: Device, runs: bool) -> tuple[int, list[str], list[str]]:
    """How many mutants an op has, which no check kills, and (with `runs`) which no run kills."""
    plans = [opcheck.planned(op, case, device.limits) for op, case in pairs]
    routes = {p.route for found in plans for p in found}
    seen: dict[str, Change] = {}
    for found in plans:
        for plan in found:
            seen |= dict(mutants(plan, routes))
    count, lived, unseen = 0, list[str](), list[str]()
    for label, change in seen.items():
        changed = [
            pair for pair, found in zip(pairs, plans, strict=True) if any(change(p, found[0]) != p for p in found)
        ]
        if not changed:
            continue  # a 0 made no smaller, or the same at every shape
        count += 1
        told = any(of_plans(op, case, device, change) for op, case in changed)
        if told and not runs:
            continue
        if label.startswith("route") or not any(of_runs(op, case, device, change) for op, case in changed):
            unseen.append(label)  # a route is a name: no run depends on it
            if not told:
                lived.append(label)
    return count, lived, unseen


def main(argv: list[str]) -> int:
    runs = "--runs" in argv
    names = [name for name in argv if name != "--runs"]
    device = open_device()
    by_op: dict[str, list[tuple[Op, Case]]] = {}
    for _, _, op, case in all_cases():
        if not names or op.short in names or op.name in names:
            by_op.setdefault(op.name, []).append((op, case))
    total = dead = ran = 0
    print(f"{'op':44} {'machine':15} {'mutants':>8} {'killed':>7} {'by runs' * runs:>8}    s  survived")
    for name, pairs in sorted(by_op.items()):
        tried: list[list[list[Plan]]] = []
        for machine in opcheck.machines(device):
            here = [(op, case) for op, case in pairs if opcheck.must_run(op, case, machine.limits)]
            plans = [opcheck.planned(op, case, machine.limits) for op, case in here]
            if not here or plans in tried:
                continue
            tried.append(plans)
            start = time.monotonic()
            for op, case in here:
                if of_plans(op, case, machine, lambda p, _: p) or (runs and of_runs(op, case, machine, lambda p, _: p)):
                    print(f"{name}: fails as it is: {case}", flush=True)
            count, lived, unseen = survivors(here, machine, runs)
            total, dead, ran = total + count, dead + count - len(lived), ran + count - len(unseen)
            kind = machine.limits.profile.name if machine.limits.max_binding > SMALL else "small bindings"
            row = f"{name:44} {kind:15} {count:8} {count - len(lived):7} {str(count - len(unseen)) * runs:>8}"
            print(f"{row} {time.monotonic() - start:4.0f}  {'; '.join(lived)}", flush=True)
            if runs:
                print(f"    runs do not see: {'; '.join(unseen)}", flush=True)
    print(f"{'all':44} {'':15} {total:8} {dead:7} {str(ran) * runs:>8}")
    return 1 if dead < total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
