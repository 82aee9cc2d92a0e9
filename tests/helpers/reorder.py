"""Runs kernels with their workgroups and invocations in another order, which WebGPU permits at any time.

A software adapter runs them in one fixed order, so a missing barrier or two workgroups that write the same element may
go unnoticed there. Here the ids are remapped in the text of the kernel; the results must not change in any bit.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from webgpu_run.errors import RunError
from webgpu_run.gpu.device import Device
from webgpu_run.graph.planner import Engine
from webgpu_run.ops.limits import GPU, PLAIN, SHORT, SOFTWARE, WIDE
from webgpu_run.ops.spec import Case, Op
from webgpu_run.ops.wgsl import Consts, Kernel, load
from webgpu_run.ops.wgsl_types import without_comments

from helpers import opcheck
from helpers.cases import all_cases
from helpers.graphs import contents, fill, run, with_limits

Change = Callable[[Kernel], Kernel]

# Formulas of a permutation of 0..n-1. A prime that does not divide n, times i: i stays below 2^32 / 7919 in the tests.
ORDERS: Mapping[str, str] = {
    "reversed": "n - 1u - i",
    "random 1": "(i * select(5003u, 7919u, n % 5003u == 0u) + 701u) % n",
    "random 2": "(i * select(6997u, 7907u, n % 6997u == 0u) + 38u) % n",
}


def reordered(text: str, formula: str) -> str:
    """The module with workgroup ids and invocation indices permuted.

    Where lanes exchange values in a subgroup, groups of eight neighbours stay together.
    """
    found = re.search(r"@workgroup_size\((?P<size>[^)]*)\)\s*fn main\((?P<args>.*?)\)\s*\{", text, re.S)
    assert found, "no entry point"
    names = {m[1]: m[2] for m in re.finditer(r"@builtin\((\w+)\)\s*(\w+)", found["args"])}
    args = re.sub(r"(@builtin\(\w+\)\s*)(\w+)", r"\1\2_in", found["args"]).rstrip().rstrip(",")
    body = []
    if wid := names.get("workgroup_id"):
        count = names.get("num_workgroups", "count")
        if "num_workgroups" not in names:
            args += ", @builtin(num_workgroups) count_in: vec3<u32>"
        body.append(f"let {wid} = reordered_group({wid}_in, {count}_in);")
    if "num_workgroups" in names:
        body.append(f"let {names['num_workgroups']} = {names['num_workgroups']}_in;")
    if lane := names.get("local_invocation_index"):
        together = 8 if "subgroup" in without_comments(text) else 1
        size = f"(u32({found['size']}) / {together}u)"
        body.append(f"let {lane} = reordered({lane}_in / {together}u, {size}) * {together}u + {lane}_in % {together}u;")
    functions = (
        f"\nfn reordered(i: u32, n: u32) -> u32 {{ return {formula}; }}\n"
        "fn reordered_group(id: vec3<u32>, n: vec3<u32>) -> vec3<u32> {\n"
        "  let i = reordered((id.z * n.y + id.y) * n.x + id.x, n.x * n.y * n.z);\n"
        "  return vec3(i % n.x, i / n.x % n.y, i / (n.x * n.y));\n}\n"
    )
    start = f"@workgroup_size({found['size']})\nfn main({args}) {{\n  {' '.join(body)}"
    return text[: found.start()] + start + text[found.end() :] + functions


@dataclasses.dataclass(frozen=True, slots=True)
class Reordered(Kernel):
    """A kernel that runs in another order."""

    formula: str

    def text(self, consts: Consts) -> str:
        return reordered(Kernel.text(self, consts), self.formula)


class ChangedDevice(Device):
    """A device that compiles other kernels than it was asked for."""

    change: Change

    def pipeline(self, kernel: Kernel, consts: Consts) -> object:
        return super().pipeline(self.change(kernel), consts)


def changed(device: Device, change: Change) -> Device:
    other = copy.copy(device)
    other.__class__ = ChangedDevice
    other.change = change  # type: ignore[attr-defined]
    other._pipelines = {}
    return other


def in_order(device: Device, order: str, first: Change = lambda kernel: kernel) -> Device:
    """The device with every kernel, after `first` has changed it, in one of ORDERS."""
    return changed(device, lambda kernel: Reordered(*dataclasses.astuple(first(kernel))[:3], ORDERS[order]))


def without_barrier(name: str, which: int) -> Change:
    """Drops one barrier, counted in the source, of the kernel with this name."""

    def drop(kernel: Kernel) -> Kernel:
        parts = kernel.source.split("workgroupBarrier();")
        source = "workgroupBarrier();".join(parts[: which + 1]) + "workgroupBarrier();".join(parts[which + 1 :])
        return dataclasses.replace(kernel, source=source) if kernel.name == name else kernel

    return drop


def machines(device: Device) -> dict[str, Device]:
    """The profiles, on this device."""
    common = {"max_invocations": 256, "max_workgroup_bytes": 16384, "uniform_align": 256}
    found = {
        "gpu": with_limits(device, profile=GPU, software=False, **common),
        "gpu, no subgroups": with_limits(device, profile=GPU, software=False, subgroups=False, **common),
        "software, no subgroups": with_limits(device, profile=PLAIN, subgroups=False),
    }
    if device.limits.subgroups:
        found["software"] = with_limits(device, profile=SOFTWARE)
        found["software, short code"] = with_limits(device, profile=SHORT)
        found["software, 16 lanes"] = with_limits(device, profile=WIDE)
    return found


def kernels_of(op: Op, case: Case, device: Device) -> set[tuple[str, Consts]]:
    """Kernels with constants in all plans of the case; none if such a machine refuses it."""
    one = opcheck.build(op, case)
    try:
        engine = Engine(one.builder.graph(), device.limits)
    except RunError:
        return set()
    found = set()
    for live in opcheck.lives(case):
        engine.resize(one.inputs(opcheck.arrays(op, case, live)))
        found |= {(step.kernel, step.consts) for plan in engine.plans for step in plan.steps}
    return found


def results(op: Op, case: Case, device: Device) -> list[bytes]:
    """The memory of outputs and caches, live or not, after the case ran at its largest shape and at each live one."""
    one = opcheck.build(op, case)
    runner = one.builder.runner(device)
    state = opcheck._state(runner)
    found = []
    for live in opcheck.lives(case):
        opcheck._restore(runner, state)
        fill(runner)
        run(runner, one.inputs(opcheck.arrays(op, case, live)))
        found += [contents(runner, v).tobytes() for v in (*runner.graph.output_ids, *state)]
    return found


def covering(device: Device) -> Iterator[tuple[Device, str, Op, Case]]:
    """(machine, label, op, case): for every kernel the first case, of the first machine, that runs it."""
    seen: set[str] = set()
    for name, machine in machines(device).items():
        for label, _, op, case in all_cases():
            kernels = {kernel for kernel, _ in kernels_of(op, case, machine)}
            if kernels - seen:
                seen |= kernels
                yield machine, f"{label} planned for {name}", op, case


def barriers(name: str, consts: Iterable[Consts]) -> list[int]:
    """The barriers of a kernel, counted in the source, that are in the module of any of these constants."""
    kernel = load(name)
    count = kernel.source.count("workgroupBarrier();")
    return [i for i in range(count) if any(without_barrier(name, i)(kernel).text(c) != kernel.text(c) for c in consts)]
