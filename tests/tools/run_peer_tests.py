#!/usr/bin/env python3
"""Run ExecuTorch's own tests of this backend, made by `make_peer_tests.py`, at their own tolerances.

    python tests/tools/run_peer_tests.py DIR [DIR ...] [--ops a,b] [--table tests/README.md] [--json FILE]

An element passes when its absolute error is at most atol or its relative error at most rtol; integers and booleans
must be equal, shapes must match, NaN fails. The table ends with what the wheel has and the sets do not, as their
`left_out.json` says. With `--table` the result is written between the markers of that file; with
`--jobs` the cases are shared among processes, and one that dies takes only its own case with it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

Array = npt.NDArray[Any]
BEGIN, END = "<!-- peer tests -->", "<!-- end of peer tests -->"
RAW = {"float32": "<f4", "int32": "<i4", "int64": "<i8", "int8": "<i1", "bool": "<i1"}


@dataclass(frozen=True, slots=True)
class Case:
    """One program with the calls to make on it: inputs, and outputs by their index."""

    op: str
    name: str
    directory: str
    entries: tuple[dict[str, Any], ...]

    def calls(self) -> Iterator[tuple[list[Array], dict[int, Array]]]:
        root, first = Path(self.directory), self.entries[0]
        if "calls" in first:
            with np.load(root / first["calls"]) as record:
                for i in range(first["n_calls"]):
                    ins = [record[f"in_{i}_{n}"] for n in range(count(record, f"in_{i}_"))]
                    yield ins, {n: record[f"out_{i}_{n}"] for n in range(count(record, f"out_{i}_"))}
            return
        goldens = {entry["golden"]["output_index"]: raw(root, entry["golden"]) for entry in self.entries}
        yield [raw(root, spec) for spec in first["inputs"]], goldens


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a case went: passed, wrong (a number is off), refused (an error of ours) or crashed."""

    op: str
    name: str
    result: str
    detail: str = ""
    seconds: float = 0.0


def count(record: Any, prefix: str) -> int:
    return sum(name.startswith(prefix) for name in record.files)


def raw(root: Path, spec: dict[str, Any]) -> Array:
    data = np.fromfile(root / spec["path"], RAW[spec["dtype"]]).reshape(spec["shape"])
    return data.astype(bool) if spec["dtype"] == "bool" else data


def label(op: str, entry: dict[str, Any]) -> str:
    """Ops by their name, the groups of the native tests marked as such: some share a name."""
    return f"native: {op}" if "calls" in entry else op


def read_cases(directory: Path) -> list[Case]:
    """The cases of one set, in the manifest's order; the outputs of one program are one case."""
    manifest = directory / "manifest.json"
    if not manifest.exists():
        raise SystemExit(f"{directory} has no manifest.json; make_peer_tests.py makes one")
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for entry in json.loads(manifest.read_text()):
        grouped[entry["op"], entry["pte"]].append(entry)
    return [
        Case(label(op, entries[0]), Path(pte).stem.removeprefix(f"{op}__"), str(directory), tuple(entries))
        for (op, pte), entries in grouped.items()
    ]


def difference(got: Array, want: Array, atol: float, rtol: float) -> str:
    """What is wrong with an output, or nothing."""
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, expected {list(want.shape)}"
    if want.dtype.kind != "f":
        wrong = got.astype(np.int64) != want.astype(np.int64)
        return f"{wrong.sum()} of {wrong.size} differ" if wrong.any() else ""
    have, golden = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where(have == golden, 0.0, np.abs(have - golden))
        fine = (error <= atol) | (error / np.maximum(np.abs(golden), 1e-6) <= rtol)
    if fine.all():
        return ""
    return f"{(~fine).sum()} of {fine.size} off, largest error {np.max(error):.3g}"


@cache
def shared_device() -> Any:
    """One device a process: opening an adapter costs more than most cases."""
    from webgpu_run.gpu.device import open_device

    return open_device(None)


def run_case(case: Case) -> Outcome:
    """Load the program, make its calls in order, compare every output."""
    from webgpu_run.errors import RunError
    from webgpu_run.runtime.open import load

    start, first = time.perf_counter(), case.entries[0]

    def outcome(result: str, detail: str = "") -> Outcome:
        return Outcome(case.op, case.name, result, detail, time.perf_counter() - start)

    try:
        model = load(Path(case.directory, first["pte"]), device=shared_device())
        for i, (inputs, goldens) in enumerate(case.calls()):
            outputs = model.run(inputs)
            for index, golden in goldens.items():
                if index >= len(outputs):
                    return outcome("wrong", f"call {i}: {len(outputs)} outputs, no output {index}")
                if fault := difference(np.asarray(outputs[index]), golden, first["atol"], first["rtol"]):
                    return outcome("wrong", f"call {i}, output {index}: {fault}")
    except RunError as error:
        return outcome("refused" if first["required"] else "passed", f"{type(error).__name__}: {error}")
    except Exception as error:
        return outcome("crashed", f"{type(error).__name__}: {error}")
    return outcome("passed")


def run_all(cases: list[Case], jobs: int) -> Iterator[Outcome]:
    """Every case in processes of their own, so that an abort in the driver is one failure and not the end."""
    while cases:
        with ProcessPoolExecutor(jobs) as pool:
            futures = [(case, pool.submit(run_case, case)) for case in cases]
            done = 0
            try:
                for _, future in futures:
                    yield future.result()
                    done += 1
                return
            except BrokenProcessPool:
                yield Outcome(cases[done].op, cases[done].name, "crashed", "the process died")
                cases = cases[done + 1 :]


def left_out(directories: list[Path]) -> list[str]:
    """What the wheel has and the sets do not, by reason; empty if nothing is missing."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for directory in directories:
        path = directory / "left_out.json"
        for name, reason in json.loads(path.read_text()).items() if path.exists() else ():
            by_reason[reason].append(f"`{name.removesuffix('.pte').replace('__', ' ')}`")
    rows = [f"- {reason}: {', '.join(sorted(names))}".replace("\n", " ") for reason, names in sorted(by_reason.items())]
    return ["", "Not generated, and so not run:", "", *rows] if rows else []


def table(outcomes: list[Outcome], directories: list[Path]) -> str:
    """A row for each op: how many passed, and what is wrong with the first that did not."""
    by_op: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_op[outcome.op].append(outcome)
    rows = ["| op | cases | passed | not passed |", "|---|---:|---:|---|"]
    for op, group in sorted(by_op.items()):
        bad = [o for o in group if o.result != "passed"]
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(Counter(o.result for o in bad).items()))
        first = f": `{bad[0].name}` {bad[0].detail}".replace("|", "\\|").replace("\n", " ")[:160] if bad else ""
        rows.append(f"| {op} | {len(group)} | {len(group) - len(bad)} | {kinds}{first} |")
    passed = sum(o.result == "passed" for o in outcomes)
    adapter = shared_device().adapter
    head = (
        f"{passed} of {len(outcomes)} cases pass, {len(by_op)} ops and groups, on {adapter.name} ({adapter.backend})."
    )
    return "\n".join([head, "", *rows, *left_out(directories)])


def write_table(path: Path, text: str) -> None:
    old = path.read_text()
    if BEGIN not in old or END not in old:
        raise SystemExit(f"{path} has no line {BEGIN} with a line {END} after it")
    path.write_text(f"{old.split(BEGIN)[0]}{BEGIN}\n{text}\n{END}{old.split(END, 1)[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--ops", help="only these ops or groups, comma-separated")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--table", type=Path, help="Markdown file whose marked part is replaced")
    parser.add_argument("--json", type=Path, help="write every outcome here")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the cases that pass, too")
    args = parser.parse_args()
    wanted = set(args.ops.split(",")) if args.ops else None
    cases = [
        c
        for directory in args.directories
        for c in read_cases(directory)
        if not wanted or c.op.removeprefix("native: ") in wanted
    ]
    outcomes = []
    for outcome in run_all(cases, args.jobs):
        outcomes.append(outcome)
        if args.verbose or outcome.result != "passed":
            print(f"{outcome.result:8}{outcome.op} {outcome.name} {outcome.seconds:.2f} s {outcome.detail}", flush=True)
    text = table(outcomes, args.directories)
    print(text)
    if args.table:
        write_table(args.table, text)
    if args.json:
        args.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")
    sys.exit(any(outcome.result != "passed" for outcome in outcomes))


if __name__ == "__main__":
    main()
