"""`webgpu-bench MODEL.pte --ray`: the sweep on every adapter of a cluster, in one table and one page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..bench.page import page
from ..bench.tables import Row, sinks, warn
from ..bench.views import MODEL
from ..cluster import Cluster, collect_files
from ..console import outfile
from ..console.progress import Progress
from ..errors import UsageError
from ..runtime.open import open_program
from ..runtime.support import check_method


def bench_on_cluster(address: str, options: dict[str, Any]) -> int:
    """Measure one model on all adapters of a Ray cluster; each row has the name of its node."""
    models, out, report, quiet = (options[name] for name in ("models", "out", "report", "quiet"))
    refused = [flag for flag in ("share", "text", "tokenizer") if options[flag]]
    if refused or len(models) > 1:
        what = f"--{refused[0]}" if refused else "more than one model"
        raise UsageError(f"{what} cannot be used with --ray")
    program = open_program(models[0] if models else None, options["data"])
    check_method(program.method(options["method"]))
    for path, flag in ((out, "--out"), (report, "--report")):
        if path:
            outfile.check_target(path, [program.path, *options["data"]], flag)
    rows: list[Row] = []
    with Progress(quiet=quiet, manual=True) as progress, Cluster(address) as cluster:
        files, given = collect_files(program)
        workers = cluster.start(files, None, options["device"])
        progress("workers", 0, workers)
        there = {**options, "models": (given["path"],), "data": tuple(given["data"])}
        there |= {"report": None, "form": "jsonl", "quiet": True}
        for done, (place, found) in enumerate(cluster.measure(there), 1):
            rows += [{"node": place.name, **row} for row in found]
            progress("workers", done, workers)
        progress.close()
    rows.sort(key=lambda row: row["node"])
    with sinks(options["form"], out, replace(MODEL, paths=("node", *MODEL.paths))) as table:
        table.show(rows)
    if report:
        outfile.write(report, page(rows).encode())
    for row in rows:
        for warning in row["warnings"]:
            warn(f"{row['node']}: {warning}", quiet)
    return 0
