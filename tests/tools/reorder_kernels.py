#!/usr/bin/env python3
"""Run every op case and golden with workgroups and invocations in another order, and count equal results.

    python tests/tools/reorder_kernels.py [--cases] [--goldens] [--barriers] [PART ...]    # a PART of cases' names

`--barriers` removes one barrier at a time from each kernel that has one; the same comparison must notice each. Without
a flag, everything runs. Prints Markdown tables.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

from webgpu_run.gpu.device import Device, open_device  # noqa: E402
from webgpu_run.ops.spec import Case, Op  # noqa: E402
from webgpu_run.ops.wgsl import Consts  # noqa: E402
from webgpu_run.runtime.open import load  # noqa: E402

from helpers import reorder  # noqa: E402
from helpers.cases import all_cases  # noqa: E402
from helpers.modules import FIXTURES  # noqa: E402

Cases = list[tuple[str, Op, Case, set[tuple[str, Consts]]]]


def cases_of(machine: Device, parts: list[str], seen: set[tuple[str, frozenset[tuple[str, Consts]]]]) -> Cases:
    """The cases that such a machine runs with kernels that no machine before it had for them."""
    found: Cases = []
    for label, _, op, case in all_cases():
        if not parts or any(part in label for part in parts):
            kernels = reorder.kernels_of(op, case, machine)
            key = label, frozenset(kernels)
            if kernels and key not in seen:
                seen.add(key)
                found.append((label, op, case, kernels))
    return found


def compare_cases(machines: dict[str, Device], found: dict[str, Cases]) -> None:
    print(f"\n| planned for | cases | kernels | modules | equal: {' | equal: '.join(reorder.ORDERS)} |")
    print("|---|---:|---:|---:|" + "---:|" * len(reorder.ORDERS))
    for name, cases in found.items():
        orders = {order: reorder.in_order(machines[name], order) for order in reorder.ORDERS}
        equal: Counter[str] = Counter()
        for label, op, case, _ in cases:
            want = reorder.results(op, case, machines[name])
            for order, device in orders.items():
                same = reorder.results(op, case, device) == want
                equal[order] += same
                if not same:
                    print(f"{label} planned for {name}: {order} differs", file=sys.stderr)
        modules = set().union(*(kernels for *_, kernels in cases))
        counts = " | ".join(str(equal[order]) for order in orders)
        row = f"| {name} | {len(cases)} | {len({k for k, _ in modules})} | {len(modules)} | {counts} |"
        print(row, flush=True)


def compare_goldens(machines: dict[str, Device]) -> None:
    from test_goldens import Golden

    print("\n| fixture | planned for | calls | equal in every order |\n|---|---|---:|---:|")
    for path in sorted(FIXTURES.glob("*.pte")):
        if "n_calls" not in np.load(path.with_suffix(".npz")):
            continue  # not a language model
        for name, machine in machines.items():
            calls = Golden(path.stem).calls
            models = [load(path, device=d) for d in (machine, *(reorder.in_order(machine, o) for o in reorder.ORDERS))]
            equal = sum(len({m.run([tokens, pos])[0].tobytes() for m in models}) == 1 for tokens, pos, _ in calls)
            print(f"| {path.stem} | {name} | {len(calls)} | {equal} |", flush=True)


def remove_barriers(machines: dict[str, Device], found: dict[str, Cases], most: int = 40) -> None:
    """For each barrier, cases that run the kernel until one notices; at most this many on each machine."""
    users: dict[str, list[tuple[str, Op, Case]]] = defaultdict(list)
    consts: dict[str, set[Consts]] = defaultdict(set)
    for name, cases in found.items():
        for _, op, case, kernels in cases:
            for kernel, values in kernels:
                consts[kernel].add(values)
            for kernel in {k for k, _ in kernels}:
                if sum(m == name for m, *_ in users[kernel]) < most:
                    users[kernel].append((name, op, case))
    print("\n| kernel | barriers | noticed in the usual order | only in another order | not noticed |")
    print("|---|---:|---:|---:|---|")
    for kernel in sorted(users):
        if not (barriers := reorder.barriers(kernel, consts[kernel])):
            continue
        wanted = [reorder.results(op, case, machines[name]) for name, op, case in users[kernel]]
        notices: Counter[str] = Counter()
        missed = []
        for which in barriers:
            drop = reorder.without_barrier(kernel, which)
            for order in ("", *reorder.ORDERS):
                broken = {
                    n: reorder.in_order(m, order, drop) if order else reorder.changed(m, drop)
                    for n, m in machines.items()
                }
                if any(
                    reorder.results(op, case, broken[name]) != want
                    for (name, op, case), want in zip(users[kernel], wanted, strict=True)
                ):
                    notices["other" if order else "usual"] += 1
                    break
            else:
                missed.append(f"no. {which + 1}")
        counts = f"{len(barriers)} | {notices['usual']} | {notices['other']} | {', '.join(missed)}"
        print(f"| {kernel} | {counts} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*")
    for flag in ("cases", "goldens", "barriers"):
        parser.add_argument(f"--{flag}", action="store_true")
    args = parser.parse_args()
    everything = not (args.cases or args.goldens or args.barriers)
    machines = reorder.machines(open_device())
    seen: set[tuple[str, frozenset[tuple[str, Consts]]]] = set()
    found = {name: cases_of(m, args.parts, seen) for name, m in machines.items()}
    if args.barriers or everything:
        remove_barriers(machines, found)
    if args.goldens or everything:
        compare_goldens(machines)
    if args.cases or everything:
        compare_cases(machines, found)


if __name__ == "__main__":
    main()
