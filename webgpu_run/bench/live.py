"""`webgpu-bench compare --live`: two versions, models or settings, measured alternately in one run.

Each side is a process that loads its model once. In every round both sides make the same call, one right after the
other, and the next round starts with the other side, so whatever disturbs the machine for longer than a call disturbs
both. A test needs no more rounds when the interval of its ratio is narrow enough for a verdict.
"""

from __future__ import annotations

import itertools
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
from .paired import PROCESSES, Paired, is_settled
from .tables import SCHEMA, Row, warn
from .trials import Trial

ROOT = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).with_name("live_child.py")
MIN_ROUNDS, MAX_ROUNDS = 24, 100_000
MIN_SECONDS = 30.0  # without -r; one process may be slower than the other for some seconds, for no reason of its own
WARMUP = 3  # calls of each test and side that do not count
MORE = 1.2  # times the number of rounds at which a test was looked at, it is looked at again
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

    def speeds(self, trial: Trial, number: int) -> tuple[float, float]:
        """Tokens per second of one call, and per second of processor time; it starts on the core of this round."""
        assert self.process.stdin
        prompt, count = (0, trial.tokens) if trial.decode else (trial.tokens, 0)
        print(prompt, count, number, file=self.process.stdin, flush=True)
        wall, used = map(float, self.answer().split())
        return trial.tokens / wall, trial.tokens / max(used, 1e-6)


def verdict(pairs: Paired, margin: float, fail_over: float | None) -> str:
    """faster, slower, regression, same or unclear."""
    if pairs.is_beyond(PROCESSES):
        is_regression = fail_over is not None and pairs.ratio < 1 - fail_over
        return "faster" if pairs.ratio > 1 else "regression" if is_regression else "slower"
    return "same" if pairs.is_within(margin) else "unclear"


@dataclass(slots=True)
class Test:
    """A trial and its speeds so far, of each side in the order of time, by the clock and by processor time."""

    trial: Trial
    by_cpu: bool  # verdicts are by processor time
    wall: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    cpu: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    look: int = MIN_ROUNDS  # the number of rounds at which to look whether they are enough
    is_settled: bool = False

    @property
    def speeds(self) -> tuple[list[float], list[float]]:
        """Those that verdicts are about."""
        return self.cpu if self.by_cpu else self.wall

    def run_round(self, processes: Sequence[Process], margin: float) -> None:
        number = len(self.speeds[0])
        for i in (0, 1) if number % 2 == 0 else (1, 0):
            wall, cpu = processes[i].speeds(self.trial, number // 2)
            self.wall[i].append(wall)
            self.cpu[i].append(cpu)
        if number + 1 >= self.look:
            self.look = math.ceil(MORE * self.look)
            self.is_settled = is_settled(*self.speeds, margin)


def measure(
    sides: Sequence[Side],
    trials: Sequence[Trial],
    *,
    margin: float,
    fail_over: float | None,
    repeat: int | None,
    budget: float,
    timing: str,
    quiet: bool,
) -> list[Row]:
    """A row for each trial.

    `timing` is wall, cpu, or auto: by processor time if the adapter is the processor itself, because other programs on
    the machine change the time on the clock several times as much.
    """
    with ExitStack() as closing, Progress(quiet=quiet, manual=True) as progress:
        processes, software = list[Process](), list[bool]()
        for i, (name, side) in enumerate(zip("AB", sides, strict=True)):
            progress("load", i, 2)
            processes.append(Process(name, side, closing))
            software.append(processes[-1].answer().strip() == "1")
        by_cpu = all(software) if timing == "auto" else timing == "cpu"
        tests = [Test(trial, by_cpu) for trial in trials]
        for number, trial, process in itertools.product(range(WARMUP), trials, processes):
            process.speeds(trial, number)  # the first call compiles
        start = time.monotonic()
        for number in range(repeat or MAX_ROUNDS):
            elapsed = time.monotonic() - start
            if repeat:
                progress("round", number, repeat)
            elif number >= MIN_ROUNDS and elapsed > budget:
                break
            else:
                progress("second", min(int(elapsed), int(budget)), max(1, int(budget)))
            for test in tests:
                if repeat or not test.is_settled or elapsed < MIN_SECONDS:
                    test.run_round(processes, margin)
            if not repeat and time.monotonic() - start > MIN_SECONDS and all(test.is_settled for test in tests):
                break
    if not quiet:
        total = sum(len(test.speeds[0]) for test in tests)
        print(f"{plural(total, 'round')} of {plural(len(tests), 'test')}", file=sys.stderr, flush=True)
    rows = [_row(test, sides, margin, fail_over) for test in tests]
    if host.is_busy() and any(row["verdict"] == "unclear" for row in rows):
        warn("the machine is busy with something else, so verdicts need more rounds: a larger --budget", quiet)
    return rows


def _row(test: Test, sides: Sequence[Side], margin: float, fail_over: float | None) -> Row:
    pairs = Paired.of(*test.speeds)
    wall = Paired.of(*test.wall)
    told = verdict(pairs, margin, fail_over)
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "live": [side.words for side in sides],
        "test": test.trial.label,
        "model": " / ".join(dict.fromkeys(Path(s.model).stem if s.model else "bundled" for s in sides)),
        "device": None,
        "unit": "t/cpu-s" if test.by_cpu else "t/s",
        "a": pairs.a,
        "b": pairs.b,
        "ratio": pairs.ratio,
        "ci95": None,
        "ci99": pairs.interval,
        "verdict": told,
        "rounds": pairs.count,
        "rounds_needed": pairs.rounds(margin) if told == "unclear" else None,
        "timing": "cpu" if test.by_cpu else "wall",
        "wall_ratio": wall.ratio,
        "wall_ci99": wall.interval,
        "samples_a": test.speeds[0],
        "samples_b": test.speeds[1],
        "wall_samples_a": test.wall[0],
        "wall_samples_b": test.wall[1],
        "machine": host.machine(),
        "versions": host.versions(),
    }
