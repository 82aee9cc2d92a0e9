"""`webgpu-bench compare`: two result files, row by row, and whether the second one is slower."""

from __future__ import annotations

import json
from pathlib import Path

from ..console import outfile
from ..errors import FormatError, UnsupportedError
from .stats import ratio
from .tables import SCHEMA, Row, View, number, sinks, warn

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
    if row.get("schema") != SCHEMA:
        raise UnsupportedError(f"schema {row.get('schema')}, this version reads {SCHEMA} ({where})")
    if not all(isinstance(row.get(key, {}), dict) for key in ("model", "device")):
        raise FormatError(f"not a row of results ({where})")
    if not all(isinstance(x, int | float) and 0 < x < 1e300 for x in row["samples"]):
        raise FormatError(f"a sample is not a positive number ({where})")


_KEYS = (
    lambda row: (row.get("kind"), row["test"], row.get("model", {}).get("name"), row.get("device", {}).get("name")),
    lambda row: (row.get("kind"), row["test"], row.get("model", {}).get("name")),
    lambda row: (row.get("kind"), row["test"]),
)


def pairs(a: list[Row], b: list[Row]) -> list[tuple[Row, Row]]:
    """Rows of the same test, model and device. If there are none, the device may differ, and then also the model."""
    for key in _KEYS:
        first = {key(row): row for row in a}
        matched = [(first[key(row)], row) for row in b if key(row) in first]
        if matched:
            return matched
    return []


def compared(a: Row, b: Row, fail_over: float | None) -> Row:
    """The row that compares the speed of b with that of a."""
    lower_is_better = a.get("better") == "lower"
    r = ratio(b["samples"], a["samples"]) if lower_is_better else ratio(a["samples"], b["samples"])
    limit = 1 - fail_over if fail_over is not None else 1.0
    is_regression = fail_over is not None and r.value < limit and r.is_significant
    verdict = "unknown" if r.low is None else "same" if not r.is_significant else "faster" if r.value > 1 else "slower"
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "test": a["test"],
        "model": a.get("model", {}).get("name"),
        "device": a.get("device", {}).get("name"),
        "unit": a.get("unit"),
        "a": a.get("mean"),
        "b": b.get("mean"),
        "ratio": r.value,
        "ci95": None if r.low is None else [r.low, r.high],
        "verdict": "regression" if is_regression else verdict,
    }


def _cells(row: Row) -> dict[str, str]:
    interval = row["ci95"]
    return {
        "model": row["model"] or "–",
        "test": row["test"],
        "unit": row["unit"] or "",
        "A": number(row["a"]),
        "B": number(row["b"]),
        "B is": f"{row['ratio']:.3f}×",
        "95% interval": f"{interval[0]:.3f} – {interval[1]:.3f}" if interval else "–",
        "verdict": row["verdict"],
    }


VIEW = View(
    _cells,
    ("model", "device", "test", "unit", "a", "b", "ratio", "ci95", "verdict", "schema"),
    ("unit", "model", "95% interval", "A", "B"),
)


def run_compare(*, a: str, b: str, fail_over: float | None, form: str | None, out: str | None, quiet: bool) -> int:
    """Compare two files; the exit code is 1 if a row is slower than allowed."""
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
    if any(x.get("model", {}).get("sha256") != y.get("model", {}).get("sha256") for x, y in matched):
        warn("the model files differ", quiet)
    profiles = {tuple(row.get("device", {}).get("profile") for row in pair) for pair in matched}
    for x, y in sorted((a, b) for a, b in profiles if a and b and a != b):
        warn(f"A ran the kernels for {x}, B those for {y}: each was tuned separately (--no-tune)", quiet)
    rows = [compared(x, y, fail_over) for x, y in matched]
    if unknown := sum(row["verdict"] == "unknown" for row in rows):
        warn(f"{unknown} of {len(rows)} rows have one sample of A or B, so a change may be chance", quiet)
    with sinks(form, out, VIEW, rows) as table:
        table.show(rows)
    return int(any(row["verdict"] == "regression" for row in rows))
