#!/usr/bin/env python3
"""This version beside an earlier one of this repository, taking turns on the same model: ratios from one run.

    python bench/against.py 29d9765 SmolLM2.pte --lens 16,64 --rounds 2

The earlier revision is checked out into a temporary worktree. Each turn is a process of its own that loads the model,
warms up with five tokens, then times one prefill a length and a few decode steps from numpy array to numpy array.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TURN = """
import json, sys, time
import numpy as np
from webgpu_run.model import load
path, lens, steps = sys.argv[1], [int(n) for n in sys.argv[2].split(",")], int(sys.argv[3])
model, rows = load(path), {}
def call(seq, pos):
    start = time.perf_counter()
    model.run([np.ones((1, seq), np.int64), np.asarray([pos])])
    return time.perf_counter() - start
call(5, 0)
for seq in lens:
    rows[f"pp{seq}"] = seq / call(seq, 0)
call(1, 2)
rows["tg"] = steps / sum(call(1, 3 + i) for i in range(steps))
print(json.dumps(rows))
"""


def turn(tree: Path, model: str, lens: str, steps: int) -> dict[str, float]:
    """Tokens a second of each test, by the code in `tree`."""
    command = [sys.executable, "-c", TURN, model, lens, str(steps)]
    done = subprocess.run(command, cwd=tree, env={"PYTHONPATH": str(tree)}, capture_output=True, text=True, check=True)
    rows: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return rows


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("revision", help="the earlier version: anything git understands")
    ap.add_argument("model", type=Path)
    ap.add_argument("--lens", default="16,64", help="prefill lengths (default: 16,64)")
    ap.add_argument("--steps", type=int, default=4, help="decode steps a turn (default: 4)")
    ap.add_argument("--rounds", type=int, default=2, help="turns each (default: 2)")
    args = ap.parse_args()
    model = str(args.model.resolve())
    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder) / "earlier"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", str(earlier), args.revision], cwd=ROOT, check=True)
        try:
            turns = [
                (turn(earlier, model, args.lens, args.steps), turn(ROOT, model, args.lens, args.steps))
                for _ in range(args.rounds)
            ]
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(earlier)], cwd=ROOT, check=True)
    print(f"| test | {args.revision} t/s | now t/s | ratio, each turn |\n|---|---:|---:|---|")
    for name in turns[0][0]:
        before, after = ([t[i][name] for t in turns] for i in (0, 1))
        ratios = ", ".join(f"{b / a:.3g}×" for a, b in zip(before, after, strict=True))
        print(f"| {name} | {statistics.median(before):.2f} | {statistics.median(after):.1f} | {ratios} |")


if __name__ == "__main__":
    main()
