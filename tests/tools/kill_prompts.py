#!/usr/bin/env python3
"""Kill a `--prompts` run with SIGKILL at random moments, start it again each time, and compare the output.

    python tests/tools/kill_prompts.py [MODEL.pte] [--count 20] [--rows 60] [-n 16] [--seed 1]

Moments are spread over the whole run: loading, the rows, and the last write. After each kill the output must not exist,
and no row may be in the journal twice or have been lost. At the end the output must be that of a run that was never
killed, row by row (without times).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("red", "blue", "green", "small", "large", "old", "young", "quick", "slow", "warm", "cold")


def start(flags: list[str]) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "webgpu_run", *flags]
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in row.items() if not key.endswith("_ms")} for row in rows]


def done_in(journal: Path) -> list[str]:
    """The numbers of the rows in a journal, without its header and a line that was cut short."""
    lines = journal.read_bytes().split(b"\n")[1:-1] if journal.exists() else []
    return [line.split()[1].decode() for line in lines]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("-n", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    rng, faults = random.Random(args.seed), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [
            {"prompt": f"The {WORDS[i % 11]} {WORDS[i * 5 % 7]} dog", "temperature": i % 2} for i in range(args.rows)
        ]
        (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        flags = [*([args.model] if args.model else []), "--prompts", str(folder / "in.jsonl"), "-n", str(args.n)]
        flags += ["--seed", "3", "--ignore-eos"]
        begin = time.perf_counter()
        whole = start([*flags, "--out", str(folder / "whole.jsonl")])
        whole.communicate()
        seconds = time.perf_counter() - begin
        want = rows_of(folder / "whole.jsonl")
        out, kills, moments, known = folder / "out.jsonl", 0, [], set[str]()
        journal = out.with_name(out.name + ".journal")
        while kills < args.count:
            process = start([*flags, "--out", str(out)])
            # A third of the kills wait for the next row, so that enough of them hit the journal.
            time.sleep(rng.uniform(0, 0.9 * seconds) if kills % 3 else 0)
            before = len(done_in(journal))
            while kills % 3 == 0 and process.poll() is None and len(done_in(journal)) <= before:
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            if process.returncode == 0:  # it had ended: start over
                if rows_of(out) != want:
                    faults.append(f"after {kills} kills: other rows")
                out.unlink()
                known = set()
                continue
            kills += 1
            done = done_in(journal)
            moments.append(len(done))
            if len(set(done)) < len(done) or not known <= set(done):
                faults.append(f"kill {kills}: rows twice or lost")
            known = set(done)
            if out.exists():
                faults.append(f"kill {kills}: an output that is not complete")
        last = start([*flags, "--out", str(out)])
        message = last.communicate()[1].decode().strip().splitlines()[-1:]
        if last.returncode or rows_of(out) != want or journal.exists():
            faults.append(f"the last run: exit {last.returncode}, or other rows {message}")
    print(f"{kills} kills, rows in the journal after each: {moments}")
    print("\n".join(faults) or f"{args.rows} rows: complete and equal")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
