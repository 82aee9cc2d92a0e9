"""`webgpu-bench load`: how long files take to load and how much memory they need, by file size.

Every load is a new process, because peak memory is a figure of a whole process. A round loads every file once, so that
a machine that is slower for a while slows down all files.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Any

import numpy as np

from .. import errors
from ..console import outfile
from ..console.progress import Progress
from ..formats import pte
from ..runtime.open import open_device, open_model, open_program
from ..runtime.support import check_method
from . import host
from .rows import facts, summary
from .tables import Row, sinks
from .trials import LengthLimits
from .views import LOAD

_WATCHED = "watched"  # argument of a process that ends with its parent


def once(path: str, device: str | None) -> dict[str, Any]:
    """Load a file in this process: times in milliseconds, and peak memory."""
    opened = open_device(device)
    base = host.peak_rss()
    start = time.perf_counter()
    program = pte.load(path)
    model = open_model(program, opened)
    opened.wait()
    loaded = time.perf_counter()
    times = {"load_ms": (loaded - start) * 1e3, "first_ms": None, "load_rss_bytes": host.peak_rss()}
    if len(model.inputs) == 2:  # a language model: its first token also compiles the kernels
        count = LengthLimits.of(program, model.method).largest if model.inputs[0].dynamism == "static" else 1
        model.run([np.zeros((1, count), np.int64), np.zeros(1, np.int64)])
        times["first_ms"] = (time.perf_counter() - loaded) * 1e3
    return {**times, "base_rss_bytes": base, "peak_rss_bytes": host.peak_rss(), "gpu_bytes": opened.allocated}


def _child(path: str, device: str | None, timeout: float) -> dict[str, Any]:
    """Load a file in a new process, which ends with us or after `timeout` seconds at the latest."""
    command = [sys.executable, "-m", __name__, json.dumps([path, device]), _WATCHED]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err) as child:
            try:
                code = child.wait(timeout)
            except subprocess.TimeoutExpired:
                raise errors.DeviceError(f"the load did not end within {timeout:g} s ({path})") from None
            finally:
                child.kill()
        results, messages = (_lines(file) for file in (out, err))
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        raise errors.DeviceError(f"the load was ended by {name} ({path})")
    if code or not results:
        kinds = (errors.FormatError, errors.UnsupportedError, errors.ShapeError, errors.DeviceError)
        kind = next((k for k in kinds if k.exit_code == code), errors.RunError)
        raise kind(messages[-1] if messages else f"the load failed ({path})")
    return dict(json.loads(results[-1]))


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return file.read().decode("utf-8", "replace").splitlines()


def _end_with_parent() -> None:
    """Wait until the other end of stdin is closed, which happens when the parent ends, however it ends."""
    while os.read(0, 1):
        pass
    os._exit(1)


def run_load(
    *,
    models: tuple[str, ...],
    repeat: int,
    device: str | None,
    timeout: float,
    report: str | None,
    form: str | None,
    out: str | None,
    quiet: bool,
) -> int:
    """Measure every file, one row each. No file is loaded if one of them cannot run."""
    programs = [open_program(path) for path in models or (None,)]
    for target, flag in ((out, "--out"), (report, "--report")):
        if target:
            outfile.check_target(target, [p.path for p in programs], flag)
    for program in programs:
        check_method(program.method())
    programs.sort(key=lambda program: program.file_size)
    opened = open_device(device)  # tunes the adapter, so that the loads find the result on disk
    shared = [facts(opened, program) for program in programs]
    loads: list[list[dict[str, Any]]] = [[] for _ in programs]
    rows: list[Row] = []
    with Progress(quiet=quiet, manual=True) as progress:
        try:
            with sinks(form, out, LOAD, [{**row, "test": _label(row)} for row in shared]) as table:
                for number in range(repeat):
                    for i, program in enumerate(programs):
                        progress(f"round {number + 1}", i, len(programs))
                        loads[i].append(_child(str(program.path), device, timeout))
                        if not number or i == len(programs) - 1:
                            progress.close()
                            rows = [_row(m, s) for m, s in zip(loads, shared, strict=True) if m]
                            table.show(rows)
        finally:
            if report and rows:
                from .page import load_page

                outfile.write(report, load_page(rows).encode())
    return 0


def _label(row: Row) -> str:
    return f"load {row['model']['file']}"


def _row(loads: list[dict[str, Any]], shared: Row) -> Row:
    firsts = [m["first_ms"] for m in loads if m["first_ms"] is not None]
    memory = {name: max(m[name] or 0 for m in loads) for name in ("load_rss_bytes", "peak_rss_bytes", "gpu_bytes")}
    row = {
        "kind": "load",
        "test": _label(shared),
        "unit": "ms",
        "better": "lower",
        **summary([m["load_ms"] for m in loads]),
        "first_ms": statistics.median(firsts) if firsts else None,
        "first_samples_ms": firsts,
        **memory,
        "base_rss_bytes": min(m["base_rss_bytes"] or 0 for m in loads),
    }
    return {**{k: shared[k] for k in ("schema", "time", "model")}, **row, **shared}


if __name__ == "__main__":
    if sys.argv[2:] == [_WATCHED]:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        print(json.dumps(once(*json.loads(sys.argv[1]))))
    except errors.RunError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
