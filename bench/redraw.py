"""Prints the tables of bench/README.md again, from bench/results. docs/pictures.py draws the report page."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from webgpu_run.bench.linears import VIEW as LINEARS
from webgpu_run.bench.tables import View, sinks
from webgpu_run.bench.views import LOAD, MODEL

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


def radv(rows: list[dict[str, Any]]) -> None:
    """One line per shape, each cell before and after; then the kernels of a peer."""
    print("| M×K×N | workgroups | per | naga | Tint | VGPRs | LDS | waves |\n|---|---:|---|" + "---:|" * 5)
    ours = [row for row in rows if row["version"] != "ExecuTorch"]
    known = {(r["m"], r["k"], r["n"]) for r in ours if r["version"] == "before"}
    ours = [row for row in ours if (row["m"], row["k"], row["n"]) in known]
    for shape in dict.fromkeys((row["m"], row["k"], row["n"]) for row in ours):
        by = {(r["version"], r["compiler"]): r for r in ours if (r["m"], r["k"], r["n"]) == shape}
        both = [by[version, "naga"] for version in ("before", "after")]
        cells = [_change(f"{r['workgroups']:,}" for r in both), both[0]["unit"]]
        cells += [_change(_per(by.get((version, c))) for version in ("before", "after")) for c in ("naga", "tint")]
        cells += [_change(f"{r[key]:,}" for r in both) for key in ("vgpr", "lds", "waves")]
        print(f"| {'×'.join(map(str, shape))} | {' | '.join(cells)} |")
    theirs = [row for row in rows if row["version"] == "ExecuTorch"]
    for kernel in dict.fromkeys(row["kernel"] for row in theirs):
        naga, tint = (next(r for r in theirs if (r["kernel"], r["compiler"]) == (kernel, c)) for c in ("naga", "tint"))
        cells = ["", naga["unit"], _per(naga), _per(tint), *(f"{naga[key]:,}" for key in ("vgpr", "lds", "waves"))]
        print(f"| ExecuTorch `{kernel}` | {' | '.join(cells)} |")
    print()


def radv_straight(rows: list[dict[str, Any]]) -> None:
    """One line per shape that Tint leaves without a loop: its count in two parts."""
    print(
        "| M×K×N | workgroups | all, per byte | of more blocks, per byte | the rest, instructions |\n|---|"
        + "---:|" * 4
    )
    for r in (row for row in rows if "fixed" in row):
        print(f"| {r['m']}×{r['k']}×{r['n']} | {r['workgroups']:,} | {r['per']:.2f} | {r['more']:.2f} | {r['fixed']} |")
    print()


def radv_attention(rows: list[dict[str, Any]]) -> None:
    """One line per model, each cell before and after."""
    print("| model | heads, D | workgroups | naga | Tint | VGPRs | LDS | waves | MB read |\n|---|---|" + "---:|" * 7)
    for model in dict.fromkeys(row["model"] for row in rows):
        by = {(r["version"], r["compiler"]): r for r in rows if r["model"] == model}
        both = [by[version, "naga"] for version in ("before", "after")]
        cells = [model, f"{both[0]['heads']} of {both[0]['kv_heads']}, {both[0]['d']}"]
        cells += [_change(f"{r['workgroups']:,}" for r in both)]
        cells += [_change(_per(by.get((version, c))) for version in ("before", "after")) for c in ("naga", "tint")]
        cells += [_change(f"{r[key]:,}" for r in both) for key in ("vgpr", "lds", "waves", "read_mb")]
        print(f"| {' | '.join(cells)} |")
    print()


def _per(row: dict[str, Any] | None) -> str:
    """Instructions per unit of work; marked where the loop is unrolled, so that the whole module was counted."""
    return f"{row['per']:.2f}{'*' * row.get('whole_module', False)}" if row else "–"


def _change(values: Iterable[str]) -> str:
    before, after = values
    return before if before == after else f"{before} → {after}"


TABLES: dict[str, View] = {"model": MODEL, "load": LOAD, "linear": LINEARS}


def main() -> None:
    for path in sorted((HERE / "results").glob("*.jsonl")):
        rows = rows_of(path)
        kind = rows[0]["kind"] if rows and "." not in path.stem else ""
        if kind == "peer":
            peers(rows)
        if kind == "radv":
            radv([row for row in rows if "rounded" not in row])
            radv_straight(rows)
            radv([row for row in rows if "rounded" in row])  # 8-bit activations
        if kind == "radv attention":
            radv_attention(rows)
        if kind in TABLES:
            with sinks("md", None, TABLES[kind], rows) as table:
                table.show(rows)
            print()


if __name__ == "__main__":
    main()
