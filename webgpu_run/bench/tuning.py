"""`webgpu-bench tune`: the candidates for this adapter's kernels, their times, and the choice."""

from __future__ import annotations

import statistics

from ..console import outfile
from ..console.progress import Progress
from ..gpu import tune
from ..runtime.open import open_device
from .rows import facts, summary
from .tables import Row, View, number, sinks

TUNE = View(
    lambda row: {
        "device": row["device"]["name"].partition(" (")[0],
        "profile": row["profile"],
        "test": row["test"],
        "ms": f"{number(row['mean'])} ± {number(row['sd'])}",
        "to the first": f"{row['ratio']:.3f}" if row["ratio"] else "–",
        "verdict": "chosen" if row["chosen"] else "",
    },
    ("device.name", "device.backend", "device.driver", "profile", "test", "mean", "sd", "ratio", "chosen", "samples"),
)


def run_tune(*, device: str | None, form: str | None, out: str | None, quiet: bool) -> int:
    """Measure all candidates and remember the fastest; one row for each candidate and shape."""
    if out:
        outfile.check_target(out, (), "--out")
    opened = open_device(device, tune=False)
    shared = facts(opened)
    with Progress(quiet=quiet, manual=True) as progress:
        progress("kernels", 0, 1)
        times = tune.measure(opened, tune.candidates(opened))
    best = tune.decide(opened, times)
    if best is not None:
        tune.remember(opened, best, times)
    columns = list(enumerate(tune.columns(opened)))
    bases = [_base(times, column) for column, _ in columns]
    rows: list[Row] = [
        {
            **{k: shared[k] for k in ("schema", "time")},
            "kind": "tune",
            "profile": name,
            "test": what,
            "unit": "ms",
            "better": "lower",
            **summary(samples),
            "ratio": round(statistics.median(samples) / bases[column], 4) if bases[column] else None,
            "chosen": best is not None and tune.serves(opened, name, best, column),
            **shared,
        }
        for name, measured in times.items()
        for (column, what), samples in zip(columns, measured, strict=False)  # a candidate that failed has fewer
    ]
    with sinks(form, out, TUNE, rows) as table:
        table.show(rows)
    return 0


def _base(times: tune.Times, column: int) -> float:
    """The time of the first candidate that has one for this column, 0 if none has."""
    medians = (statistics.median(t[column]) for t in times.values() if column < len(t))
    return next((ms for ms in medians if ms > 0), 0.0)
