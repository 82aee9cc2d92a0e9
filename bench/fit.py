#!/usr/bin/env python3
"""Prints what `--inspect` predicts for files, next to what they take: the table "Predicted and measured" of
docs/benchmarking.md.

    python bench/fit.py webgpu_run/bundled/model.pte SmolLM2.pte resnet18.pte

The roofline and the calls of a file are measured alternately, in rounds, and the best of either counts, because other
programs only make both slower.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from webgpu_run.bench.host import model as about
from webgpu_run.debug.fit import ROWS, fits
from webgpu_run.formats import pte
from webgpu_run.gpu import roofline
from webgpu_run.gpu.known import KnownAdapter
from webgpu_run.gpu.tune import open_tuned
from webgpu_run.runtime.model import Model

ROUNDS = 4
ENOUGH_S = 1.0  # calls of one kind and round last at least this long


def milliseconds(model: Model, rows: int) -> float:
    """The fastest of some calls with this many tokens, or at the largest shapes (0)."""
    inputs = [np.zeros(t.dims, np.int64 if t.dtype.startswith("int") else np.float32) for t in model.inputs]
    times = []
    end = time.perf_counter() + ENOUGH_S
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        if rows:
            model.finish(model.start([1] * rows, 0))
        else:
            model.run(inputs)
        times.append((time.perf_counter() - start) * 1e3)
    return min(times)


def main() -> None:
    device = open_tuned()
    print("| file | GPU memory, predicted | measured | call | predicted ms | measured ms | ratio |")
    print("|---|---:|---:|---|---:|---:|---:|")
    for path in sys.argv[1:]:
        program = pte.load(path)
        before = device.allocated
        model = Model(program, device)
        used = device.allocated - before
        language = len(model.inputs) == 2 and model.chooses
        kinds = ROWS if language else (0,)
        roof, took = roofline.measure(device), {rows: milliseconds(model, rows) for rows in kinds}
        for _ in range(ROUNDS - 1):
            roof = roof.or_better(roofline.measure(device))
            took = {rows: min(took[rows], milliseconds(model, rows)) for rows in kinds}
        a = device.adapter
        (fit,) = fits(
            program.method(), [KnownAdapter(a.name, a.backend, "", device.limits, device.max_buffer, roof)], "f32"
        )
        for speed in fit.speeds:
            call = "decode" if speed.rows == 1 else f"prefill {speed.rows}" if speed.rows else "largest shapes"
            name = f"{about(program)['name']} ({program.file_size / 1e6:.1f} MB)"
            memory = f"{fit.nbytes / 1e6:.1f} MB | {used / 1e6:.1f} MB"
            ms = took[speed.rows]
            print(f"| {name} | {memory} | {call} | {speed.ms:.2f} | {ms:.2f} | {ms / speed.ms:.2f} |", flush=True)
        del model


if __name__ == "__main__":
    main()
