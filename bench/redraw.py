"""Draws the figures of the README again from bench/results: pages, pictures and tables.

    python bench/redraw.py             # pages and pictures go to docs/, tables to stdout

Pictures need Chromium; without it only the pages are written.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from webgpu_run.bench.linears import VIEW as LINEARS
from webgpu_run.bench.page import load_page, page
from webgpu_run.bench.tables import LOAD, MODEL, View, sinks

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
_QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def picture(source: Path, target: Path, height: int) -> None:
    browser = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)
    if browser is None:
        print(f"no Chromium: {target.name} was not drawn", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser,
            *_QUIET,
            f"--user-data-dir={profile}",
            f"--window-size=1240,{height}",
            f"--screenshot={target}",
        ]
        subprocess.run([*command, source.as_uri()], check=True, capture_output=True, timeout=120)


def peers(rows: list[dict[str, Any]]) -> None:
    """One line per shape: how many times as long as ours each peer takes."""
    names = list(dict.fromkeys(row["peer"] for row in rows))
    print("| M×K×N | ours, µs | " + " | ".join(name for name in names if name != "ours") + " |")
    print("|---|---:|" + "---:|" * (len(names) - 1))
    for shape in dict.fromkeys((row["m"], row["k"], row["n"]) for row in rows):
        by = {row["peer"]: row for row in rows if (row["m"], row["k"], row["n"]) == shape}
        cells = [f"{by[n]['times_ours']:.2f}×" if "times_ours" in by.get(n, {}) else "–" for n in names if n != "ours"]
        print(f"| {'×'.join(map(str, shape))} | {by['ours']['median']:,.0f} | {' | '.join(cells)} |")


PAGES = {"model": (page, 1330), "load": (load_page, 780)}  # and the height of their picture
TABLES: dict[str, View] = {"model": MODEL, "load": LOAD, "linear": LINEARS}


def main() -> None:
    DOCS.mkdir(exist_ok=True)
    for path in sorted((HERE / "results").glob("*.jsonl")):
        rows = rows_of(path)
        kind = rows[0]["kind"] if rows and "." not in path.stem else ""
        if kind == "peer":
            peers(rows)
        if kind in PAGES:
            html = DOCS / f"bench-{path.stem}.html"
            drawn, height = PAGES[kind]
            html.write_text(drawn(rows), encoding="utf-8")
            picture(html, DOCS / f"bench-{path.stem}.png", height)
        if kind in TABLES:
            with sinks("md", None, TABLES[kind], rows) as table:
                table.show(rows)
            print()


if __name__ == "__main__":
    main()
