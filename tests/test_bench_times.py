"""Times between deliveries of tokens as webgpu-bench reports them, beside those on a stopwatch in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np

from webgpu_run.assets import bundled_model

from helpers.command import HERE
from helpers.language import environment

TOKENS = 96


def test_times_between_deliveries_are_those_on_a_stopwatch_outside() -> None:
    command = [sys.executable, str(HERE / "helpers" / "stopwatch.py"), str(bundled_model()), str(TOKENS)]
    arrivals: list[int] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as child:
        assert child.stdout
        assert child.stderr
        while seen := os.read(child.stdout.fileno(), 1):
            arrivals += [time.perf_counter_ns()] * len(seen)
        record = json.loads(child.stderr.read().splitlines()[-1])
    assert len(arrivals) == 2 * TOKENS
    counts = [count for _, count in record["deliveries"]]
    assert sum(counts) == TOKENS
    assert max(counts) > 1
    # The first delivery also has the time before the decode; the others are from the first token of one to that of
    # the next.
    firsts = TOKENS + np.cumsum([0, *counts[:-1]])
    outside = np.diff(np.array(arrivals)[firsts]) / 1e6
    inside = np.array([ns for ns, _ in record["deliveries"]])[1:] / 1e6
    assert abs(outside.sum() - inside.sum()) < 0.1 * inside.sum() + 5
    assert np.median(np.abs(outside - inside) / inside) < 0.2
    shares = np.array(record["shares"]) / 1e6
    assert shares.max() < 0.5 * outside.max()  # a share of a submission is not what a reader waits for
