"""Ends calls by an exception at many points; the next call must be right to the bit.

python tests/tools/interrupt_calls.py signals --count 300    a signal handler raises, after random times
python tests/tools/interrupt_calls.py wgpu [--stride N]      every N-th call into wgpu raises, before it and after it

A mistake here usually aborts the process, so the tests run this as a child.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from webgpu_run.gpu.device import Device, open_device  # noqa: E402
from webgpu_run.llm.sampling import Sampler  # noqa: E402
from webgpu_run.llm.session import Session  # noqa: E402
from webgpu_run.runtime.model import Model  # noqa: E402
from webgpu_run.runtime.open import load  # noqa: E402

MODEL = ROOT / "tests" / "fixtures" / "tiny_dyn.pte"
PROMPT = [0, 320, 350, 459, 296, 397, 426, 115, 28]
REPLY = 24
GREEDY = Sampler()


class Talk:
    """A session that continues a greedy reply from wherever it was interrupted, and knows what it must say."""

    def __init__(self, model: Model) -> None:
        self.model, self.session = model, Session(model, ahead=True)
        self.logits = self.run(len(PROMPT))
        self.ids = list(PROMPT)
        self.ids.append(int(self.session.prefill(PROMPT).argmax()))
        while len(self.ids) < len(PROMPT) + REPLY:
            self.ids.append(int(self.session.step(self.ids[-1:]).argmax()))
        self.session.rewind(0)

    def run(self, count: int, *, timed: bool = False) -> bytes:
        return self.model.run([np.asarray([PROMPT[:count]]), np.zeros(1, np.int64)], timed=timed)[0].tobytes()

    def advance(self, steps: int) -> None:
        """Some tokens more; AssertionError if one of them is wrong."""
        for _ in range(steps):
            at = self.session.position
            assert self.session.ids == self.ids[:at], "the session has other ids than it was given"
            if at >= len(self.ids) - 1:
                self.session.rewind(0)
            elif at < len(PROMPT):
                token = int(self.session.prefill(PROMPT[at:]).argmax())
                assert token == self.ids[len(PROMPT)], "wrong token after the prompt"
            else:
                left = len(self.ids) - at - 2
                token = self.session.advance(self.ids[at], GREEDY, 0, left=left)
                assert token == self.ids[at + 1], f"wrong token at position {at}"

    def check(self) -> None:
        """The next calls after an exception: the reply goes on, a run has the same bits."""
        self.advance(4)
        self.session.decoder.settle()
        assert self.run(len(PROMPT)) == self.logits, "other logits after an exception"
        self.session.rewind(0)

    def actions(self) -> tuple[Callable[[], object], ...]:
        return (
            lambda: self.run(5),
            lambda: self.run(len(PROMPT)),
            lambda: self.run(7, timed=True),
            lambda: self.advance(8),
            lambda: self.advance(len(PROMPT)),
            self.model.reset,
        )


def signals(model: Model, count: int) -> int:
    """Returns how many of the calls were interrupted."""
    talk, rng, hits = Talk(model), random.Random(0), 0

    def raise_interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, raise_interrupt)
    actions = talk.actions()
    times = []
    for action in actions:
        action()
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    tries = 0
    while hits < count:
        which = tries % len(actions)
        tries += 1
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, max(1e-6, rng.random() * times[which]))
                actions[which]()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            hits += 1
            talk.check()
        else:
            talk.session.rewind(0)
    talk.check()
    return hits


class Failing:
    """C functions, one call of which raises: the `at`-th, before it is made or after."""

    def __init__(self, *, after: bool) -> None:
        self.calls, self.at, self.after = 0, -1, after

    def wrap(self, functions: Any) -> Any:
        failing = self

        class Wrapped:
            def __getattr__(self, name: str) -> Any:
                real = getattr(functions, name)
                if not callable(real) or name.endswith("Release"):
                    return real

                def call(*args: Any) -> Any:
                    if threading.current_thread() is not threading.main_thread():
                        return real(*args)  # wgpu-py's polling thread, which no signal interrupts
                    failing.calls += 1
                    due = failing.calls == failing.at
                    if due and not failing.after:
                        raise KeyboardInterrupt
                    result = real(*args)
                    if due:
                        raise KeyboardInterrupt
                    return result

                return call

        return Wrapped()

    @contextlib.contextmanager
    def inside(self, device: Device) -> Iterator[None]:
        """While this lasts, calls of ours and of wgpu-py's objects are counted."""
        from wgpu.backends.wgpu_native import _api

        native, old = device.native, _api.libf
        lib, libf = native._lib, native._libf
        _api.libf = native._libf = self.wrap(libf)
        native._lib = self.wrap(lib)
        try:
            yield
        finally:
            native._lib, native._libf, _api.libf = lib, libf, old


def every_call(model: Model, stride: int, *, first: bool) -> int:
    """Fail each call into wgpu in turn; with `first`, those of a model's first call, on a new model each time."""
    done = 0
    talk = Talk(model)
    for after in (False, True):
        for which in range(1 if first else len(talk.actions())):
            failing = Failing(after=after)
            k, total = 1, None
            while total is None or k <= total:
                now = model
                if first:
                    now = Model(model.program, model.device)
                fresh = Talk.__new__(Talk)
                fresh.__dict__ = {**talk.__dict__, "model": now}
                if first:
                    fresh.session = Session(now, ahead=True)
                action = fresh.actions()[which]
                failing.calls, failing.at = 0, -1 if total is None else k
                raised = False
                with failing.inside(model.device):
                    try:
                        action()
                    except KeyboardInterrupt:
                        raised = True
                if total is None:
                    total = failing.calls
                else:
                    done += raised
                    fresh.check()
                    k += stride
    return done


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("signals", "wgpu"))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--stride", type=int, default=1)
    args = parser.parse_args()
    device = open_device()
    model = load(MODEL, device=device)
    if args.what == "signals":
        print(f"{signals(model, args.count)} calls ended by a signal, the next call right after each")
    else:
        later = every_call(model, args.stride, first=False)
        print(f"{later} calls into wgpu raised, the next call right after each", flush=True)
        early = every_call(model, args.stride, first=True)
        print(f"{early} calls into wgpu raised in a model's first call, the next call right after each")


if __name__ == "__main__":
    main()
