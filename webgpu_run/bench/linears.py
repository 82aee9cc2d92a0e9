"""`webgpu-bench op --of MODEL.pte`: a model's linears, by shape and route, compared with the adapter's nearer limit.

Linears are timed inside the model, with timestamps. Alone, a weight would stay in the CPU's cache from one run to the
next, which never happens between two tokens.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..console import outfile
from ..console.progress import Progress
from ..errors import DeviceError, UsageError
from ..gpu import roofline
from ..gpu.callstats import CallStats
from ..gpu.roofline import Roofline
from ..graph.graph import Graph, Node
from ..graph.passes.last_row import LAST_ROW_LINEAR
from ..runtime.model import Model
from ..runtime.open import open_device, open_model, open_program
from ..shapes import Dims, prod, rows_of
from .host import is_busy
from .rows import ATTENTION, facts, summary
from .runner import Bench
from .tables import Row, View, number, sinks, warn
from .trials import LengthLimits, Trial

LENGTHS = (1, 4, 16, 64, 256)
REPEAT = 10


@dataclass(slots=True)
class LinearTimes:
    """Nodes of one shape and route, with the mean time of one node in microseconds, one sample per call."""

    op: str
    route: str
    m: int
    k: int
    n: int
    nbytes: int  # weights, input and output, each counted once
    count: int = 0
    us: list[float] = field(default_factory=list)

    @property
    def flops(self) -> int:
        return 2 * self.m * self.k * self.n


def is_linear(node: Node) -> bool:
    """Whether the node multiplies activations by weights."""
    return bool(_weights(node))


def _weights(node: Node) -> list[int]:
    return [v for name, v in node.tensors.items() if node.op.param(name).role == "weight"]


def linear_of(graph: Graph, node: Node, x: Dims, route: str) -> LinearTimes:
    """The node's shape, and the bytes that any kernel would have to move."""
    m, k = 1 if node.op.name == LAST_ROW_LINEAR else rows_of(x), x[-1]
    n = sum(graph.tensors[v].max_dims[0] for v in _weights(node))
    constant_nbytes = 0
    for name, v in node.tensors.items():
        tensor = graph.tensors[v]
        if node.op.param(name).role in ("weight", "scales", "bias", "sums"):
            constant_nbytes += prod(tensor.max_dims) * np.dtype(tensor.dtype).itemsize
    kind = "gemv" if m == 1 else "gemm"
    name = route if route.startswith(kind) else f"{kind}, {route}"
    return LinearTimes(node.op.short, name, m, k, n, constant_nbytes + 4 * m * (k + n))


def timed_linears(model: Model, stats: CallStats) -> Iterator[tuple[LinearTimes, int]]:
    """Every linear of the last call, with the GPU time of its dispatches in nanoseconds."""
    times = iter(stats.timed)
    for runner in model.runners:
        by_node: dict[int, int] = {}
        for command, d in zip(runner.executor.commands(), times, strict=False):
            if ATTENTION not in command.step.kernel:
                by_node[command.node] = by_node.get(command.node, 0) + d.gpu_ns
        for index, ns in by_node.items():
            node = runner.graph.nodes[index]
            if is_linear(node):
                x = runner.engine.live[node.tensors[node.op.named("activation")[0]]]
                yield linear_of(runner.graph, node, x, runner.engine.plans[index].route), ns


def run_model_ops(
    *,
    of: str,
    seq_lens: tuple[int, ...] | None,
    repeat: int | None,
    device: str | None,
    no_roofline: bool,
    form: str | None,
    out: str | None,
    quiet: bool,
) -> int:
    """Measure in rounds, each of which runs every length once; one row per shape and route."""
    program = open_program(of)
    if out:
        outfile.check_target(out, [program.path], "--out")
    reach = LengthLimits.of(program, program.method())
    lengths = seq_lens or (reach.largest if reach.exact else 1, *(n for n in LENGTHS if 1 < n <= reach.largest))
    for n in lengths:
        if n > reach.largest or (reach.exact and n != reach.largest):
            raise UsageError(
                f"-p {n}: the model takes {'exactly' if reach.exact else 'at most'} {reach.largest} tokens per call"
            )
    if is_busy():
        warn("the machine is busy with something else: times are too long, and limits may be too low", quiet)
    opened = open_device(device)
    if not opened.timestamps:
        raise DeviceError("this adapter has no timestamp queries, so ops inside a model cannot be timed")
    with Progress(quiet=quiet, manual=True) as progress:
        model = open_model(program, opened, progress=progress)
        bench, shared = Bench(model, reach), facts(opened, program)
        roof = None if no_roofline else roofline.measure(opened, progress)
        linears: dict[tuple[str, str, int, int, int], LinearTimes] = {}
        rows: list[Row] = []
        working_set, rounds = 0, (repeat or REPEAT) + 1  # the first round compiles
        with sinks(form, out, VIEW if roof else VIEW.without("nearer limit", "% of it")) as table:
            for i in range(rounds):
                for n in lengths:
                    progress("rounds", i, rounds)
                    stats = bench.timed(Trial(False, n))
                    working_set = max(working_set, sum(d.work[0] for d in stats.timed))
                    if i:
                        _add(linears, list(timed_linears(model, stats)))
                if roof:  # in the same rounds, so that other load meets both
                    roof = roofline.measure_again(opened, roof, working_set)
                if i:
                    progress.close()
                    rows = [_row(linear, shared, roof, working_set) for linear in sorted(linears.values(), key=_order)]
                    table.show(rows)
    if above := sum((row["roofline_share"] or 0) > 1 for row in rows):
        warn(f"{above} of {len(rows)} linears are above the limit: the machine was busy while it was measured", quiet)
    return 0


def _add(linears: dict[tuple[str, str, int, int, int], LinearTimes], timed: Sequence[tuple[LinearTimes, int]]) -> None:
    by_key: dict[tuple[str, str, int, int, int], list[int]] = {}
    for linear, ns in timed:
        key = (linear.op, linear.route, linear.m, linear.k, linear.n)
        linears.setdefault(key, linear)
        by_key.setdefault(key, []).append(ns)
    for key, times in by_key.items():
        linears[key].count = len(times)
        linears[key].us.append(statistics.fmean(times) / 1e3)


def _order(linear: LinearTimes) -> tuple[int, str, int, int]:
    return linear.m, linear.op, linear.k, linear.n


def _row(linear: LinearTimes, shared: Row, roof: Roofline | None, working_set: int) -> Row:
    timing = summary(linear.us)
    us, limit = timing["median"], None
    if roof:
        rate, way = roof.memory(working_set)
        memory, arithmetic = linear.nbytes / rate / 1e3, linear.flops / roof.f32 / 1e3
        nearer = ("memory", rate, "GB/s", way) if memory > arithmetic else ("FMA", roof.f32, "GFLOP/s", "f32")
        limit = {**dict(zip(("what", "rate", "unit", "by"), nearer, strict=True)), "least_us": max(memory, arithmetic)}
    shape = f"{linear.m}×{linear.k}×{linear.n}"
    row = {
        "kind": "linear",
        "test": f"{linear.op} {shape} {linear.route}",
        "op": linear.op,
        "shape": shape,
        "m": linear.m,
        "k": linear.k,
        "n": linear.n,
        "route": linear.route,
        "count": linear.count,
        "unit": "µs",
        "better": "lower",
        **timing,
        "bytes": linear.nbytes,
        "flops": linear.flops,
        "gb_s": linear.nbytes / us / 1e3,
        "gflop_s": linear.flops / us / 1e3,
        "limit": limit,
        "roofline_share": limit["least_us"] / us if limit else None,
    }
    return {**{k: shared[k] for k in ("schema", "time", "model")}, **row, **shared}


def _cells(row: Row) -> dict[str, str]:
    limit, share = row["limit"], row["roofline_share"]
    return {
        "op": row["op"],
        "M×K×N": row["shape"],
        "route": row["route"],
        "count": str(row["count"]),
        "µs": number(row["median"]),
        "p90 µs": number(row["p90"]),
        "GB/s": number(row["gb_s"]),
        "GFLOP/s": number(row["gflop_s"]),
        "nearer limit": f"{limit['what']} {number(limit['rate'])} {limit['unit']}" if limit else "–",
        "% of it": f"{share:.1%}" if share is not None else "–",
    }


VIEW = View(
    _cells,
    (
        *(
            "model.name",
            "op",
            "m",
            "k",
            "n",
            "route",
            "count",
            "median",
            "mean",
            "sd",
            "p90",
            "ci95",
            "samples",
            "bytes",
        ),
        *("flops", "gb_s", "gflop_s", "limit.what", "limit.rate", "limit.by", "roofline_share"),
        *("device.name", "device.backend", "time", "schema"),
    ),
    ("p90 µs", "count", "nearer limit", "GFLOP/s", "% of it", "GB/s"),
)
