"""Many live calls with errors in between: every good call must equal, to the bit, that of a twin that saw no errors.

python tests/tools/live_calls.py --calls 20000

Both models get the same good calls: prompts of random lengths at positions reached so far, decode steps, steps whose id
the device chooses, resets. One of them also gets calls that must be refused, and calls that fail half-way, because the
driver refuses a buffer, a pipeline or a submission, or because a signal handler raises.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from webgpu_run.errors import DeviceError, RunError  # noqa: E402
from webgpu_run.gpu.device import open_device  # noqa: E402
from webgpu_run.runtime.model import Model  # noqa: E402
from webgpu_run.runtime.open import load  # noqa: E402

FILES = ("tiny_dyn.pte", "tiny_qwen3.pte")
FAILING = ("buffer", "pipeline", "bind_group", "write", "call", "read_mapped")  # methods of Device


class Pair:
    """Two models of one file, each on its own device."""

    def __init__(self, path: Path, seed: int) -> None:
        self.device = open_device()
        self.model, self.twin = load(path, device=self.device), load(path, device=open_device())
        self.random, self.counts = random.Random(seed), Counter[str]()
        tokens = self.model.inputs[0]
        self.largest, self.vocab = tokens.dims[1], self.model.outputs[0].dims[-1]
        self.capacity = int(str(self.model.metadata.get("get_max_context_len", 128)))
        self.position = 0

    def good(self) -> None:
        """One call, made by both."""
        kind = self.random.choices(("prompt", "decode", "chosen", "reset"), (4, 6, 4, 1))[0]
        if kind == "reset":
            self.position = 0
            self.model.reset()
            self.twin.reset()
            return
        position = self.random.randint(0, self.position) if kind == "prompt" else self.position
        room = min(self.largest, self.capacity - position - 1)
        count = self.random.randint(1, max(1, room)) if kind == "prompt" else 1
        if room < 1:
            position = self.position = 0
        ids = [self.random.randrange(self.vocab) for _ in range(count)]
        results = [self.call(model, kind, ids, position) for model in (self.model, self.twin)]
        assert results[0] == results[1], f"{kind} of {count} at {position}: other bits than the twin's"
        self.position = position + count
        self.counts[kind] += 1

    def call(self, model: Model, kind: str, ids: list[int], position: int) -> object:
        if kind == "chosen":
            return model.finish(model.start(ids, position))
        return model.run([np.asarray([ids]), np.asarray([position])])[0].tobytes()

    def bad(self) -> None:
        """One call of the model alone that must not succeed, or may be cut off."""
        kind = self.random.choice(("refused", "driver", "signal"))
        ids = [self.random.randrange(self.vocab) for _ in range(self.random.randint(1, self.largest))]
        position = self.position  # the cache rows it writes lie beyond the position of the next good call
        ids = ids[: max(1, self.capacity - position - 1)]
        if kind == "refused":
            self.refused(ids)
        elif kind == "driver":
            self.driver(ids, position)
        else:
            self.interrupted(ids, position)

    def refused(self, ids: list[int]) -> None:
        run, zero = self.model.run, np.zeros(1, np.int64)
        bad = self.random.choice(
            (
                [np.zeros((1, self.largest + 1), np.int64), zero],
                [np.asarray([ids]), np.asarray([self.capacity + 1])],
                [np.asarray([ids]), np.asarray([-1])],
                [np.full((1, 1), self.vocab), zero],
                [np.asarray([ids], np.float32), zero],
                [np.asarray(ids), zero],
                [np.asarray([ids])],
            )
        )
        try:
            run(bad)
        except RunError:
            self.counts["refused"] += 1
            return
        raise AssertionError("a call that must be refused was not")

    def driver(self, ids: list[int], position: int) -> None:
        """The n-th call of one of the device's methods fails, as a driver's error would."""
        name, due = self.random.choice(FAILING), self.random.randint(1, 3)
        real, calls = getattr(self.device, name), [0]

        def fail(*args: Any, **named: Any) -> Any:
            calls[0] += 1
            if calls[0] == due:
                raise DeviceError(f"{name}: refused for this test")
            return real(*args, **named)

        setattr(self.device, name, fail)
        try:
            self.call(self.model, self.random.choice(("decode", "chosen")), ids, position)
        except DeviceError:
            self.counts["driver errors"] += 1
        finally:
            delattr(self.device, name)

    def interrupted(self, ids: list[int], position: int) -> None:
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, self.random.uniform(1e-5, 8e-3))
                self.call(self.model, self.random.choice(("decode", "chosen")), ids, position)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            self.counts["interrupts"] += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    sys.unraisablehook = lambda _: None  # an interrupt inside a destructor is printed, and means nothing
    pairs = [Pair(ROOT / "tests" / "fixtures" / name, args.seed + i) for i, name in enumerate(FILES)]
    start, total = time.monotonic(), Counter[str]()
    while total.total() < args.calls:
        for pair in pairs:
            pair.good()
            if pair.random.random() < 0.4:
                pair.bad()
        total = sum((pair.counts for pair in pairs), Counter[str]())
    counts = ", ".join(f"{n:,} {name}" for name, n in sorted(total.items()))
    print(f"{total.total():,} calls in {time.monotonic() - start:.0f} s: {counts}; all good calls equal to the bit")


if __name__ == "__main__":
    main()
