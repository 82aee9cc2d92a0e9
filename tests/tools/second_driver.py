#!/usr/bin/env python3
"""Run the tests of ops, of model files and of fusion on another Vulkan driver, and print a Markdown table.

    python tests/tools/second_driver.py [--icd FILE] [--every N] [--limit SECONDS] [pytest arguments]

The default driver is SwiftShader as Debian's package `chromium` has it. `--every N` runs each N-th test only. A test
that prints nothing for `--limit` seconds is ended and counted as a hang; the run goes on after it.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SWIFTSHADER = "/usr/lib/chromium/vk_swiftshader_icd.json"
TESTS = (
    "tests/test_ops.py",
    "tests/test_gpu_routes.py",
    "tests/test_goldens.py",
    "tests/test_kinds.py",
    "tests/test_fuse.py",
    "tests/test_fused.py",
)
RESULT = re.compile(r"^(tests/\S+\.py::.*?) (PASSED|FAILED|ERROR|SKIPPED)\b")


def pytest(env: dict[str, str], *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args]
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def collected(env: dict[str, str], args: list[str]) -> list[str]:
    out, _ = pytest(env, "--collect-only", "-q", *args).communicate()
    return [line for line in out.splitlines() if line.startswith("tests/") and "::" in line]


def run(env: dict[str, str], ids: list[str], limit: float) -> dict[str, str]:
    """The outcome of every test by its id."""
    found: dict[str, str] = {}
    while todo := [i for i in ids if i not in found]:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as names:
            names.write("\n".join(todo))
            names.flush()
            process = pytest(env, "-v", "--tb=line", f"@{names.name}")
            before = len(found)
            assert process.stdout
            while True:
                timer = threading.Timer(limit, process.send_signal, (signal.SIGKILL,))
                timer.start()
                line = process.stdout.readline()
                timer.cancel()
                if not line:
                    break
                if m := RESULT.match(line):
                    found[m[1]] = m[2]
                    print(f"{len(found)} of {len(ids)}: {m[2]} {m[1]}", file=sys.stderr, flush=True)
        if process.wait() < 0:  # killed, by us or by a crash, in the first test without a result
            found[next(i for i in ids if i not in found)] = (
                "HUNG" if process.returncode == -signal.SIGKILL else "CRASHED"
            )
        elif len(found) == before:
            raise SystemExit("pytest ran no test")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--icd", default=SWIFTSHADER)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--limit", type=float, default=240)
    args, rest = parser.parse_known_args()
    if not Path(args.icd).exists():
        raise SystemExit(f"no driver at {args.icd}; SwiftShader is in Debian's package chromium")
    driver = {"VK_ICD_FILENAMES": args.icd, "VK_DRIVER_FILES": args.icd, "XDG_RUNTIME_DIR": tempfile.gettempdir()}
    env = {**driver, **{k: v for k, v in os.environ.items() if k not in driver}}
    ids = collected(env, rest or TESTS)
    found = run(env, ids[:: args.every], args.limit)
    print("\n| file | tests | passed | skipped | not passed |\n|---|---:|---:|---:|---|")
    for file in dict.fromkeys(i.partition("::")[0] for i in found):
        own = {i.partition("::")[2]: result for i, result in found.items() if i.startswith(f"{file}::")}
        counts = Counter(own.values())
        rest = [f"{name} ({r.lower()})" for name, r in own.items() if r not in ("PASSED", "SKIPPED")]
        print(f"| {Path(file).name} | {len(own)} | {counts['PASSED']} | {counts['SKIPPED']} | {', '.join(rest)} |")


if __name__ == "__main__":
    main()
