"""Times between tokens as webgpu-bench reports them, beside those on a stopwatch in another process."""

from __future__ import annotations

import itertools
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


def test_times_between_tokens_are_those_on_a_stopwatch_outside() -> None:
    command = [sys.executable, str(HERE / "helpers" / "stopwatch.py"), str(bundled_model()), str(TOKENS)]
    arrivals: list[int] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as child:
        assert child.stdout
        assert child.stderr
        while seen := os.read(child.stdout.fileno(), 1):
            arrivals += [time.perf_counter_ns()] * len(seen)
        record = json.loads(child.stderr.read().splitlines()[-1])
    assert len(arrivals) == 2 * TOKENS
    # The first decode of the two makes the decoder put steps together; the first token of the second is its first.
    outside = np.diff(arrivals[TOKENS:]) / 1e6
    inside = np.array(record["gaps"][1][1:]) / 1e6
    shares = np.array(record["shares"][1][1:]) / 1e6
    assert abs(outside.sum() - inside.sum()) < 0.1 * inside.sum() + 5
    long = inside > 5  # waits that a reader may notice; the rest arrives at once
    assert long.any()
    assert np.median(np.abs(outside - inside)[long] / inside[long]) < 0.2
    assert shares.max() < 0.5 * outside.max()  # a share of a submission is not what a reader waits for
    assert sum(1 for a, b in itertools.pairwise(arrivals) if b - a < 1_000_000) > TOKENS // 2
