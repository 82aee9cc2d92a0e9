#!/usr/bin/env python3
"""The time to the first token when prompts share their first 256 tokens, and when a file has their KV cache.

    python bench/prefix.py model.pte [--prefix 256] [--rest 8] [--rounds 5]

A prompt is `--prefix` tokens that all prompts share and `--rest` tokens of its own. In each round the same prompt is
run four ways: with an empty KV cache; after another prompt with the same beginning; with an empty cache and the prefix
prefilled apart; and in a new process that loads the file that `LLM.save` wrote. The ratio is that of the first to each
of the others, as the median of the rounds with the smallest and the largest, by the wall clock and by processor time.
The time of the new process includes reading and checking the file, but not loading the model; meanwhile the model is
hashed, because the file belongs to one model. Logits after a known prefix, after the same prefix prefilled apart and
after the file must be equal to the bit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from webgpu_run import LLM  # noqa: E402


def first_token(llm: LLM, ids: list[int], prefix: int) -> tuple[float, float]:
    """Wall time and processor time to the first token, in ms."""
    start = time.perf_counter(), time.process_time()
    next(iter(llm.generate(ids, max_new_tokens=2, prefix=prefix, ignore_eos=True)))
    return (time.perf_counter() - start[0]) * 1e3, (time.process_time() - start[1]) * 1e3


def logits_after(llm: LLM, rest: list[int]) -> Any:
    """The logits after these tokens, which follow those in the KV cache."""
    return llm.session.prefill(rest)


def child(model: str, file: str, prefix: int, ids: list[int]) -> None:
    """In a new process: load the KV cache, and run the prompt from there."""
    llm = LLM(model, hash_ahead=True)
    llm.generate(ids, max_new_tokens=2, prefix=prefix, ignore_eos=True).finish()  # compile
    times = []
    for _ in range(6):
        llm.reset()
        start = time.perf_counter(), time.process_time()
        llm.load(file)
        loaded = time.perf_counter() - start[0], time.process_time() - start[1]
        wall, cpu = first_token(llm, ids, prefix)
        times.append((wall + loaded[0] * 1e3, cpu + loaded[1] * 1e3))
    llm.reset()
    llm.load(file)
    logits = logits_after(llm, ids[prefix:])
    print(json.dumps({"times": times, "logits": logits.astype(np.float32).tobytes().hex()}))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--prefix", type=int, default=256)
    parser.add_argument("--rest", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        child(args.model, args.child[0], args.prefix, json.loads(args.child[1]))
        return 0
    llm, rng, count = LLM(args.model), np.random.default_rng(0), args.prefix
    shared = rng.integers(1, 2000, count).tolist()
    prompts = [shared + rng.integers(1, 2000, args.rest).tolist() for _ in range(args.rounds + 1)]
    for prompt in prompts[:2]:  # compile
        first_token(llm, prompt, count)
    ways: dict[str, list[tuple[float, float]]] = {"empty cache": [], "known prefix": []}
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "prefix.kv"))
        for prompt in prompts[1:]:
            llm.reset()
            ways["empty cache"].append(first_token(llm, prompt, 0))
            llm.reset()
            first_token(llm, prompts[0], count)
            ways["known prefix"].append(first_token(llm, prompt, count))
        llm.session.rewind(count)
        known = logits_after(llm, prompt[count:])
        llm.save(file, tokens=count)
        llm.reset()
        llm.session.prefill(prompt[:count])
        apart = logits_after(llm, prompt[count:])
        command = [sys.executable, __file__, args.model, "--prefix", str(count), "--child", file, json.dumps(prompt)]
        told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        first, *others = (tuple(t) for t in told["times"])
        ways |= {"file, first time": [first], "file, later": others}
        size = Path(file).stat().st_size
    loaded = np.frombuffer(bytes.fromhex(told["logits"]), np.float32)
    same = np.array_equal(known, apart) and np.array_equal(known.reshape(-1), loaded)
    base = [statistics.median(t[i] for t in ways["empty cache"]) for i in (0, 1)]
    for name, times in ways.items():
        cells = []
        for i, clock in enumerate(("wall", "processor")):
            ms = [t[i] for t in times]
            middle = statistics.median(ms)
            cells.append(f"{clock} {middle:8.1f} ms ({min(ms):.1f}-{max(ms):.1f}), {base[i] / middle:5.1f}x")
        print(f"{name:18} {'   '.join(cells)}")
    print(f"logits {'equal to the bit' if same else 'DIFFERENT'}; the file has {size:,} bytes")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
