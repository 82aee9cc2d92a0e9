#!/usr/bin/env python3
"""Compares with llama.cpp: the same model on the same adapter, in rounds of webgpu-bench and llama-bench.

    python bench/llama.py SmolLM2.pte SmolLM2.gguf --llama-bench PATH --out bench/results/llama.jsonl

llama-bench runs twice per round: on its first Vulkan device, which must be our adapter, and on the CPU itself. It must
be built with Vulkan, unless --cpu-only leaves the first one out. Both files hold the same weights in 4 bits, each
quantized in its own format.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

OURS, VULKAN, CPU = "webgpu-run", "llama.cpp, Vulkan", "llama.cpp, CPU"


def lines(command: Sequence[str | Path]) -> list[dict[str, object]]:
    # llama.cpp ignores Vulkan devices that are CPUs unless they are named
    env = {"XDG_RUNTIME_DIR": tempfile.gettempdir(), "GGML_VK_VISIBLE_DEVICES": "0", **os.environ}
    done = subprocess.run([*map(str, command)], env=env, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def ours(model: Path, tests: Sequence[str]) -> dict[str, float]:
    """Tokens per second of each test."""
    bench = (sys.executable, "-m", "webgpu_run.cli.bench", model, *tests, "-r", "3", "-w", "1", "-o", "jsonl", "-q")
    return {str(row["test"]): float(row["mean"]) for row in lines(bench)}  # type: ignore[arg-type]


def theirs(bench: Path, model: Path, tests: Sequence[str], *where: str) -> dict[str, float]:
    found = lines((bench, "-m", model, *tests, "-r", "2", "-o", "jsonl", *where))
    if "99" in where and not all(row["gpu_info"] for row in found):
        raise SystemExit(f"{bench} found no Vulkan device")
    names = (f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}" for row in found)
    return {name: float(row["avg_ts"]) for name, row in zip(names, found, strict=True)}  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--llama-bench", type=Path, required=True)
    parser.add_argument("--lens", default="16,64,256", help="prefill lengths (default: 16,64,256)")
    parser.add_argument("--steps", default="16", help="tokens to decode (default: 16)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu-only", action="store_true", help="compare with the CPU only")
    parser.add_argument("--out", type=Path, help="JSON lines: one row per test and runner, with every round")
    args = parser.parse_args()
    tests = ("-p", args.lens, "-n", args.steps)
    where = {VULKAN: ("-ngl", "99"), CPU: ("-ngl", "0", "-dev", "none")}
    peers = [CPU] if args.cpu_only else [VULKAN, CPU]
    rounds = [
        {OURS: ours(args.model, tests)}
        | {peer: theirs(args.llama_bench, args.gguf, tests, *where[peer]) for peer in peers}
        for _ in range(args.rounds)
    ]
    rows = []
    print(
        f"| test | {OURS} t/s |{''.join(f' {peer} | ratio |' for peer in peers)}\n|---|---:|{'---:|---|' * len(peers)}"
    )
    for test in rounds[0][OURS]:
        mine, *others = ([r[who][test] for r in rounds] for who in (OURS, *peers))
        cells = [f"{statistics.median(mine):.1f}"]
        for speeds in others:
            times = [a / b for a, b in zip(mine, speeds, strict=True)]
            cells += [f"{statistics.median(speeds):.1f}", f"{min(times):.2g}–{max(times):.2g}×"]
        print(f"| {test} | {' | '.join(cells)} |")
        samples = zip((OURS, *peers), (mine, *others), strict=True)
        rows += [{"schema": 1, "kind": "beside", "test": test, "runner": who, "samples": s} for who, s in samples]
    if args.out:
        args.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
