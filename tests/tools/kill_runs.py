#!/usr/bin/env python3
"""Kill commands at random moments while they write files, and see that no file is ever half written.

    python tests/tools/kill_runs.py [--count 200] [--seed 1]

`webgpu-bench --out` and `--report` and `webgpu-run --trace` get SIGTERM, SIGINT or SIGKILL, half of them just after a
temporary file has appeared. After every kill each output is missing or whole. After every few kills a run is left to
finish: then the folder has nothing but the outputs.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from helpers.killed_runs import SCENARIOS, SIGNALS, finish, kill  # noqa: E402

KILLS_PER_RUN = 10


def campaign(count: int, seed: int, folder: Path) -> tuple[Counter[str], list[str]]:
    """Numbers of kills by signal and of temporary files that they left; and what went wrong."""
    rng, counts, wrong = random.Random(seed), Counter[str](), list[str]()
    for i in range(count):
        scenario = SCENARIOS[(seed + i // KILLS_PER_RUN) % len(SCENARIOS)]
        place = folder / f"scenario{SCENARIOS.index(scenario)}"
        place.mkdir(exist_ok=True)
        number = SIGNALS[i % len(SIGNALS)]
        fault = kill(scenario, place, number, rng.uniform(*scenario.seconds), at_write=i % 2 == 1)
        counts[number.name] += 1
        counts["temporary files left by kills"] += len(list(place.glob(".*.tmp")))  # the next kill's run removes them
        if i % KILLS_PER_RUN == KILLS_PER_RUN - 1 or i == count - 1:
            counts["runs after kills"] += 1
            fault = fault or finish(scenario, place)
        if fault:
            wrong.append(f"kill {i} ({number.name}, {scenario.name} {scenario.flags[1]}): {fault}")
    return counts, wrong


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs, and their children, ignore it
    with tempfile.TemporaryDirectory() as folder:
        counts, wrong = campaign(options.count, options.seed, Path(folder))
    print(", ".join(f"{name} {n}" for name, n in counts.items()), f"; {len(wrong)} wrong")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
