"""A decode whose tokens are seen from outside: a byte on stdout as each arrives, then the times as JSON on stderr.

python stopwatch.py MODEL.pte TOKENS
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from webgpu_run.bench.runner import Bench
from webgpu_run.bench.trials import LengthLimits, Trial
from webgpu_run.runtime.decode import Decoder, Token
from webgpu_run.runtime.open import load


class Telling(Decoder):
    """Writes a byte as soon as a token is there."""

    def next(self, *args: Any, **options: Any) -> Token:
        token = super().next(*args, **options)
        os.write(1, b".")
        return token


def main() -> None:
    model = load(sys.argv[1])
    bench = Bench(model, LengthLimits.of(model.program, model.method))
    trial = Trial(True, int(sys.argv[2]))
    bench._once(trial)
    bench._decoder = Telling(model)
    bench._once(trial)  # makes the decoder put steps together
    sample = bench._once(trial)
    print(json.dumps({"deliveries": sample.deliveries, "shares": sample.shares}), file=sys.stderr)


if __name__ == "__main__":
    main()
