"""One side of `webgpu-bench compare --live`: a process that makes calls as it is told and prints how long each took.

It runs as a script with another version of this package on the path, so it imports by name what versions have in
common, and never its neighbours. The first argument is JSON: the model, and the settings that are not the default.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

START = 5  # tokens before a decode


def first_of(name: str, *modules: str) -> Any:
    """This name from the first of these modules that has it; None if none has."""
    for module in modules:
        try:
            return getattr(importlib.import_module(f"webgpu_run{module}"), name)
        except (ImportError, AttributeError):
            continue
    return None


class LoadedSide:
    """A loaded model, called as its version makes greedy replies."""

    def __init__(self, path: str, chunk: int | None, settings: dict[str, Any]) -> None:
        self.model = first_of("load", "", ".model")(path, **settings)
        session = first_of("Session", ".llm.session", ".session")
        self.session = session(self.model, **({"chunk": chunk} if chunk else {})) if session else None
        self.stream = first_of("TokenStream", ".llm.session") or first_of("Reply", ".llm.session", ".session")
        self.sampler = first_of("Sampler", ".llm.sampling", ".sampling")

    def logits(self, count: int, position: int, token: int = 1) -> Any:
        logits = self.model.run([np.full((1, count), token), np.asarray([position])])[0]
        return logits.reshape(-1, logits.shape[-1])[-1]

    def reply(self, prompt: int, count: int) -> Iterator[int]:
        """Ids after a prompt; the first of them comes from the prefill."""
        if self.session:
            self.session.rewind(0)
            yield from self.stream(self.session, [1] * prompt, self.sampler(), limit=count + 1)
            return
        last = self.logits(prompt, 0)
        for i in range(count + 1):
            chosen = int(last.argmax())
            yield chosen
            last = self.logits(1, prompt + i, chosen) if i < count else last

    @property
    def is_software(self) -> bool:
        """Whether the adapter is the processor itself."""
        limits = getattr(getattr(self.model, "device", None), "limits", None)
        return bool(getattr(limits, "software", False))

    def seconds(self, prompt: int, count: int) -> tuple[float, float]:
        """The time to the first token of a reply to `prompt` tokens, or else of `count` tokens after the first one.

        It follows a short prompt. The second figure is the processor time of all threads.
        """
        ids = self.reply(START, count)
        next(ids)
        if prompt:
            ids = self.reply(prompt, 0)
        start, used = time.perf_counter(), time.process_time()
        for _ in ids:
            pass
        return time.perf_counter() - start, time.process_time() - used


def choose_core(number: int) -> None:
    """Move this thread to a core that `number` decides, then let it move again as it likes; on Linux only.

    Threads tend to stay where they are. If one side shared its core with a busy program and the other did not, that
    would last for many calls, so both start a call on the same core.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {sorted(cores)[number % len(cores)]})
        os.sched_setaffinity(0, cores)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is not an answer
    side = LoadedSide(**json.loads(sys.argv[1]))
    print(int(side.is_software), file=answers, flush=True)
    for line in sys.stdin:
        prompt, count, number = map(int, line.split())
        choose_core(number)
        print(*side.seconds(prompt, count), file=answers, flush=True)


if __name__ == "__main__":
    main()
