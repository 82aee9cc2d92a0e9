#!/usr/bin/env python3
"""Decoding of several sequences at the same time, next to llama.cpp on the CPU, in rounds that alternate.

    python bench/llama_batch.py SmolLM2.pte SmolLM2.gguf --batched-bench PATH --out bench/results/llama_batch.jsonl

PATH is llama.cpp's llama-batched-bench. Speeds are tokens per second of all sequences together. Each runner is also
compared with its own speed for one sequence, in the same round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from llama import CPU, OURS, lines

Speeds = dict[int, float]


def ours(model: Path, batches: str, steps: int) -> Speeds:
    tests = ("-p", "none", "-n", str(steps), "--batch", batches, "-r", "2", "-w", "1", "-o", "jsonl", "-q")
    rows = lines((sys.executable, "-m", "webgpu_run.cli.bench", model, *tests))
    return {int(str(row["batch"])): float(str(row["mean"])) for row in rows if row["batch"]}


def theirs(bench: Path, model: Path, batches: str, steps: int) -> Speeds:
    sizes = ("-c", "4096", "-npp", "16", "-ntg", str(steps), "-npl", batches, "-t", "2")
    rows = lines((bench, "-m", model, *sizes, "--output-format", "jsonl"))
    return {int(str(row["pl"])): float(str(row["speed_tg"])) for row in rows}


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--batched-bench", type=Path, required=True)
    parser.add_argument("--batch", default="1,4,8,16", help="numbers of sequences; the first must be 1")
    parser.add_argument("--steps", type=int, default=16, help="tokens per sequence (default: 16)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="JSON lines: one row per number and runner, with every round")
    args = parser.parse_args()
    rounds: list[dict[str, Speeds]] = []
    for _ in range(args.rounds):
        mine = ours(args.model, args.batch, args.steps)
        rounds.append({OURS: mine, CPU: theirs(args.batched_bench, args.gguf, args.batch, args.steps)})
    print(f"| sequences | {OURS} t/s | over one | {CPU} t/s | over one |\n|---:|---:|---|---:|---|")
    rows = []
    for count in map(int, args.batch.split(",")):
        cells = []
        for who in (OURS, CPU):
            samples = [r[who][count] for r in rounds]
            cells += [f"{statistics.median(samples):.0f}", spread([r[who][count] / r[who][1] for r in rounds])]
            rows.append({"schema": 1, "kind": "beside", "test": f"b{count}", "runner": who, "samples": samples})
        print(f"| {count} | {' | '.join(cells)} |")
    if args.out:
        args.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
