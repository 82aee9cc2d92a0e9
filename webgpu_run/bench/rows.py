"""Benchmark rows as plain data: JSON has all of it, and tables show some of it."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Mapping
from typing import Any

from ..formats.pte import Program
from ..gpu.device import Device
from ..gpu.roofline import Roofline
from . import host
from .energy import whole
from .samples import Measured
from .stats import Summary, outliers
from .tables import SCHEMA, Row

GPU_NOTE = "the median of separate repetitions with one timestamped pass per dispatch; wall times have no timestamps"
SLOW_FIRST = 1.5  # times the median of the other runs
ATTENTION = "sdpa"  # is in the name of every kernel that reads the KV cache


def facts(device: Device, program: Program | None = None) -> Row:
    """The fields that all rows of a run share."""
    return {
        "schema": SCHEMA,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **({"model": host.model(program)} if program else {}),
        "device": host.adapter(device),
        "machine": host.machine(),
        "versions": host.versions(),
    }


def summary(samples: list[float]) -> Row:
    """Samples and their statistics."""
    s = Summary.of(samples)
    interval = None if s.low is None else [_round(s.low), _round(s.high)]
    return {
        "samples": [_round(x) for x in samples],
        "mean": _round(s.mean),
        "sd": _round(s.sd),
        "median": _round(s.median),
        "p90": _round(s.p90),
        "ci95": interval,
    }


def model_row(
    measured: Measured, shared: Row, settings: Mapping[str, Any], roof: Roofline | None, gpu_bytes: int
) -> Row:
    """The row of a trial of a model with `gpu_bytes` on the device."""
    trial, rates = measured.trial, measured.rates
    row = {
        "kind": "model",
        "test": trial.label,
        "phase": trial.phase,
        "tokens": trial.tokens,
        "generate": trial.generate,
        "depth": trial.depth,
        "batch": trial.batch,
        "per_sequence": _round(statistics.fmean(rates) / trial.batch) if trial.batch else None,
        "unit": "t/s",
        "better": "higher",
        **summary(rates),
        "latency_ms": _latency(measured.latencies),
        "wall_ms": [_round(s.wall / 1e6) for s in measured.samples],
        "host_ms": [_round(s.host / 1e6) for s in measured.samples],
        "wait_ms": [_round(s.wait / 1e6) for s in measured.samples],
        "deliveries": [[[_round(ns / 1e6), n] for ns, n in s.deliveries] for s in measured.samples]
        if trial.decode
        else None,
        "tokens_per_delivery": _round(measured.per_delivery) if measured.per_delivery else None,
        "token_ms": [[_round(ns / 1e6) for ns in s.shares] for s in measured.samples] if trial.decode else None,
        "step_ms": _latency(measured.steps) if trial.decode else None,
        "host_ms_per": _round(measured.per("host")),
        "gpu_ms_per": _round(measured.gpu[0] / 1e6) if measured.gpu else None,
        "ttft_ms": _round(statistics.median(measured.ttft_ns) / 1e6) if measured.ttft_ns else None,
        "ttft_samples_ms": [_round(ns / 1e6) for ns in measured.ttft_ns],
        "first_run_ms": _round(measured.first_ns / 1e6),
        "compile_ms": _round(measured.compile_ms),
        "gpu_samples_ms": [_round(ns / 1e6) for ns in measured.gpu_ns],
        "gpu_note": GPU_NOTE if measured.gpu_ns else "not timed on the GPU",
        "ops": _ops(measured),
        "attention_ms_per": _attention(measured),
        "dispatches": measured.dispatches,
        "calls": measured.calls,
        "roofline": _share(measured, roof),
        "gpu_bytes": gpu_bytes,
        "peak_rss_bytes": host.peak_rss(),
        "energy": _energy(measured),
        "warnings": warnings(trial.label, [s.wall for s in measured.samples]),
        "settings": {"repeat": len(measured.samples), **settings},
    }
    return {**{k: shared[k] for k in ("schema", "time", "model")}, **row, **shared, **_measured(roof)}


def _measured(roof: Roofline | None) -> Row:
    return {"adapter_roofline": roof.as_dict()} if roof else {}


def _ops(measured: Measured) -> list[Row]:
    """Ops of one prefill or one token, the slowest first."""
    return [
        {
            "op": op.op,
            "kernel": op.kernel,
            "route": op.route,
            "count": op.count,
            "gpu_us": _round(op.gpu_ns / 1e3),
            "bytes": op.nbytes,
            "flops": op.flops,
        }
        for op in sorted(measured.gpu[1] if measured.gpu else [], key=lambda op: -op.gpu_ns)
    ]


def _attention(measured: Measured) -> float | None:
    """Milliseconds of the kernels that read the KV cache, per prefill or token; None if there are no such kernels."""
    attention_ns = [op.gpu_ns for op in (measured.gpu[1] if measured.gpu else []) if ATTENTION in op.kernel]
    return _round(sum(attention_ns) / 1e6) if attention_ns else None


def _latency(samples: list[float]) -> Row:
    s = Summary.of(samples)
    return {"mean": _round(s.mean), "median": _round(s.median), "p90": _round(s.p90), "max": _round(s.most)}


def _energy(measured: Measured) -> Row | None:
    """Joules of each round and per token, as far as the machine reports them in all rounds."""
    rounds = measured.joules
    names = [name for name in (rounds[0] if rounds else ()) if all(name in one for one in rounds)]
    joules = [whole({name: one[name] for name in names}) for one in rounds]
    totals = [j for j in joules if j is not None]
    if not totals:
        return None
    tokens = measured.trial.tokens + measured.trial.generate
    return {
        "by": names,
        "joules": [_round(j) for j in totals],
        "joules_by": {name: [_round(one[name]) for one in rounds] for name in names},
        "j_per_token": _round(sum(totals) / len(totals) / tokens),
    }


def _share(measured: Measured, roof: Roofline | None) -> Row | None:
    """The least time that the work can take on this adapter, as a share of the wall time and of the GPU time."""
    if roof is None or not any(measured.works):
        return None
    ideal = roof.ideal_ns(measured.works, measured.working_set)
    rate, way = roof.memory(measured.working_set)
    gpu_ns = measured.gpu[0] if measured.gpu else 0
    return {
        "memory_gb_s": _round(rate),
        "memory_by": way,
        "f32_gflop_s": _round(roof.f32),
        "bytes": sum(nbytes for nbytes, _ in measured.works),
        "flops": sum(flops for _, flops in measured.works),
        "ideal_ms": _round(ideal / 1e6),
        "share": _round(ideal / 1e6 / measured.per("wall")),
        "gpu_share": _round(ideal / gpu_ns) if gpu_ns else None,
    }


def warnings(label: str, walls: list[int]) -> list[str]:
    """Reasons to doubt the samples, if any."""
    far = outliers([float(w) for w in walls])
    rest = statistics.median(walls[1:]) if len(walls) > 1 else walls[0]
    if (0 in far or len(walls) == 2) and walls[0] > SLOW_FIRST * rest:
        return [f"{label}: the first run took {walls[0] / rest:.1f} times as long as the others; warm up more (-w)"]
    if far:
        what = "1 run is an outlier" if len(far) == 1 else f"{len(far)} runs are outliers"
        return [f"{label}: {what} of {len(walls)}; is the machine busy with something else?"]
    return []


def _round(x: float | None) -> float:
    """Six significant digits; more would only make files longer."""
    return float(f"{x or 0.0:.6g}")
