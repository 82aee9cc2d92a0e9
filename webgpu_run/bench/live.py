"""`webgpu-bench compare --live`: two versions, models or settings, measured alternately in one run.

Each side is a process that loads its model once. In every round both sides make the same call, one right after the
other, and the next round starts with the other side, so whatever disturbs the machine for longer than a call disturbs
both. Rounds end when the interval of every ratio is narrow enough for a verdict, whatever the ratio is.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..console.progress import Progress
from ..console.terminal import plural
from ..errors import DeviceError, FormatError, UsageError
from ..runtime.open import open_program
from . import host
from .stats import Paired
from .tables import SCHEMA, Row, warn
from .trials import Trial

ROOT = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).with_name("live_child.py")
MIN_ROUNDS, MAX_ROUNDS = 20, 10_000
MORE = 1.2  # how many times more rounds there are when the intervals are computed again
PROCESSES = 0.02  # processes that run the same code differ by this much, so a smaller difference is not called one
_FLAGS = {"--no-fuse": ("fuse", False), "--no-tune": ("tune", False)}
_VALUES = {"--kv": "kv", "--device": "device", "--method": "method"}


@dataclass(slots=True)
class Side:
    """What one side runs: a version of this package, a model, and settings that are not the default."""

    words: str
    model: str | None = None
    version: str | None = None  # a git revision or a wheel; None is the version that runs
    chunk: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, words: str, model: str | None) -> Side:
        """Read words such as "model.pte --kv f16", "HEAD~1" or "dist/webgpu_run-0.1-py3-none-any.whl"."""
        side = cls(words, model)
        rest = iter(shlex.split(words))
        for word in rest:
            if word in _FLAGS:
                name, value = _FLAGS[word]
                side.settings[name] = value
            elif word in (*_VALUES, "--chunk"):
                text = next(rest, None)
                if text is None or (word == "--chunk" and not text.isdecimal()):
                    raise UsageError(f"{word} needs a value ({words})")
                if word == "--chunk":
                    side.chunk = int(text)
                else:
                    side.settings[_VALUES[word]] = text
            elif word.startswith("-"):
                known = ", ".join((*_VALUES, "--chunk", *_FLAGS))
                raise UsageError(f"{word} is no setting of a side ({words})", hint=f"settings are {known}")
            elif word.endswith(".pte"):
                if not Path(word).is_file():
                    raise FormatError(f"no such file ({word})")
                side.model = word
            elif side.version is None:
                side.version = word
            else:
                raise UsageError(f"two versions on one side ({words})")
        return side

    def folder(self, temporary: Path) -> Path:
        """The folder in which Python finds this version of the package."""
        if self.version is None or self.version == ".":
            return ROOT
        if self.version.endswith(".whl"):
            try:
                with zipfile.ZipFile(self.version) as wheel:
                    wheel.extractall(temporary)
            except (OSError, zipfile.BadZipFile) as error:
                raise FormatError(f"cannot read the wheel: {error} ({self.version})") from None
            return temporary
        repository = ROOT if (ROOT / ".git").exists() else Path.cwd()
        archive = subprocess.run(["git", "archive", self.version], cwd=repository, capture_output=True, check=False)
        if archive.returncode:
            raise UsageError(f"neither a model, a wheel nor a revision of {repository} ({self.version})")
        subprocess.run(["tar", "-x"], cwd=temporary, input=archive.stdout, check=True)
        return temporary


class Process:
    """A side that runs."""

    def __init__(self, name: str, side: Side, closing: ExitStack) -> None:
        self.name, self.words = name, side.words
        tree = side.folder(Path(closing.enter_context(tempfile.TemporaryDirectory())))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        closing.callback(self._errors.close)
        model = Path(open_program(side.model).path).resolve()
        about = json.dumps({"path": str(model), "chunk": side.chunk, "settings": side.settings})
        self.process = closing.enter_context(
            subprocess.Popen(
                [sys.executable, "-P", str(CHILD), about],
                cwd=tree,
                env={**os.environ, "PYTHONPATH": str(tree)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        )
        closing.callback(self.process.kill)

    def answer(self) -> str:
        """The next line that the process prints."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self._errors.seek(0)
            lines = self._errors.read().decode("utf-8", "replace").split("\n")
            reason = next((text for text in reversed(lines) if text.strip()), f"exit code {self.process.returncode}")
            raise DeviceError(f"{self.name} failed: {reason} ({self.words})")
        return line

    def seconds(self, trial: Trial) -> float:
        """The time of one call of this trial."""
        assert self.process.stdin
        prompt, count = (0, trial.tokens) if trial.decode else (trial.tokens, 0)
        print(prompt, count, file=self.process.stdin, flush=True)
        return float(self.answer())


def verdict(pairs: Paired, margin: float, fail_over: float | None) -> str:
    """faster, slower, regression, same or unclear."""
    ratio = pairs.ratio
    if ratio.is_beyond(PROCESSES):
        is_regression = fail_over is not None and ratio.value < 1 - fail_over
        return "faster" if ratio.value > 1 else "regression" if is_regression else "slower"
    return "same" if ratio.is_within(margin) else "unclear"


def _is_narrow(pairs: Paired, margin: float) -> bool:
    """Whether the interval is so narrow that it is beyond PROCESSES or within the margin, wherever it lies."""
    half = pairs.ratio.half
    return half is not None and 2 * half < math.log(1 + margin) - math.log(1 + PROCESSES)


def measure(
    sides: Sequence[Side],
    trials: Sequence[Trial],
    *,
    margin: float,
    fail_over: float | None,
    repeat: int | None,
    budget: float,
    quiet: bool,
) -> list[Row]:
    """A row for each trial."""
    speeds: dict[Trial, tuple[list[float], list[float]]] = {trial: ([], []) for trial in trials}
    with ExitStack() as closing, Progress(quiet=quiet, manual=True) as progress:
        processes = []
        for i, (name, side) in enumerate(zip("AB", sides, strict=True)):
            progress("load", i, 2)
            processes.append(Process(name, side, closing))
            processes[-1].answer()
        for trial in trials:
            for process in processes:
                process.seconds(trial)  # compiles
        start, look = time.monotonic(), MIN_ROUNDS
        for number in range(repeat or MAX_ROUNDS):
            progress("round", number, repeat or MAX_ROUNDS)
            for trial, samples in speeds.items():
                order = (0, 1) if number % 2 == 0 else (1, 0)
                for i in order:
                    samples[i].append(trial.tokens / processes[i].seconds(trial))
            if repeat is None and number + 1 >= look:
                look = math.ceil(MORE * look)
                if all(_is_narrow(Paired.of(*samples), margin) for samples in speeds.values()):
                    break
            if repeat is None and number + 1 >= MIN_ROUNDS and time.monotonic() - start > budget:
                break
    if not quiet:
        print(plural(number + 1, "round"), file=sys.stderr, flush=True)
    rows = [_row(trial, speeds[trial], sides, margin, fail_over) for trial in trials]
    if host.is_busy() and any(row["verdict"] == "unclear" for row in rows):
        warn("the machine is busy with something else, so verdicts need more rounds: a larger --budget", quiet)
    return rows


def _row(
    trial: Trial,
    samples: tuple[list[float], list[float]],
    sides: Sequence[Side],
    margin: float,
    fail_over: float | None,
) -> Row:
    pairs = Paired.of(*samples)
    told, count = verdict(pairs, margin, fail_over), len(samples[0])
    half, interval = pairs.ratio.half, pairs.ratio.interval
    target = (math.log(1 + margin) - math.log(1 + PROCESSES)) / 2
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "live": [side.words for side in sides],
        "test": trial.label,
        "model": " / ".join(dict.fromkeys(Path(s.model).stem if s.model else "bundled" for s in sides)),
        "device": None,
        "unit": "t/s",
        "a": pairs.a,
        "b": pairs.b,
        "ratio": pairs.ratio.value,
        "ci95": None,
        "ci99": list(interval) if interval else None,
        "verdict": told,
        "rounds": count,
        "rounds_needed": math.ceil(count * (half / target) ** 2) if half and told == "unclear" else None,
        "samples_a": samples[0],
        "samples_b": samples[1],
        "machine": host.machine(),
        "versions": host.versions(),
    }
