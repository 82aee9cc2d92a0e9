"""Prints the tables of bench/README.md again, from bench/results. docs/pictures.py draws the report page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from webgpu_run.bench.linears import VIEW as LINEARS
from webgpu_run.bench.tables import LOAD, MODEL, View, sinks

HERE = Path(__file__).resolve().parent


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def peers(rows: list[dict[str, Any]]) -> None:
    """One line per shape: how many times as long as ours each peer takes."""
    names = list(dict.fromkeys(row["peer"] for row in rows))
    print("| M×K×N | ours, µs | " + " | ".join(name for name in names if name != "ours") + " |")
    print("|---|---:|" + "---:|" * (len(names) - 1))
    for shape in dict.fromkeys((row["m"], row["k"], row["n"]) for row in rows):
        by = {row["peer"]: row for row in rows if (row["m"], row["k"], row["n"]) == shape}
        cells = [f"{by[n]['times_ours']:.2f}×" if "times_ours" in by.get(n, {}) else "–" for n in names if n != "ours"]
        print(f"| {'×'.join(map(str, shape))} | {by['ours']['median']:,.0f} | {' | '.join(cells)} |")


TABLES: dict[str, View] = {"model": MODEL, "load": LOAD, "linear": LINEARS}


def main() -> None:
    for path in sorted((HERE / "results").glob("*.jsonl")):
        rows = rows_of(path)
        kind = rows[0]["kind"] if rows and "." not in path.stem else ""
        if kind == "peer":
            peers(rows)
        if kind in TABLES:
            with sinks("md", None, TABLES[kind], rows) as table:
                table.show(rows)
            print()


if __name__ == "__main__":
    main()
