"""The commands `webgpu-bench` and `webgpu-bench roofline`: from options to rows."""

from __future__ import annotations

import sys

from ..console import outfile
from ..console.progress import Progress
from ..console.terminal import plural
from ..errors import UsageError
from ..gpu import roofline
from ..gpu.device import Device
from ..runtime.open import open_device, open_model, open_program
from ..runtime.support import check_method
from .host import is_busy
from .rows import facts, model_row
from .tables import MODEL, Row, View, number, sinks, warn
from .trials import Bench, LengthLimits, Measured, rounds, trials

SEQ_LENS, DECODES = (1, 64, 512), (32,)


def run_model(
    *,
    model: str | None,
    data: tuple[str, ...],
    method: str | None,
    device: str | None,
    seq_lens: tuple[int, ...] | None,
    decode: tuple[int, ...] | None,
    depth: tuple[int, ...],
    repeat: int | None,
    budget: float,
    warmup: int,
    chunk: int | None,
    no_fuse: bool,
    no_tune: bool,
    kv: str,
    no_roofline: bool,
    report: str | None,
    form: str | None,
    out: str | None,
    quiet: bool,
) -> int:
    """Measure every trial, one row each. Nothing runs if one of the requested trials cannot."""
    program = open_program(model, data)
    for path, flag in ((out, "--out"), (report, "--report")):
        if path:
            outfile.check_target(path, [program.path, *data], flag)
    entry = program.method(method)
    check_method(entry)
    todo = trials(SEQ_LENS if seq_lens is None else seq_lens, DECODES if decode is None else decode, depth or (0,))
    if not todo:
        raise UsageError("nothing to measure: neither prompt lengths (-p) nor tokens to generate (-n)")
    asked = [t for t in todo if (decode if t.decode else seq_lens) is not None]
    reach = LengthLimits.of(program, entry)
    reach.check(todo, asked)
    if is_busy():
        warn("the machine is busy with something else: expect noise", quiet)
    opened = open_device(device, tune=not no_tune, only_model=program)
    reach = LengthLimits.of(program, entry, opened)
    reach.check(todo, asked)
    skipped = [t.label for t in todo if t not in asked and reach.problem(t)]
    todo = [t for t in todo if t.label not in skipped]
    if skipped:
        warn(f"left out {', '.join(skipped)}: the model holds {reach.capacity} tokens", quiet)
    with Progress(quiet=quiet, manual=True) as progress:
        loaded = open_model(program, opened, method=method, fuse=not no_fuse, kv=kv, progress=progress, is_checked=True)
        roof = None if no_roofline else roofline.measure(opened, progress)
        bench = Bench(loaded, reach, chunk=chunk)
        shared = facts(opened, program)
        settings = {"warmup": warmup, "chunk": bench.chunk, "fuse": not no_fuse, "method": entry.name}
        measured = [Measured(trial) for trial in todo]
        rows: list[Row] = []
        try:
            view = MODEL if roof else MODEL.without("% roof")
            with sinks(form, out, view, [{**shared, "test": t.label} for t in todo]) as table:
                for number in rounds(repeat, budget):
                    for i, trial in enumerate(measured):
                        progress(f"round {number + 1}", i, len(measured))
                        bench.run_round(trial, warmup)
                        if not number or i == len(measured) - 1:
                            progress.close()  # on a terminal, the bar would share a line with the table
                            rows = [model_row(m, shared, settings, roof) for m in measured if m.samples]
                            table.show(rows)
                if roof:  # again, because other programs may have disturbed the first measurement
                    roof = roof.or_better(roofline.measure(opened, progress))
                    progress.close()
                    rows = [model_row(m, shared, settings, roof) for m in measured]
                    table.show(rows)
        finally:
            if report and rows:
                from .page import page

                outfile.write(report, page(rows).encode())
            if rows and not quiet:
                ran = min(len(row["samples"]) for row in rows)
                print(f"{plural(ran, 'round')} of {plural(len(rows), 'test')}", file=sys.stderr, flush=True)
        for row in rows:
            for text in row["warnings"]:
                warn(text, quiet)
    return 0


def roofline_rows(device: Device, roof: roofline.Roofline) -> list[Row]:
    shared = facts(device)
    return [
        {
            **{k: shared[k] for k in ("schema", "time")},
            "kind": "roofline",
            "test": what,
            "unit": unit,
            "better": "lower" if unit == "µs" else "higher",
            "samples": [float(f"{value:.6g}")],
            "mean": float(f"{value:.6g}"),
            **shared,
        }
        for what, value, unit in roof.rows()
    ]


ROOFLINE = View(
    lambda row: {
        "device": row["device"]["name"].partition(" (")[0],
        "test": row["test"],
        "value": number(row["mean"]),
        "unit": row["unit"],
    },
    ("device.name", "device.backend", "device.driver", "test", "mean", "unit", "time", "schema"),
)


def run_roofline(*, device: str | None, form: str | None, out: str | None, quiet: bool) -> int:
    """Measure the adapter itself."""
    if out:
        outfile.check_target(out, (), "--out")
    opened = open_device(device, tune=False)
    with Progress(quiet=quiet, manual=True) as progress:
        rows = roofline_rows(opened, roofline.measure(opened, progress))
    with sinks(form, out, ROOFLINE, rows) as table:
        table.show(rows)
    return 0
