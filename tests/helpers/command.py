"""`webgpu-run` as a real process: its exit code, both streams, its time and its peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
TIMEOUT = 180.0


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str
    seconds: float
    peak: int


def execute(*command: str | Path, env: dict[str, str] | None = None, encoding: str = "utf-8") -> Result:
    """Runs any command line, which writes in this encoding."""
    own = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}  # which readline sets in test workers
    environment = {**own, "PYTHONPATH": str(HERE.parent), **(env or {})}
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        launcher = [sys.executable, "-S", "-E", str(HERE / "tools" / "peak.py"), report.name]
        done = subprocess.run([*launcher, *map(str, command)], capture_output=True, timeout=TIMEOUT, env=environment)
        told = json.loads(Path(report.name).read_text())
    return Result(
        told["code"], done.stdout.decode(encoding), done.stderr.decode(encoding), told["seconds"], told["peak"]
    )


def webgpu_run(*args: str | Path, env: dict[str, str] | None = None) -> Result:
    """Runs `webgpu-run` with these arguments."""
    return execute(sys.executable, "-m", "webgpu_run", *args, env=env)
