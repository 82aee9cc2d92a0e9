#!/usr/bin/env python3
"""Damage model files at random, and see that only our own errors come out.

    python tests/tools/fuzz_files.py [--count N] [--first N] [--structured] [--run] [--keep DIR] [FILE.pte ...]

Mutant k of a set of files depends on nothing but k, so a run can be continued with --first and a failure repeated.
Damage is done to bytes, or with --structured to the graph: ops, arguments, dims, dtypes, ids, lists and order change
in files that are well formed. By default each mutant is read, inspected, fused and planned, without a device. With
--run those that can be read are loaded and run on the adapter. Workers are child processes; one that dies or hangs is
replaced, and its mutant counts as an escape. Limits per mutant: 2 s of CPU time (with --run 10 s of wall time), and
memory of 10 times the file plus 16 MB (with --run 1 GB, because the driver compiles kernels). Every mutant that breaks
one of these rules is written to --keep.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from webgpu_run.gpu.device import open_device  # noqa: E402

from helpers.file_mutants import Sample, judge, judge_run, mutant, small_samples  # noqa: E402
from helpers.graph_mutants import graph_mutant  # noqa: E402

SECONDS, RUN_SECONDS = 2.0, 10.0
BASE, GROWTH = 16 << 20, 10  # bytes of memory: BASE + GROWTH * size of the file
RUN_BASE = 1 << 30


class TimeUpError(BaseException):
    """A mutant took too long."""


def peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def work(options: argparse.Namespace) -> None:
    """A worker: judges the mutants first, first + 1, ... and tells of each as a line of JSON."""
    samples = small_samples() * (not options.files) + [
        Sample(Path(p).stem, Path(p).read_bytes()) for p in options.files
    ]
    device = open_device() if options.run else None
    make = graph_mutant if options.structured else mutant

    def late(number: int, frame: object) -> None:
        raise TimeUpError

    if not device:
        signal.signal(signal.SIGPROF, late)
        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for k in range(options.first, options.first + options.count):
        strategy, sample, data = make(k, samples)
        print(json.dumps({"k": k}), flush=True)
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again at what is in use now
        before, start, fault = peak(), time.process_time(), ""
        try:
            if not device:
                signal.setitimer(signal.ITIMER_PROF, 2 * SECONDS)
            outcome = judge_run(data, device, fuse=k // 8 % 2 == 0) if device else judge(data, k)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            outcome, fault = "escape", f"{type(error).__name__}: {error}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        seconds, grown = time.process_time() - start, peak() - before
        if not fault and not device and seconds > SECONDS:
            outcome, fault = "slow", f"{seconds:.1f} s"
        if not fault and grown > (RUN_BASE if device else BASE) + GROWTH * len(data):
            outcome, fault = "memory", f"{grown:,} bytes for a file of {len(data):,}"
        row = {"k": k, "strategy": strategy, "file": sample.name, "outcome": outcome, "fault": fault}
        print(json.dumps(row | {"seconds": round(seconds, 4), "grown": grown, "size": len(data)}), flush=True)


def start(options: argparse.Namespace, first: int, count: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "--worker", "--first", str(first), "--count", str(count)]
    command += ["--run"] * options.run + ["--structured"] * options.structured + options.files
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def next_line(pipe: IO[bytes], rest: bytearray, seconds: float) -> bytes | None:
    """The next line; None when the other side is silent for this long, empty at its end."""
    end = time.monotonic() + seconds
    while b"\n" not in rest:
        ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return None
        part = os.read(pipe.fileno(), 1 << 16)
        if not part:
            return b""
        rest += part
    line, _, after = bytes(rest).partition(b"\n")
    rest[:] = after
    return line


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--structured", action="store_true", help="change graphs, not bytes")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.worker:
        work(options)
        return 0
    samples = small_samples() * (not options.files) + [
        Sample(Path(p).stem, Path(p).read_bytes()) for p in options.files
    ]
    make = graph_mutant if options.structured else mutant
    began = time.monotonic()
    outcomes: Counter[str] = Counter()
    strategies: Counter[str] = Counter()
    worst: dict[str, Any] = {"seconds": 0.0, "grown": 0}
    faults = 0
    k, end = options.first, options.first + options.count
    limit = RUN_SECONDS if options.run else 15 * SECONDS  # of silence; CPU time is the worker's own business
    while k < end and time.monotonic() - began < options.seconds:
        process, rest, current = start(options, k, end - k), bytearray(), k
        assert process.stdout
        first = True
        while True:
            line = next_line(process.stdout, rest, limit + 60 * first)
            if line:
                row = json.loads(line)
                current, first = row["k"], False
                if "outcome" not in row:
                    continue
                k = current + 1
            else:
                process.kill()
                code = process.wait()
                if line == b"" and code == 0:
                    break
                what = "hang" if line is None else "death"
                row = {"k": current, "outcome": what, "fault": f"exit code {code}", "seconds": 0.0, "grown": 0}
                strategy, sample, _ = make(current, samples)
                row |= {"strategy": strategy, "file": sample.name}
                k = current + 1
            outcomes[row["outcome"]] += 1
            if outcomes.total() % 25_000 == 0:
                print(f"{outcomes.total():,} mutants, {time.monotonic() - began:,.0f} s", file=sys.stderr, flush=True)
            strategies[row["strategy"]] += 1
            worst = {name: max(worst[name], row[name]) for name in worst}
            if row["fault"]:
                faults += 1
                told = {name: row[name] for name in ("k", "strategy", "file", "outcome", "fault")}
                print(json.dumps(told), flush=True)
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / f"mutant_{row['k']}.pte").write_bytes(make(row["k"], samples)[2])
            if not line:
                break
            if time.monotonic() - began > options.seconds:
                process.kill()
                process.wait()
                break
    print(f"{sum(outcomes.values()):,} mutants of {len(samples)} files, from {options.first:,} on")
    print("strategies:", ", ".join(f"{name} {n:,}" for name, n in sorted(strategies.items())))
    print("outcomes:", ", ".join(f"{name} {n:,}" for name, n in outcomes.most_common()))
    print(f"slowest {worst['seconds']:.2f} s, most memory {worst['grown'] / 1e6:.1f} MB, {faults} broke a rule")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
