"""`webgpu-bench compare`: two result files or two sides that run, row by row, and whether the second one is slower."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from ..console import outfile
from ..errors import FormatError, UnsupportedError, UsageError
from .stats import ratio
from .tables import SCHEMA, Row, View, number, sinks, warn
from .tables import value_at as _at
from .trials import MIN_ROUNDS, trials

SAME_WITHIN = 0.05  # speeds whose interval is closer than this are the same, unless --fail-over sets another margin
MOST_ROUNDS = 10_000  # that -r takes
LISTED = 8  # how many tests that are in one file only are named


def read(path: str) -> tuple[list[Row], str | None]:
    """The rows of a JSON or JSON-lines file, and a warning if the file is incomplete."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise FormatError(f"cannot read results: {(reason or str(error)).lower()} ({path})") from None
    warning = None
    try:
        whole = json.loads(text)
        rows = whole if isinstance(whole, list) else [whole]
    except (ValueError, RecursionError):
        rows, warning = _lines(text, path)
    for i, row in enumerate(rows):
        _check(row, f"{path}, row {i + 1}")
    if not rows:
        raise FormatError(f"no results in it ({path})")
    return rows, warning


def _lines(text: str, path: str) -> tuple[list[Row], str | None]:
    rows, lines = [], text.splitlines()
    for i, line in enumerate(lines):
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError):
            if i == len(lines) - 1 and rows and not text.endswith("\n"):
                return rows, f"the last line is incomplete: the run that wrote it was killed ({path})"
            raise FormatError(f"line {i + 1} is not JSON ({path})") from None
    return rows, None


def _check(row: object, where: str) -> None:
    has_fields = isinstance(row, dict) and isinstance(row.get("test"), str) and isinstance(row.get("samples"), list)
    if not isinstance(row, dict) or not has_fields or not row["samples"]:
        raise FormatError(f"not a row of results ({where})")
    if row.get("schema") not in range(1, SCHEMA + 1):
        raise UnsupportedError(f"schema {row.get('schema')}, this version reads 1 to {SCHEMA} ({where})")
    if not all(isinstance(row.get(key, {}), dict) for key in ("model", "device")):
        raise FormatError(f"not a row of results ({where})")
    if not all(isinstance(x, int | float) and 0 < x < 1e300 for x in row["samples"]):
        raise FormatError(f"a sample is not a positive number ({where})")


# What two rows must have in common, from all of it to as little as makes sense.
_KEYS = (
    ("kind", "test", "model.name", "device.name", "settings.kv"),
    ("kind", "test", "model.name", "device.name"),
    ("kind", "test", "model.name"),
    ("kind", "test"),
)


def pairs(a: list[Row], b: list[Row]) -> list[tuple[Row, Row]]:
    """Rows of the same test, model, device and cache. If there are none, these may differ, the last ones first."""
    for paths in _KEYS:
        first = {tuple(_at(row, path) for path in paths): row for row in a}
        matched = [(first[key], row) for row in b if (key := tuple(_at(row, path) for path in paths)) in first]
        if matched:
            return matched
    return []


# What affects speed beside the model, by its path in a row and the name that a user knows.
SETTINGS = {
    "settings.kv": "--kv",
    "settings.chunk": "--chunk",
    "settings.fuse": "fusion",
    "settings.tune": "tuning",
    "settings.warmup": "-w",
    "settings.prompt": "prompts",
    "settings.models": "models in the run",
    "device.name": "adapter",
    "device.driver": "driver",
    "device.backend": "backend",
    "device.profile": "kernels",
    "device.threads": "threads of the driver",
    "machine.cpu": "processor",
    "machine.cores": "cores",
    "machine.system": "system",
    "versions.webgpu-run": "webgpu-run",
    "versions.wgpu": "wgpu",
    "versions.numpy": "numpy",
    "versions.python": "Python",
}


def differences(matched: list[tuple[Row, Row]]) -> list[str]:
    """Every setting that affects speed and that both files record differently, once."""
    texts: dict[str, None] = {}
    for a, b in matched:
        for path, name in SETTINGS.items():
            x, y = _at(a, path), _at(b, path)
            if x is not None and y is not None and x != y:
                more = ", each was tuned separately (--no-tune)" if name == "kernels" else ""
                texts[f"A and B differ in {name}: {x}, {y}{more}"] = None
    return list(texts)


def compared(a: Row, b: Row, fail_over: float | None) -> Row:
    """The row that compares the speed of b with that of a."""
    lower_is_better = a.get("better") == "lower"
    r = ratio(b["samples"], a["samples"]) if lower_is_better else ratio(a["samples"], b["samples"])
    margin = SAME_WITHIN if fail_over is None else fail_over
    if r.is_significant:
        is_regression = fail_over is not None and r.value < 1 - fail_over
        verdict = "faster" if r.value > 1 else "regression" if is_regression else "slower"
    else:
        verdict = "same" if r.is_within(margin) else "unclear"
    count = min(len(a["samples"]), len(b["samples"]))
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "test": a["test"],
        "model": a.get("model", {}).get("name"),
        "device": a.get("device", {}).get("name"),
        "unit": a.get("unit"),
        "a": statistics.fmean(a["samples"]),
        "b": statistics.fmean(b["samples"]),
        "ratio": r.value,
        "ci95": list(r.interval) if r.interval else None,
        "verdict": verdict,
        "rounds": count,
        "rounds_needed": (r.rounds(count, margin) or MIN_ROUNDS) if verdict == "unclear" else None,
    }


def _cells(row: Row) -> dict[str, str]:
    level = "99%" if "live" in row else "95%"
    interval, needed, by_cpu = row[f"ci{level[:2]}"], row["rounds_needed"], row.get("timing") == "cpu"
    return {
        "model": row["model"] or "–",
        "test": row["test"],
        "unit": row["unit"] or "",
        "A": number(row["a"]),
        "B": number(row["b"]),
        "speed B/A": f"{row['ratio']:.3f}×",
        f"{level} interval": _interval(interval),
        **({"by the clock": f"{row['wall_ratio']:.3f}×, {_interval(row['wall_ci99'])}"} if by_cpu else {}),
        "verdict": row["verdict"] + (f", try -r {needed}" if needed and needed <= MOST_ROUNDS else ""),
    }


def _interval(ends: tuple[float, float] | None) -> str:
    return f"{ends[0]:.3f} – {ends[1]:.3f}" if ends else "–"


VIEW = View(
    _cells,
    (
        "model",
        "device",
        "test",
        "unit",
        "a",
        "b",
        "ratio",
        "ci95",
        "ci99",
        "wall_ratio",
        "wall_ci99",
        "verdict",
        "rounds",
        "rounds_needed",
        "schema",
    ),
    ("by the clock", "model", "95% interval", "99% interval", "unit", "A", "B"),
)


def run_compare(
    *,
    a: str,
    b: str,
    fail_over: float | None,
    fail_unclear: bool,
    live: Row | None = None,
    form: str | None,
    out: str | None,
    quiet: bool,
) -> int:
    """Compare two files, or two sides that run (`live`).

    The exit code is 1 if a row is slower than allowed, or unclear where that must not be.
    """
    rows = _files(a, b, fail_over, out, quiet) if live is None else _live(a, b, fail_over, out, quiet, **live)
    with sinks(form, out, VIEW, rows) as table:
        table.show(rows)
    failures = {"regression", "unclear"} if fail_unclear else {"regression"}
    return int(any(row["verdict"] in failures for row in rows))


def _live(
    a: str,
    b: str,
    fail_over: float | None,
    out: str | None,
    quiet: bool,
    *,
    model: str | None,
    seq_lens: tuple[int, ...],
    decode: tuple[int, ...],
    repeat: int | None,
    budget: float,
    timing: str,
) -> list[Row]:
    """The rows of two sides that run alternately."""
    from .live import Side, measure
    from .paired import PROCESSES

    margin = SAME_WITHIN if fail_over is None else fail_over
    if margin <= PROCESSES:
        raise UsageError(f"processes that run the same code differ by {PROCESSES:.0%}, so --fail-over must be more")
    sides = [Side.of(words, model) for words in (a, b)]
    if out:
        outfile.check_target(out, [s.model for s in sides if s.model], "--out")
    todo = trials(seq_lens, decode, (0,))
    if not todo:
        raise UsageError("nothing to measure: neither prompt lengths (-p) nor tokens to generate (-n)")
    return measure(
        sides, todo, margin=margin, fail_over=fail_over, repeat=repeat, budget=budget, timing=timing, quiet=quiet
    )


def _files(a: str, b: str, fail_over: float | None, out: str | None, quiet: bool) -> list[Row]:
    """The rows of two files."""
    if out:
        outfile.check_target(out, (a, b), "--out")
    (before, warning_a), (after, warning_b) = read(a), read(b)
    for warning in (warning_a, warning_b):
        if warning:
            warn(warning, quiet)
    matched = pairs(before, after)
    if not matched:
        raise FormatError(f"the files have no test in common ({a}, {b})")
    for name, file, rows in (("A", 0, before), ("B", 1, after)):
        used = {id(pair[file]) for pair in matched}
        if unmatched := [row["test"] for row in rows if id(row) not in used]:
            warn(f"only in {name}: {', '.join(unmatched[:LISTED])}{', ...' * (len(unmatched) > LISTED)}", quiet)
    if any(_at(x, "model.sha256") != _at(y, "model.sha256") for x, y in matched):
        warn("the model files differ", quiet)
    for text in differences(matched):
        warn(text, quiet)
    rows = [compared(x, y, fail_over) for x, y in matched]
    if single := sum(row["rounds"] == 1 for row in rows):
        warn(f"{single} of {len(rows)} rows have one sample of A or B, so a change may be chance", quiet)
    return rows
