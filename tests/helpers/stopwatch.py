"""A decode whose tokens are seen from outside: a byte on stdout as each arrives, then the times as JSON on stderr.

python stopwatch.py MODEL.pte TOKENS
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from webgpu_run.bench.trials import Bench, LengthLimits, Measured, Trial
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
    measured = Measured(trial, [bench._once(trial), bench._once(trial)])
    record = {"gaps": [s.gaps for s in measured.samples], "shares": [s.shares for s in measured.samples]}
    print(json.dumps(record), file=sys.stderr)


if __name__ == "__main__":
    main()
