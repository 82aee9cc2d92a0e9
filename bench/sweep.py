"""Makes the sweeps behind the figures in the README: every length at every depth, three times.

    python bench/sweep.py                        # the bundled model
    python bench/sweep.py model.pte              # another one
    python bench/sweep.py model.pte -- -p 64 -r 9    # options of webgpu-bench after --
    python bench/sweep.py --name smollm2 --only-compare    # of existing results

Rows go to bench/results/NAME.jsonl (NAME.2.jsonl and NAME.3.jsonl for the repeated sweeps) as they finish, and the
limits of the adapter go to roofline.jsonl. Then the sweeps are compared with each other: differences between them are
noise, which the printed intervals should cover.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
LENGTHS = ("-p", "1,16,64,256", "-n", "16", "-d", "0,256", "--budget", "120")


def bench(*args: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "webgpu_run.cli.bench", *map(str, args)], check=True)


def files(name: str, times: int) -> list[Path]:
    return [RESULTS / (f"{name}.jsonl" if i == 1 else f"{name}.{i}.jsonl") for i in range(1, times + 1)]


def agreement(paths: list[Path]) -> None:
    """How many rows of each pair of sweeps agree within the interval of their ratio."""
    for a, b in itertools.combinations(paths, 2):
        command = [sys.executable, "-m", "webgpu_run.cli.bench", "compare", a, b, "-o", "json", "-q"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows = json.loads(done.stdout)
        same = sum(row["verdict"] == "same" for row in rows)
        off = max(abs(row["ratio"] - 1) for row in rows)
        print(f"{a.name} and {b.name}: {same} of {len(rows)} rows agree, the largest difference is {off:.1%}")
        for row in rows:
            if row["verdict"] != "same":
                low, high = row["ci95"]
                print(f"  {row['test']}: {row['ratio']:.3f}×, 95% interval {low:.3f} to {high:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--name", help="name of the result files; by default that of the model")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only-compare", action="store_true", help="compare existing results without measuring")
    mine, theirs = sys.argv[1:], []
    if "--" in mine:
        at = mine.index("--")
        mine, theirs = mine[:at], mine[at + 1 :]
    args = parser.parse_args(mine)
    RESULTS.mkdir(exist_ok=True)
    paths = files(args.name or (args.model.stem if args.model else "bundled"), args.times)
    if not args.only_compare:
        bench("roofline", "--out", RESULTS / "roofline.jsonl")
        for path in paths:
            bench(*([args.model] if args.model else []), *LENGTHS, *theirs, "--out", path)
    agreement(paths)


if __name__ == "__main__":
    main()
