"""webgpu-bench load: time and memory against the size of the file, and the page that draws them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from webgpu_run.bench.page import load_page
from webgpu_run.bench.svg import Point, Series, decades, lines
from webgpu_run.bench.tables import bytes_text

from helpers.command import HERE, Result, execute
from helpers.result_fields import documented

SMALL, LARGE = HERE / "fixtures" / "tiny_inline.pte", HERE.parent / "webgpu_run" / "bundled" / "model.pte"


def load(*args: str | Path) -> Result:
    return execute(sys.executable, "-m", "webgpu_run.cli.bench", "load", *args)


def test_rows_by_size_and_a_page(tmp_path: Path) -> None:
    out, page = tmp_path / "load.jsonl", tmp_path / "load.html"
    result = load(LARGE, SMALL, "-r", "2", "--out", out, "--report", page)
    assert result.code == 0, result.err
    small, large = (json.loads(line) for line in out.read_text().splitlines())
    for row, path in ((small, SMALL), (large, LARGE)):
        assert row["test"] == f"load {path.name}"
        assert {*row} == documented("Every row") | documented("load")
        assert row["model"]["bytes"] == path.stat().st_size
        assert len(row["samples"]) == len(row["first_samples_ms"]) == 2
        assert 0 < row["base_rss_bytes"] <= row["load_rss_bytes"] <= row["peak_rss_bytes"]
        assert row["gpu_bytes"] > row["model"]["bytes"]  # weights, caches and activations
    assert small["gpu_bytes"] < large["gpu_bytes"]
    assert [line.split()[0] for line in result.out.splitlines()[1:]] == [SMALL.name, LARGE.name]
    text = page.read_text()
    assert text.count("<svg") == 2
    assert "process, peak" in text
    alone = load_page([small])
    assert alone.count("<svg") == 2
    assert all(f">load {i}<" in alone for i in (1, 2))
    assert f">{bytes_text(small['gpu_bytes'])}<" in alone
    same = execute(sys.executable, "-m", "webgpu_run.cli.bench", "compare", out, out, "--fail-over", "5%")
    assert same.code == 0
    assert sum(same.out.count(verdict) for verdict in ("same", "unclear")) == 2


def test_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pte"
    bad.write_bytes(SMALL.read_bytes()[:1000])
    result = load(SMALL, bad)
    assert result.code == 3
    assert result.out == ""
    assert len(result.err.splitlines()) <= 2
    assert load(SMALL, "--out", SMALL).code == 2


def test_a_load_that_fails_in_its_process_is_one_line() -> None:
    """The child is told of a device that is not there."""
    result = execute(sys.executable, "-m", "webgpu_run.bench.load", json.dumps([str(SMALL), "no such device"]))
    assert result.code == 2
    assert len(result.err.splitlines()) == 1
    assert "names no adapter" in result.err


def test_logarithmic_axes() -> None:
    assert decades(0.05, 700) == [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]
    assert decades(1, 1) == [1.0, 10.0]
    drawn = lines([Series("a", (Point(1, 1), Point(10, 10), Point(100, 100)))], "x", "y", log="xy")
    places = [p.split(",") for p in drawn.partition('points="')[2].partition('"')[0].split()]
    (x0, y0), (x1, y1), (x2, y2) = ((float(x), float(y)) for x, y in places)
    assert abs((x1 - x0) - (x2 - x1)) < 0.2
    assert abs((y1 - y0) - (y2 - y1)) < 0.2
    assert y2 < y0
