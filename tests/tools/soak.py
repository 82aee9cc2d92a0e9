"""Random calls on one model for a long time: does the process grow?

python tests/tools/soak.py [MODEL.pte] --minutes 120 --duty 0.5

Prints resident memory, threads and open files every minute, and at the end the slope of the memory after the first ten
minutes (least squares over samples that are ten seconds apart). Exits with 1 if memory grows by 1 MB per hour or more,
or if the number of threads or open files changes after that time. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from webgpu_run.errors import RunError
from webgpu_run.llm.sampling import Sampler
from webgpu_run.llm.session import Session, TokenStream
from webgpu_run.runtime.open import open_model, open_program

SETTLE_S, SAMPLE_S, LIMIT_MB_PER_HOUR = 600, 10, 1.0


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


class Soak:
    """One session, and the actions that are drawn for it."""

    def __init__(self, path: str | None, seed: int) -> None:
        self.model = open_model(open_program(path))
        self.session = Session(self.model)
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.actions: tuple[Callable[[], None], ...] = (self.prompt, self.chat, self.reset, self.refused)

    def tokens(self, most: int) -> list[int]:
        interface = self.session.interface
        count = self.random.randint(1, max(1, min(most, self.session.room, 2 * interface.largest)))
        return [self.random.randrange(interface.vocab) for _ in range(count)]

    def act(self) -> None:
        action = self.random.choices(self.actions, (6, 6, 1, 3))[0]
        self.counts[action.__name__] += 1
        action()
        del self.session.calls[:]  # the session's own record, which grows with every call

    def prompt(self) -> None:
        """A prompt of random length, at a random position that was reached before."""
        self.session.rewind(self.random.randint(0, self.session.position))
        if not self.session.room:
            self.session.rewind(0)
        self.session.prefill(self.tokens(self.session.capacity))

    def chat(self) -> None:
        """Turns of a conversation that goes back to its start when the context is full."""
        if self.session.room < 16:
            self.session.rewind(0)
        sampler = Sampler(temp=self.random.choice((0.0, 0.8)), seed=self.random.randrange(1000))
        for _ in self.reply(sampler):
            if self.random.random() < 0.02:
                break

    def reply(self, sampler: Sampler) -> TokenStream:
        return TokenStream(self.session, self.tokens(8), sampler, limit=self.random.randint(1, 40))

    def reset(self) -> None:
        self.session.rewind(0)
        self.model.reset()

    def refused(self) -> None:
        """A call that must be refused, and change nothing."""
        model, interface = self.model, self.session.interface
        calls: tuple[Callable[[], object], ...] = (
            lambda: model.run([np.zeros((1, interface.largest + 1), np.int64), np.zeros(1, np.int64)]),
            lambda: model.run([np.zeros((1, 1), np.int64), np.asarray([interface.capacity + 1])]),
            lambda: model.run([np.full((1, 1), interface.vocab), np.zeros(1, np.int64)]),
            lambda: model.run([np.zeros((1, 1), np.float32), np.zeros(1, np.int64)]),
            lambda: model.run([np.zeros(1, np.int64)]),
            lambda: self.session.prefill([0] * (self.session.capacity + 1)),
        )
        try:
            self.random.choice(calls)()
        except RunError:
            return
        raise AssertionError("a call that must be refused was not")


def slope(samples: list[tuple[float, float]]) -> float:
    """MB per hour, by least squares over (seconds, MB)."""
    seconds, mb = np.asarray(samples).T
    return float(np.polyfit(seconds / 3600, mb, 1)[0])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", help="default: the bundled model")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--duty", type=float, default=1.0, help="fraction of the time that calls take")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    soak = Soak(args.model, args.seed)
    start, samples = time.monotonic(), list[tuple[float, float]]()
    states: list[tuple[int, int]] = []
    minute = 0
    while (elapsed := time.monotonic() - start) < args.minutes * 60:
        began = time.monotonic()
        soak.act()
        busy = time.monotonic() - began
        time.sleep(busy * (1 - args.duty) / args.duty)
        elapsed = time.monotonic() - start
        if not samples or elapsed - samples[-1][0] >= SAMPLE_S:
            gc.collect()
            samples.append((elapsed, resident_mb()))
        if elapsed >= (minute + 1) * 60:
            minute = int(elapsed // 60)
            states.append((threads(), open_files()))
            counts = " ".join(f"{name} {n}" for name, n in sorted(soak.counts.items()))
            line = f"{minute:4} min  RSS {samples[-1][1]:8.2f} MB  threads {states[-1][0]}  files {states[-1][1]}"
            print(f"{line}  {counts}", flush=True)
    settled = [s for s in samples if s[0] >= SETTLE_S]
    if len(settled) < 12:
        print("too short: the first ten minutes do not count")
        return 2
    grows = slope(settled)
    steady = len(set(states[SETTLE_S // 60 :])) <= 1
    print(f"RSS {grows:+.3f} MB per hour over {(settled[-1][0] - settled[0][0]) / 60:.0f} min", end="; ")
    print(f"threads and open files {'constant' if steady else 'changed'}; {soak.counts.total()} actions")
    return int(grows >= LIMIT_MB_PER_HOUR or not steady)


if __name__ == "__main__":
    sys.exit(main())
