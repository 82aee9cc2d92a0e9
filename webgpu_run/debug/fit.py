"""Whether a method fits the adapters of this machine, and how fast it can be there. No device is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import RunError, ShapeError
from ..formats.pte import Method
from ..gpu.known import KnownAdapter
from ..graph import budget
from ..graph.host_memory import available
from ..graph.lower import planned
from ..graph.passes.pick import PICK
from ..graph.planner import Engine
from ..shapes import Array, Dims

ROWS = (1, 64)  # a decode step, and a prompt


@dataclass(frozen=True, slots=True)
class Speed:
    """The least time of one call: bytes and operations at the adapter's best rates, and the costs of its dispatches.

    These are recording them on the host, starting them on the device, and the wait for the result.
    """

    rows: int  # tokens of a language model; 0 is a call of another model at its largest shapes
    ms: float
    per_second: float  # tokens, or calls
    nbytes: int
    flops: int
    dispatches: int


@dataclass(frozen=True, slots=True)
class Fit:
    """A method on one adapter."""

    adapter: str
    backend: str
    measured: str  # date of the roofline
    nbytes: int  # of GPU memory
    available: int | None  # None if the adapter does not say
    exceeded: tuple[str, ...]  # limits, with what exceeds them
    speeds: tuple[Speed, ...]


def fits(method: Method, adapters: Sequence[KnownAdapter], kv: str) -> tuple[Fit, ...]:
    """One result for each adapter; none for a method that cannot run anywhere."""
    out = []
    for adapter in adapters:
        limits = replace(adapter.limits, kv=kv)
        try:
            engines = [planned(delegate, limits) for delegate in method.delegates]
            exceeded = tuple(budget.problems(engines, limits, adapter.max_buffer))
            nbytes = sum(sum(budget.needed(engine, limits).values()) for engine in engines)
        except ShapeError as error:
            out.append(Fit(adapter.name, adapter.backend, adapter.date, 0, None, (str(error),), ()))
            continue
        except RunError:
            continue
        memory = available() if limits.software else None
        speeds = tuple(_speeds(engines, adapter)) if engines and not exceeded else ()
        out.append(Fit(adapter.name, adapter.backend, adapter.date, nbytes, memory, exceeded, speeds))
    return tuple(out)


def _speeds(engines: Sequence[Engine], adapter: KnownAdapter) -> list[Speed]:
    """Of a language model in one delegate, a step and a prompt; of any other model, one call at its largest shapes."""
    (first, *others) = engines
    if others or not any(node.op.name == PICK for node in first.graph.nodes):
        return [_speed(0, engines, adapter)]
    out = []
    for rows in ROWS:
        inputs = _inputs(first, rows)
        try:
            first.resize(inputs)
        except ShapeError:
            continue  # a model that takes another number of tokens per call
        out.append(_speed(inputs[0].shape[-1], engines, adapter))
    return out


def _inputs(engine: Engine, rows: int) -> list[Array]:
    """Inputs of a call with at most this many tokens, at position 0."""
    graph = engine.graph
    settings = {node.tensors["how"] for node in graph.nodes if node.op.name == PICK}

    def dims(v: int) -> Dims:
        *outer, last = graph.tensors[v].max_dims
        return (*outer, 0 if v in settings else min(last, rows))

    return [
        np.zeros(dims(v), "i4" if graph.tensors[v].dtype.startswith("int") else "f4")
        if v in graph.tensors
        else np.asarray(0)
        for v in graph.input_ids
    ]


def _speed(rows: int, engines: Sequence[Engine], adapter: KnownAdapter) -> Speed:
    works = [step.work for engine in engines for plan in engine.plans for step in plan.steps]
    nbytes, flops = (sum(work[i] for work in works) for i in (0, 1))
    roof = adapter.roofline
    costs_us = len(works) * (roof.encode_us + roof.dispatch_us) + (roof.readback_us if works else 0.0)
    ns = roof.ideal_ns(works, nbytes) + costs_us * 1e3
    return Speed(rows, ns / 1e6, max(rows, 1) / ns * 1e9 if ns else 0.0, nbytes, flops, len(works))
