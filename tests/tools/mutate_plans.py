#!/usr/bin/env python3
"""Change one field of every op's plans at a time, and see that a check of that op's cases fails.

    python tests/tools/mutate_plans.py [OP ...]      by default every op; prints one row an op, and what survived

Runs the functions that the tests run (resized == built, expected fields, numbers, sentinels, minimal grids), in one
process, with the op's plan replaced by one that gets a single field wrong: an output dim, one uniform (each element of
a vector), one constant, the grid, the route, a bound, or a dispatch left out.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

import graphs  # noqa: E402
import opcheck  # noqa: E402
from cases import all_cases  # noqa: E402

from webgpu_run import kernel as kernels  # noqa: E402
from webgpu_run.device import Device, open_device  # noqa: E402
from webgpu_run.op import REGISTRY, Case, Limits, Op, Plan, Step  # noqa: E402

Change = Callable[[Plan], Plan]


def on_step(k: int, change: Callable[[Step], Step]) -> Change:
    def changed(plan: Plan) -> Plan:
        if k >= len(plan.steps):
            return plan
        return dataclasses.replace(plan, steps=(*plan.steps[:k], change(plan.steps[k]), *plan.steps[k + 1 :]))

    return changed


def param(name: str, change: Callable[[Any], Any]) -> Callable[[Step], Step]:
    return lambda s: dataclasses.replace(s, params=tuple((n, change(v) if n == name else v) for n, v in s.params))


def element(i: int, by: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    return lambda v: (*v[:i], max(0, v[i] + by), *v[i + 1 :]) if i < len(v) else v


def mutants(plan: Plan) -> Iterator[tuple[str, Change]]:
    """Every single change of a plan like this one."""
    for o, dims in enumerate(plan.outs):
        for i in range(len(dims)):
            for by in (1, -1):

                def out(p: Plan, o: int = o, i: int = i, by: int = by) -> Plan:
                    dims = element(i, by)(p.outs[o])
                    return dataclasses.replace(p, outs=(*p.outs[:o], dims, *p.outs[o + 1 :]))

                yield f"outs[{o}][{i}] {by:+}", out
    yield "route", lambda p: dataclasses.replace(p, route="mutant")
    for b in range(len(plan.bounds)):
        for by in (1, -1):

            def bound(p: Plan, b: int = b, by: int = by) -> Plan:
                new = dataclasses.replace(p.bounds[b], high=p.bounds[b].high + by)
                return dataclasses.replace(p, bounds=(*p.bounds[:b], new, *p.bounds[b + 1 :]))

            yield f"bounds[{b}] {by:+}", bound
    for k, step in enumerate(plan.steps):
        yield f"step {k} left out", lambda p, k=k: dataclasses.replace(p, steps=(*p.steps[:k], *p.steps[k + 1 :]))
        for axis in range(2):
            for by in (1, -1):
                if step.grid[axis] + by > 0 or axis == 0:
                    yield (
                        f"step {k} grid[{axis}] {by:+}",
                        on_step(k, lambda s, a=axis, by=by: dataclasses.replace(s, grid=element(a, by)(s.grid))),  # type: ignore[misc,arg-type]
                    )
        text = kernels.load(step.kernel).text(step.consts)
        for name, value in step.params:
            if f"params.{name}" not in text:
                continue  # shared with kernels that read it; this one does not
            if isinstance(value, tuple):
                rank = int(dict(step.params).get("rank", len(value)))  # type: ignore[arg-type]
                for i in range(min(rank, len(value))):
                    yield f"step {k} {name}[{i}] +1", on_step(k, param(name, element(i, 1)))
            elif isinstance(value, float):
                yield f"step {k} {name} x1.5", on_step(k, param(name, lambda v: v * 1.5 + 0.25))
            else:
                yield f"step {k} {name} +1", on_step(k, param(name, lambda v: v + 1))
                yield f"step {k} {name} -1", on_step(k, param(name, lambda v: max(0, v - 1)))
        for name, const in step.consts:
            if isinstance(const, int) and re.search(rf"\b{name}\b", kernels.load(step.kernel).source):
                for by in (1, -1):
                    if const + by > 0:
                        change = lambda s, n=name, by=by: dataclasses.replace(  # noqa: E731
                            s, consts=tuple((c, v + by if c == n else v) for c, v in s.consts)
                        )
                        yield f"step {k} const {name} {by:+}", on_step(k, change)


def differs(op: Op, case: Case, device: Device, change: Change) -> bool:
    """Whether the change is one: a 0 made no smaller, or a field of a route that the case does not take, is none."""
    plans = [op.plan(graphs.args_of(op, case, live), device.limits) for live in opcheck.lives(case)]
    return any(change(p) != p for p in plans)


def fails(op: Op, case: Case, device: Device, change: Change) -> bool:
    """Whether some check of the case fails when every plan of the op is changed so."""

    def wrong(args: Any, limits: Limits) -> Plan:
        return change(op.plan(args, limits))

    bad = dataclasses.replace(op, plan=wrong)
    folded = opcheck.folding(op, case, device)
    REGISTRY[op.name] = bad
    try:
        for live in opcheck.lives(case):
            opcheck.check_expected(bad, case, live, device.limits)
        opcheck.check_case(bad, case, device)
        opcheck.check_case(bad, case, folded)
        opcheck.check_minimal(bad, case, device)
    except Exception:
        return True
    finally:
        REGISTRY[op.name] = op
    return False


def main(argv: list[str]) -> int:
    device = open_device()
    by_op: dict[str, list[tuple[Op, Case]]] = {}
    for _, _, op, case in all_cases():
        if opcheck.runs(op, case, device.limits) and (not argv or op.short in argv or op.name in argv):
            by_op.setdefault(op.name, []).append((op, case))
    total = dead = 0
    survivors: list[str] = []
    print(f"{'op':44} {'mutants':>8} {'killed':>7}    s  survived")
    for name, pairs in sorted(by_op.items()):
        start, seen, lived = time.monotonic(), dict[str, Change](), list[str]()
        for op, case in pairs:
            for live in opcheck.lives(case):
                for label, change in mutants(op.plan(graphs.args_of(op, case, live), device.limits)):
                    seen.setdefault(label, change)
        seen = {k: c for k, c in seen.items() if any(differs(op, case, device, c) for op, case in pairs)}
        for op, case in pairs:
            if fails(op, case, device, lambda p: p):
                print(f"{name}: fails as it is: {case}", flush=True)
        for label, change in seen.items():
            if not any(differs(op, case, device, change) and fails(op, case, device, change) for op, case in pairs):
                lived.append(label)
        total, dead = total + len(seen), dead + len(seen) - len(lived)
        survivors += [f"{name}: {label}" for label in lived]
        spent = time.monotonic() - start
        print(f"{name:44} {len(seen):8} {len(seen) - len(lived):7} {spent:4.0f}  {'; '.join(lived)}", flush=True)
    print(f"{'all':44} {total:8} {dead:7}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
