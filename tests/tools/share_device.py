"""Four threads at once on one model, or on one device with a model each: every result must be right to the bit.

python tests/tools/share_device.py model --seconds 60
python tests/tools/share_device.py device --seconds 60
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from webgpu_run.gpu.device import open_device  # noqa: E402
from webgpu_run.llm.sampling import Sampler  # noqa: E402
from webgpu_run.llm.session import Session, TokenStream  # noqa: E402
from webgpu_run.runtime.model import Model  # noqa: E402
from webgpu_run.runtime.open import load  # noqa: E402

MODEL = ROOT / "tests" / "fixtures" / "tiny_dyn.pte"
IDS = np.random.default_rng(0).integers(0, 512, 24)
THREADS = 4


def run(model: Model, count: int) -> bytes:
    return model.run([IDS[None, :count], np.zeros(1, np.int64)])[0].tobytes()


def chosen(model: Model, count: int) -> int:
    return model.finish(model.start(IDS[:count].tolist(), 0))[0]


def reply(model: Model, count: int) -> list[int]:
    return list(TokenStream(Session(model), IDS[:count].tolist(), Sampler(), limit=12))


class Work:
    """What one thread does: calls at random lengths from position 0, so that threads may share a KV cache."""

    def __init__(self, model: Model, reference: Model, seed: int, *, alone: bool) -> None:
        self.model, self.random, self.calls, self.error = model, random.Random(seed), 0, ""
        self.kinds = (run, chosen, reply) if alone else (run, chosen)  # a reply needs its KV cache between calls
        self.expected = {(kind, n): kind(reference, n) for kind in self.kinds for n in range(1, len(IDS) + 1)}

    def until(self, end: float) -> None:
        try:
            while time.monotonic() < end and not self.error:
                kind, count = self.random.choice(self.kinds), self.random.randint(1, len(IDS))
                if kind(self.model, count) != self.expected[kind, count]:
                    self.error = f"{kind.__name__} of {count} tokens gave another result"
                self.calls += 1
        except BaseException as error:
            self.error = f"{type(error).__name__}: {error}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("model", "device"))
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    sys.setswitchinterval(1e-5)  # threads alternate as often as they can
    device = open_device()
    alone = args.what == "device"
    reference = load(MODEL)  # on a device of its own
    models = [load(MODEL, device=device) for _ in range(THREADS if alone else 1)]
    works = [Work(models[i % len(models)], reference, i, alone=alone) for i in range(THREADS)]
    end = time.monotonic() + args.seconds
    threads = [threading.Thread(target=work.until, args=(end,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [work.error for work in works if work.error]
    counts = ", ".join(str(work.calls) for work in works)
    print(f"{THREADS} threads on one {args.what}: {counts} calls, {len(errors)} errors")
    for error in errors:
        print(error)
    return 1 if errors or not all(work.calls for work in works) else 0


if __name__ == "__main__":
    sys.exit(main())
