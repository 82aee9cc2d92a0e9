#!/usr/bin/env python3
"""Counts the verdicts of `webgpu-bench compare --live` on a busy machine, where the true ratio is known.

    python tests/tools/live_verdicts.py 20                     # this version and itself
    python tests/tools/live_verdicts.py 10 --slower 5          # and a copy that takes 5 % longer
    python tests/tools/live_verdicts.py 20 -- -m model.pte -n 4 -p 16

Other processes compute and sleep at random all the time (--busy). The slower copy computes after every token for
a share of the processor time that the token took. Arguments after -- are those of `compare`.
Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SLOWER = """

_Stream = TokenStream


def TokenStream(*args, **options):
    import time

    ids = iter(_Stream(*args, **options))
    while True:
        start = time.process_time()
        try:
            token = next(ids)
        except StopIteration:
            return
        end = time.process_time()
        while time.process_time() < end + {share} * (end - start):
            pass
        yield token
"""


def keep_busy(seed: int) -> None:
    """Compute for 0.02 to 2 s, and then, every other time, sleep for up to 1 s."""
    chance = random.Random(seed)
    parent = os.getppid()
    while os.getppid() == parent:
        until = time.monotonic() + chance.uniform(0.02, 2)
        while time.monotonic() < until:
            sum(i * i for i in range(2000))
        if chance.random() < 0.5:
            time.sleep(chance.uniform(0.01, 1))


def slower_wheel(folder: str, share: float) -> str:
    """This version as a wheel, changed to take longer."""
    path = Path(folder, "slower.whl")
    with zipfile.ZipFile(path, "w") as wheel:
        for top in ("webgpu_run", "wgsl"):
            for file in sorted((ROOT / top).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    name = str(file.relative_to(ROOT))
                    content = file.read_bytes()
                    if name == "webgpu_run/llm/session.py":
                        content += SLOWER.replace("{share}", str(share)).encode()
                    wheel.writestr(name, content)
    return str(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=int)
    parser.add_argument("--busy", type=int, default=4, help="processes that compute; 4 by default")
    parser.add_argument("--slower", type=float, default=0.0, metavar="PERCENT")
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    options, rest = parser.parse_args(given[:end]), given[end + 1 :]
    spinners = [multiprocessing.Process(target=keep_busy, args=(i,), daemon=True) for i in range(options.busy)]
    for spinner in spinners:
        spinner.start()
    verdicts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        other = slower_wheel(folder, options.slower / 100) if options.slower else "."
        command = [sys.executable, "-m", "webgpu_run.cli.bench", "compare", "--live", ".", other, "-q", "-o", "jsonl"]
        print("| run | load | s | test | rounds | speed B/A | 99 % interval | verdict |")
        print("|---:|---:|---:|---|---:|---:|---|---|")
        for number in range(options.runs):
            start = time.monotonic()
            result = subprocess.run([*command, *rest], cwd=ROOT, capture_output=True, text=True, check=True)
            took, load = time.monotonic() - start, os.getloadavg()[0]
            for row in map(json.loads, result.stdout.splitlines()):
                verdicts.setdefault(row["test"], Counter())[row["verdict"]] += 1
                low, high = row["ci99"] or (0, 0)
                print(
                    f"| {number + 1} | {load:.1f} | {took:.0f} | {row['test']} | {row['rounds']} | {row['ratio']:.3f} "
                    f"| {low:.3f} – {high:.3f} | {row['verdict']} |",
                    flush=True,
                )
    for test, counts in verdicts.items():
        print(f"{test}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))


if __name__ == "__main__":
    main()
