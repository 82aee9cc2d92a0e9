"""`webgpu-bench op`: single ops on their own test cases, at every live shape and on every route."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..console import outfile
from ..console.progress import Progress
from ..debug.single_op import args_of, arrays_of, is_constant, single, sized, varying, with_limits
from ..errors import RunError, UsageError
from ..gpu import roofline
from ..gpu.callstats import CallStats
from ..gpu.device import Device
from ..gpu.roofline import Roofline
from ..ops.limits import PROFILES, Profile
from ..ops.spec import Case, Op, load_all
from ..runtime.open import open_device
from ..runtime.runner import Runner
from ..shapes import Array, Dims
from .rows import facts, summary
from .tables import Row, View, number, sinks

Live = Mapping[str, Dims]
REPEAT = 20


def run_ops(
    *,
    names: tuple[str, ...],
    device: str | None,
    repeat: int | None,
    no_roofline: bool,
    form: str | None,
    out: str | None,
    quiet: bool,
) -> int:
    """One row for each case, live shape and route of these ops."""
    ops = find(names)
    if out:
        outfile.check_target(out, (), "--out")
    opened = open_device(device, tune=False)
    with Progress(quiet=quiet, manual=True) as progress:
        roof = None if no_roofline else roofline.measure(opened, progress)
        shared = facts(opened)
        with sinks(form, out, VIEW if roof else VIEW.without("% roof"), _expected(ops, shared)) as table:
            for i, op in enumerate(ops):
                progress("ops", i, len(ops))
                for row in rows(op, opened, repeat or REPEAT, roof):
                    progress.close()
                    table.row({**{k: shared[k] for k in ("schema", "time")}, **row, **shared})
    return 0


def find(names: Sequence[str]) -> list[Op]:
    """Ops by short or full name; `all` is every op that has cases."""
    registry = load_all()
    known = [op for _, op in sorted(registry.items()) if op.cases]
    if list(names) == ["all"]:
        return known
    chosen: dict[str, Op] = {}
    for name in names:
        matching = [op for op in known if name in (op.name, op.short)]
        if not matching:
            shorts = sorted({op.short for op in known})
            near = difflib.get_close_matches(name, shorts, 3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(shorts)}"
            raise UsageError(f"no op is called {name!r}", hint=hint)
        chosen |= {op.name: op for op in matching}
    return list(chosen.values())


def kinds(device: Device) -> Iterator[tuple[Profile, Device]]:
    """This adapter, also with the profiles of other kinds of adapters, which may choose other routes."""
    mine = device.limits.profile
    yield mine, device
    for profile in PROFILES:
        if profile != mine and (device.limits.subgroups or not profile.shuffle):
            yield profile, with_limits(device, profile=profile)


def rows(op: Op, device: Device, repeat: int, roof: Roofline | None) -> Iterator[Row]:
    for index, case in enumerate(op.cases):
        op = sized(op, case)
        for live in ({}, *case.live):
            seen: list[Any] = []
            failed, ran = None, False
            for profile, other in kinds(device):
                try:
                    runner, inputs, want = _built(op, case, live, other)
                except RunError as problem:  # some ops exist for one kind of adapter only
                    failed = failed or problem
                    continue
                ran = True
                outs = runner.call(inputs, CallStats())
                plan = runner.engine.plans[-1]
                if plan.steps in seen or not plan.steps:
                    continue
                seen.append(plan.steps)
                works = [step.work for step in plan.steps]
                times = [_once(runner, inputs) for _ in range(repeat)]
                yield _row(op, index, case, live, profile.name, plan.route, works, times, error(outs, want), roof)
            if failed and not ran:
                raise failed


def _built(op: Op, case: Case, live: Live, device: Device) -> tuple[Runner, list[Array], list[Array]]:
    """A runner of the op alone, inputs at a live shape, and the reference's outputs."""
    for positive in (False, True):  # some ops, such as sqrt, need positive inputs
        arrays = arrays_of(op, case, live)
        # caches are zero, as they are when a model is loaded
        arrays |= {name: np.zeros_like(arrays[name]) for name in op.named("cache") if name in arrays}
        if positive:
            arrays = {n: np.abs(a) + a.dtype.type(1) if a.dtype.kind == "f" else a for n, a in arrays.items()}
        want = op.reference(args_of(op, case, live), arrays) if op.reference else []
        outs = [want] if isinstance(want, np.ndarray) else list(want)
        if all(np.isfinite(w).all() for w in outs if w.dtype.kind == "f"):
            break
    constants = {name: a for name, a in arrays.items() if is_constant(op, name)}
    one = single(op, case, {**arrays_of(op, case), **constants})
    return one.builder.runner(device), one.inputs(arrays), outs


def _once(runner: Runner, inputs: Sequence[Array]) -> float:
    """Microseconds on the GPU; without timestamps, until the outputs are on the host."""
    stats = CallStats()
    start = time.perf_counter_ns()
    runner.call(inputs, stats, timed=True)
    wall = time.perf_counter_ns() - start
    return (stats.gpu_ns if runner.executor.device.timestamps else wall) / 1e3


def error(outs: Sequence[Array], want: Sequence[Array]) -> float | None:
    """The largest difference from the float64 reference, relative to the largest value of its row."""
    worst = None
    for out, ref in zip(outs, want, strict=False):
        a, b = np.asarray(out, np.float64), np.asarray(ref, np.float64)
        if not b.size or a.shape != b.shape:
            continue
        top = np.abs(b).reshape(-1, b.shape[-1] if b.ndim else 1).max(-1)
        off = np.abs(a - b).reshape(len(top), -1).max(-1) / np.maximum(top, 1e-30)
        worst = max(worst or 0.0, float(off.max()))
    return worst


def _row(
    op: Op,
    index: int,
    case: Case,
    live: Live,
    kind: str,
    route: str,
    works: Sequence[tuple[int, int]],
    times: list[float],
    off: float | None,
    roof: Roofline | None,
) -> Row:
    shape = _shape(op, case, live)
    timing = summary(times)
    nbytes, flops = (sum(w[i] for w in works) for i in (0, 1))
    us = timing["median"]
    share = roof.ideal_ns(works, nbytes) / 1e3 / us if roof and us and nbytes else None
    return {
        "kind": "op",
        "test": f"{op.name.removesuffix('.default')}#{index} {shape} {route} for {kind}",
        "op": op.name,
        "case": index,
        "dims": {name: list(dims) for name, dims in {**case.dims, **live}.items()},
        "shape": shape,
        "route": route,
        "for": kind,
        "unit": "µs",
        "better": "lower",
        **timing,
        "bytes": nbytes,
        "flops": flops,
        "gb_s": nbytes / us / 1e3 if us else None,
        "gflop_s": flops / us / 1e3 if us else None,
        "roofline_share": share,
        "error": off,
        "tolerance": case.tol,
    }


def _shape(op: Op, case: Case, live: Live) -> str:
    """Live dims that tell cases apart: the first input, other inputs that vary in their own way, and one weight."""
    changing = varying(op, case)
    dims = {**case.dims, **{n: d for n, d in live.items() if n not in changing}}
    names = [n for n in dims if n not in op.outs]
    moving = {n for other in case.live for n in other}
    given = [n for n in names if not is_constant(op, n)]
    first = {dims[n]: n for n in reversed(given)}  # show keys and values, which have one shape, once
    shown = [n for i, n in enumerate(given) if not i or (n in moving and first[dims[n]] == n)]
    shown += [n for n in names if is_constant(op, n)][:1]
    parts = [f"{n} {'×'.join(map(str, dims[n])) or 'scalar'}" for n in shown]
    given_attrs = args_of(op, case, live).attrs
    parts += [f"{n} {'×'.join(map(str, np.atleast_1d(given_attrs[n])))}" for n in sorted(changing)]
    return " · ".join(parts) or "scalar"


def _expected(ops: Sequence[Op], shared: Row) -> list[Row]:
    return [
        {**shared, "op": op.name, "case": i, "shape": _shape(op, case, live), "route": " " * 16, "for": " " * 14}
        for op in ops
        for i, case in enumerate(op.cases)
        for live in ({}, *case.live)
    ]


def _cells(row: Row) -> dict[str, str]:
    share, off = row.get("roofline_share"), row.get("error")
    return {
        "op": row["op"].removesuffix(".default"),
        "case": f"{row['case']}: {row['shape']}",
        "route": row["route"],
        "for": row["for"],
        "µs": number(row.get("median")) if "median" in row else " " * 7,
        "p90 µs": number(row.get("p90")),
        "GB/s": number(row.get("gb_s")) if row.get("bytes") else "–",
        "GFLOP/s": number(row.get("gflop_s")) if row.get("flops") else "–",
        "% roof": f"{share:.1%}" if share is not None else "–",
        "error": "–" if off is None else f"{off:.1e}" if off else "0",
    }


VIEW = View(
    _cells,
    (
        *("op", "case", "shape", "route", "for", "median", "mean", "sd", "p90", "samples", "bytes", "flops", "gb_s"),
        *("gflop_s", "roofline_share", "error", "tolerance", "device.name", "device.backend", "time", "schema"),
    ),
    ("p90 µs", "error", "GFLOP/s", "% roof", "GB/s"),
)
