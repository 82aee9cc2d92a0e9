"""Commands that write files, killed at random moments: what they leave behind must be whole."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from helpers.command import HERE

MODEL = HERE / "fixtures" / "tiny_ptd.pte"
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
CODES = {signal.SIGTERM: {-15}, signal.SIGINT: {130}, signal.SIGKILL: {-9}}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A command that writes to a folder: how it runs for long, how it ends soon, and when to kill it."""

    name: str  # of the console script
    flags: tuple[str, ...]
    long: tuple[str, ...]
    short: tuple[str, ...]
    outputs: tuple[str, ...]
    seconds: tuple[float, float]  # after its start

    def command(self, folder: Path, args: tuple[str, ...]) -> list[str]:
        flags = [flag.format(folder) for flag in self.flags]
        script = f"from webgpu_run.cli.entry import {self.name}; {self.name}()"
        return [sys.executable, "-c", script, str(MODEL), *args, *flags]


_BENCH = ("-p", "1,2", "-n", "0", "-w", "0", "--no-roofline")
_TEXT = ("--prompt-ids", "5,6,7", "--ignore-eos")
SCENARIOS = (
    *(
        Scenario(
            "webgpu_bench",
            ("--out", f"{{}}/rows.{form}", "--report", "{}/page.html"),
            (*_BENCH, "-r", "9999"),
            (*_BENCH, "-r", "2"),
            (f"rows.{form}", "page.html"),
            (0.2, 3.0),
        )
        for form in ("json", "jsonl", "csv")
    ),
    Scenario(
        "webgpu_run", ("--trace", "{}/t.json"), (*_TEXT, "-n", "30"), (*_TEXT, "-n", "2"), ("t.json",), (0.2, 2.5)
    ),
)


def is_whole(path: Path) -> bool:
    """Whether a file is what its command writes, from start to end."""
    text = path.read_text()
    try:
        if path.suffix == ".json":
            json.loads(text)
        elif path.suffix == ".jsonl":
            [json.loads(line) for line in text.splitlines()]
        elif path.suffix == ".csv":
            return len({len(row) for row in csv.reader(text.splitlines())}) == 1 and text.endswith("\n")
        else:
            return text.startswith("<!DOCTYPE html>") and text.rstrip().endswith("</html>")
    except ValueError:
        return False
    return text.endswith("\n") or path.suffix == ".json"


def environment(folder: Path) -> dict[str, str]:
    """The environment of a command, with a cache of its own."""
    cache = folder.parent / "cache"
    cache.mkdir(exist_ok=True)
    return {**os.environ, "PYTHONPATH": str(HERE.parent), "XDG_CACHE_HOME": str(cache)}


def kill(scenario: Scenario, folder: Path, number: signal.Signals, after: float, *, at_write: bool = False) -> str:
    """Start, wait, kill; what is wrong, if anything. With `at_write` the next temporary file is waited for too."""
    command = scenario.command(folder, scenario.long)
    process = subprocess.Popen(command, env=environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(after)
    before = set(os.listdir(folder))
    while at_write and process.poll() is None:
        if any(name.endswith(".tmp") for name in os.listdir(folder) if name not in before):
            break
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    if number is signal.SIGINT and process.returncode in (1, -2) and b"webgpu_run/" not in err:
        return ""  # Python itself was interrupted, before any of our code ran
    if process.returncode not in CODES[number] | {0}:
        return f"exit code {process.returncode}: {err.decode()[-300:]}"
    if b"Traceback" in err:
        return f"a traceback after {after:.2f} s: {err.decode()[-300:]}"
    broken = [name for name in scenario.outputs if (folder / name).exists() and not is_whole(folder / name)]
    return f"half written: {', '.join(broken)}" if broken else ""


def finish(scenario: Scenario, folder: Path) -> str:
    """A run that is left alone; what is wrong afterwards, if anything."""
    command = scenario.command(folder, scenario.short)
    done = subprocess.run(command, env=environment(folder), capture_output=True, timeout=120)
    if done.returncode:
        return f"exit code {done.returncode}: {done.stderr.decode()[-300:]}"
    there = {path.name for path in folder.iterdir()}
    if there != set(scenario.outputs):
        return f"the folder has {', '.join(sorted(there))}"
    return "" if all(is_whole(folder / name) for name in there) else "a file is not whole"
