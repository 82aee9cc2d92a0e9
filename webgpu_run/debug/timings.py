"""`--timings`: where the time of prefill and of decode goes, by op, by dispatch or by layer."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..console.columns import fitting
from ..errors import UsageError
from ..gpu.callstats import TimedDispatch
from ..runtime.calls import ModelCall
from ..runtime.model import Model
from .layers import layers_of
from .notebook import as_html, as_text

COLUMNS = ("phase", "calls", "label", "kernel", "dims", "grid", "count", "gpu_ns", "bytes", "flops")
BY = ("op", "dispatch", "layer")
DROPPED = ("grid", "GFLOP/s", "kernel · route", "GB/s", "n", "live shape")  # first to last, on a narrow terminal
SMALL_SHARE = 0.001  # rows below this share are summed up in one


@dataclass(slots=True)
class TimingRow:
    """Dispatches that are shown as one row, summed over all calls of a phase."""

    label: str
    kernel: str = ""
    dims: str = ""
    grid: str = ""
    count: int = 0
    gpu_ns: int = 0
    nbytes: int = 0
    flops: int = 0

    def add(self, d: TimedDispatch) -> None:
        self.count += 1
        self.gpu_ns += d.gpu_ns
        self.nbytes += d.work[0]
        self.flops += d.work[1]


@dataclass(slots=True)
class Phase:
    """Sums over all calls of prefill, or of decode."""

    name: str
    calls: int = 0
    tokens: int = 0
    wall_ns: int = 0
    host_ns: int = 0
    wait_ns: int = 0
    compile_ns: int = 0
    gpu_ns: int = 0
    rows: dict[Any, TimingRow] = field(default_factory=dict)


class Timings:
    """An observer that adds up calls by phase. A Python prompt shows the tables, a notebook with colours."""

    def __init__(self, model: Model, by: str = "op") -> None:
        if by not in BY:
            raise UsageError(f"timings by {by!r}, expected {', '.join(BY)}")
        self.by = by
        self.timestamps = model.device.timestamps
        self.phases: dict[str, Phase] = {}
        count = model.metadata.get("get_n_layers")
        graphs = [runner.graph for runner in model.runners]
        self._layers = layers_of(graphs[0], count if isinstance(count, int) else None) if len(graphs) == 1 else []
        self._nodes = [node.label for node in graphs[0].nodes] if len(graphs) == 1 else []

    def __call__(self, call: ModelCall) -> None:
        phase = self.phases.setdefault(call.phase, Phase(call.phase))
        phase.calls += 1
        phase.tokens += call.tokens
        phase.wall_ns += call.wall_ns
        phase.host_ns += call.stats.host_ns
        phase.wait_ns += call.stats.wait_ns
        phase.compile_ns += call.stats.compile_ns
        phase.gpu_ns += call.stats.gpu_ns
        for index, d in enumerate(call.stats.timed):
            key, row = self._row(index, d)
            phase.rows.setdefault(key, row).add(d)

    def _row(self, index: int, d: TimedDispatch) -> tuple[Any, TimingRow]:
        kernel = d.kernel if d.route in ("", d.kernel) else f"{d.kernel} · {d.route}"
        dims, grid = "×".join(map(str, d.live_dims)), "×".join(str(g) for g in d.grid if g != 1) or "1"
        if self.by == "layer":
            layer = self._layers[d.node] if d.node < len(self._layers) else -1
            name = f"layer {layer}" if layer >= 0 else f"outside · {d.op}"
            return (layer, name), TimingRow(name)
        if self.by == "dispatch":
            label = self._nodes[d.node] if d.node < len(self._nodes) else f"{d.op}#{d.node}"
            return (index, d.node, d.kernel, d.grid), TimingRow(f"{index} {label}", kernel, dims, grid)
        return (d.op, d.kernel, d.route, d.live_dims, d.grid), TimingRow(d.op, kernel, dims, grid)

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary per row of the tables, with sums over all calls of the phase."""
        return [
            {
                "phase": phase.name,
                "calls": phase.calls,
                "label": row.label,
                "kernel": row.kernel,
                "dims": row.dims,
                "grid": row.grid,
                "count": row.count,
                "gpu_ns": row.gpu_ns,
                "bytes": row.nbytes,
                "flops": row.flops,
            }
            for phase in self.phases.values()
            for row in phase.rows.values()
        ]

    def to_csv(self) -> str:
        """The same as CSV, with a line of names."""
        out = io.StringIO()
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.to_dicts())
        return out.getvalue()

    def __repr__(self) -> str:
        return as_text(as_tables(self, 110))

    def _repr_html_(self) -> str:
        return as_html(as_tables(self, 150))


def as_tables(timings: Timings, width: int) -> list[Any]:
    """One table per phase with its sum, or wall times if the adapter has no timestamps."""
    out: list[Any] = []
    if not timings.timestamps:
        out.append("this adapter has no timestamp queries: wall times only")
    for phase in timings.phases.values():
        if phase.rows:
            out.append(_table(phase, timings.by, width))
        out.append(_total(phase))
    return out


def _table(phase: Phase, by: str, width: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    per = f"{phase.calls} calls, mean of one" if phase.calls > 1 else "one call"
    tokens = f"{phase.tokens} tok, " if phase.name in ("prefill", "decode") else ""
    table = Table(title=Text(f"{phase.name}: {tokens}{per}"), title_justify="left", box=None, pad_edge=False)
    label = {"op": "op", "dispatch": "# op", "layer": "layer"}[by]
    heads = [label, "kernel · route", "live shape", "grid", "n", "µs", "share", "GB/s", "GFLOP/s"]
    styles = {"kernel · route": "green", "live shape": "cyan", "grid": "dim"}
    rows = [
        [
            row.label,
            row.kernel,
            row.dims,
            row.grid,
            f"{row.count / phase.calls:.1f}".removesuffix(".0"),
            f"{row.gpu_ns / phase.calls / 1e3:,.1f}",
            f"{row.gpu_ns / phase.gpu_ns if phase.gpu_ns else 0.0:.1%}",
            _rate(row.nbytes, row.gpu_ns),
            _rate(row.flops, row.gpu_ns),
        ]
        for row in _ordered(phase, by)
    ]
    if by == "layer":  # a layer has no kernel, shape and grid of its own
        heads, rows = [heads[0], *heads[4:]], [[row[0], *row[4:]] for row in rows]
    kept = fitting(heads, rows, width, DROPPED)
    if by != "layer" and 1 not in kept:  # without their kernels, rows of one op look alike: each gets a second line
        names = [row[1].partition(" · ") for row in rows]
        first = [f"{row[0]} · {route}\n  {kernel}" for row, (kernel, _, route) in zip(rows, names, strict=True)]
        heads, rows = [label, *heads[2:]], [[name, *row[2:]] for name, row in zip(first, rows, strict=True)]
        lines = [[line, *row[1:]] for row in rows for line in row[0].split("\n")]
        kept = fitting(heads, lines, width, DROPPED)
    for i in kept:
        is_text = heads[i] in (label, *styles)
        justify: Any = "left" if is_text else "right"
        table.add_column(heads[i], justify=justify, style=styles.get(heads[i], ""), no_wrap=i > 0, overflow="fold")
    for cells in rows:
        table.add_row(*(Text(cells[i]) for i in kept))
    return table


def _rate(amount: int, ns: int) -> str:
    return f"{amount / ns:.2f}" if ns and amount else "–"


def _ordered(phase: Phase, by: str) -> Sequence[TimingRow]:
    rows = list(phase.rows.values())
    if by != "op":
        return rows
    rows.sort(key=lambda row: -row.gpu_ns)
    big = [row for row in rows if row.gpu_ns >= SMALL_SHARE * phase.gpu_ns]
    small = rows[len(big) :]
    if len(small) < 2:
        return rows
    rest = TimingRow(f"{len(small)} more")
    for row in small:
        rest.count += row.count
        rest.gpu_ns += row.gpu_ns
        rest.nbytes += row.nbytes
        rest.flops += row.flops
    return [*big, rest]


def _total(phase: Phase) -> str:
    def ms(ns: int) -> str:
        return f"{ns / phase.calls / 1e6:,.2f} ms"

    wall, host = phase.wall_ns - phase.compile_ns, phase.host_ns
    gpu = f"GPU {ms(phase.gpu_ns)} · " if phase.rows else ""
    share = f" · GPU sum is {phase.gpu_ns / wall:.0%} of wall" if phase.rows and wall else ""
    return (
        f"{phase.name}, per call: {gpu}host {ms(host)} · waiting {ms(phase.wait_ns)} · wall {ms(wall)}{share}; "
        f"planning and compiling {ms(phase.compile_ns)}"
    )


def as_dict(timings: Timings) -> dict[str, Any]:
    """The same for `--stats json`: sums in nanoseconds."""
    return {
        phase.name: {
            "calls": phase.calls,
            "tokens": phase.tokens,
            "wall_ns": phase.wall_ns,
            "host_ns": phase.host_ns,
            "compile_ns": phase.compile_ns,
            "wait_ns": phase.wait_ns,
            "gpu_ns": phase.gpu_ns if phase.rows else None,
            "rows": [
                {key: value for key, value in row.items() if key not in ("phase", "calls")}
                for row in timings.to_dicts()
                if row["phase"] == phase.name
            ],
        }
        for phase in timings.phases.values()
    }
