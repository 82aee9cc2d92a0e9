#!/usr/bin/env python3
"""Compares this version with an earlier one of this repository on one model, call by call, in one run.

    python bench/against.py 29d9765 SmolLM2.pte --lens 16,64 --rounds 5

The earlier revision is checked out into a temporary worktree. Each version loads the model once, in its own process.
Then, test by test and round by round, both make the same call, one after the other: a prefill from numpy array to numpy
array, or a decode as that version makes greedy replies (the first versions: logits, and their argmax on the host).
Whatever disturbs the machine for longer than a call disturbs both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHILD = """
import sys, time
import numpy as np
try:
    from webgpu_run import load
except ImportError:  # the first versions
    from webgpu_run.model import load
model = load(sys.argv[1])
try:
    try:
        from webgpu_run.llm.sampling import Sampler
        from webgpu_run.llm.session import Reply, Session
    except ImportError:  # a version from before the packages
        from webgpu_run.sampling import Sampler
        from webgpu_run.session import Reply, Session
    session = Session(model)
except ImportError:
    session = None

def logits(ids, position):
    return model.run([np.asarray([ids]), np.asarray([position])])[0]

def said(position, times):
    # greedy ids after a prompt of ones; the first id comes from the prefill
    if session:
        session.rewind(0)
        yield from Reply(session, [1] * position, Sampler(), limit=times + 1)
        return
    last = logits([1] * position, 0)
    for i in range(times + 1):
        yield (chosen := int(last.reshape(-1, last.shape[-1])[-1].argmax()))
        last = logits([chosen], position + i) if i < times else last

for line in sys.stdin:
    seq, pos, times = map(int, line.split())
    ids = said(pos, times) if seq == 1 else None
    if ids:
        next(ids)
    start = time.perf_counter()
    list(ids) if ids else logits([1] * seq, pos)
    print(time.perf_counter() - start, flush=True)
"""


class Version:
    """A process that runs the code in `tree`."""

    def __init__(self, tree: Path, model: Path) -> None:
        command = [sys.executable, "-c", CHILD, str(model.resolve())]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, stdin=pipe, stdout=pipe, text=True
        )

    def seconds(self, seq: int, pos: int, times: int) -> float:
        """The time of a prefill of `seq` tokens, or, if `seq` is 1, of `times` decode steps."""
        assert self.process.stdin
        assert self.process.stdout
        print(seq, pos, times, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


@contextmanager
def worktree(revision: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "earlier"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", str(tree), revision], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("revision", help="the earlier version: anything git understands")
    ap.add_argument("model", type=Path)
    ap.add_argument("--lens", default="16,64", help="prefill lengths (default: 16,64)")
    ap.add_argument("--steps", type=int, default=12, help="decode steps per round (default: 12)")
    ap.add_argument("--rounds", type=int, default=5, help="rounds (default: 5)")
    args = ap.parse_args()
    tests = {f"pp{n}": (int(n), 0, 1) for n in args.lens.split(",")} | {"tg": (1, 5, args.steps)}
    with ExitStack() as stack:
        versions = [Version(tree, args.model) for tree in (stack.enter_context(worktree(args.revision)), ROOT)]
        for version in versions:
            stack.callback(version.close)
        print(f"| test | {args.revision} t/s | now t/s | ratio, median | each round |\n|---|---:|---:|---:|---|")
        for name, call in tests.items():
            pairs = []
            for _ in range(args.rounds):
                for version in versions:
                    version.seconds(*call)  # untimed: brings this version back to the shape
                pairs.append([version.seconds(*call) for version in versions])
            before, after = (call[0] * call[2] / statistics.median(column) for column in zip(*pairs, strict=True))
            ratios = [a / b for a, b in pairs]
            each = ", ".join(f"{r:.3g}" for r in ratios)
            print(f"| {name} | {before:.2f} | {after:.1f} | {statistics.median(ratios):.3g}× | {each} |", flush=True)


if __name__ == "__main__":
    main()
