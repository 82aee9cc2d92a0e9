"""On narrow terminals, --inspect and the stats line fold and shrink, and never split a number."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from webgpu_run.bench.op import VIEW
from webgpu_run.bench.tables import Sink
from webgpu_run.console.narrow import Parts, TextBar

from helpers.command import webgpu_run
from helpers.language import FIXTURES, on_terminal

DIGITS = re.compile(r"\S*\d\S*")
ESCAPES = re.compile(r"\x1b\[[\d;?]*[a-zA-Z]")


def lines(item: object, width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as seen:
        console.print(item)
    return seen.get().splitlines()


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("model", ["tiny_dyn", "tiny_nosdpa"])
def test_inspect_shows_the_same_words_with_digits(model: str, columns: int, tmp_path: Path) -> None:
    path: Path = FIXTURES / f"{model}.pte"
    cache = str(tmp_path)  # another test may measure a roofline in between, which --inspect would show
    shown = (
        ESCAPES.sub("", on_terminal(path, "--inspect", columns=c, XDG_CACHE_HOME=cache)[1]) for c in (200, columns)
    )
    wide, narrow = (re.sub(r"of [\d.]+( [GMk]?B)", r"of N\1", text) for text in shown)  # free memory changes
    hidden = Counter(DIGITS.findall(wide)) - Counter(DIGITS.findall(narrow))
    assert not Counter(DIGITS.findall(narrow)) - Counter(DIGITS.findall(wide))
    assert not hidden or (model == "tiny_nosdpa" and "largest binding" not in narrow.split("ops of")[0])
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= columns


def test_no_table_splits_a_number() -> None:
    """A number of a narrow table is one of the wide table. Only the hashes of --inspect size are cut short."""
    file, number = FIXTURES / "tiny_dyn.pte", re.compile(r"[\d.,]*\d")
    for view in ("ops", "tensors", "size", "values"):
        wide, *narrow = (webgpu_run(file, "--inspect", view, env={"COLUMNS": str(c)}).out for c in (400, 80, 60))
        known = set(number.findall(wide))
        for columns, shown in zip((80, 60), map(str.splitlines, narrow), strict=True):
            assert max(map(len, shown)) <= columns
            assert all(re.match(r" *0x\w+ +[\d,]+ +\w", line) for line in shown if "…" in line)
            assert [n for line in shown if "…" not in line for n in number.findall(line) if n not in known] == []


@pytest.mark.parametrize("columns", [60, 80])
def test_timings_keep_their_numbers_whole(columns: int) -> None:
    args = ("--prompt-ids", "5,6,7", "-n", "3", "--timings")
    result = webgpu_run(FIXTURES / "tiny_dyn.pte", *args, env={"COLUMNS": str(columns)})
    table = [line for line in result.err.splitlines() if re.match(r"(linear|attention|embedding|pick)\S* ", line)]
    assert len(table) > 8
    assert all(re.search(r"  [\d,]+\.\d  +\d+\.\d%", line) and len(line) <= columns for line in table)
    assert "linear_q4gsw · gemv+add " in result.err
    kernels = [line for line in result.err.splitlines() if re.fullmatch(r"  [a-z_]\w+", line)]
    assert len(kernels) == len(table)


def test_parts_are_split_between_them_only() -> None:
    line = "prefill 4 tok 78.2 tok/s · decode 128 tok 24.9 tok/s · GPU 192 MB · stop: length"
    for width in range(27, 100):
        shown = lines(Parts.of(line), width)
        assert max(map(len, shown)) <= width
        assert [part for text in shown for part in text.removesuffix(" ·").split(" · ")] == line.split(" · ")


def test_a_bar_fills_the_width_and_no_more() -> None:
    for width in (8, 30, 36, 50):
        (shown,) = lines(TextBar([(0.24, "a", "red"), (0.24, "b", "red"), (0.52, "c", "red")], 36), width)
        assert len(shown) == min(width, 36)
    assert lines(Parts([Text("a", "red"), Text("b")], ", "), 80) == ["a, b"]


def test_a_narrow_table_of_ops_shows_op_and_case_above_their_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line is longer than the terminal, and no two rows look the same because a column is missing."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    rows = [
        {"op": op, "case": 0, "shape": shape, "route": "gemm", "for": kind, "median": 123.4, "p90": 130.0}
        for op in ("et_vk.linear_q4gsw.default", "et_vk.rms_norm.default")
        for shape in ("x 1×19×576 · w 192×288", "x 1×1×576 · w 192×288")
        for kind in ("software", "gpu")
    ]
    sink = Sink("table", VIEW, rows)
    for row in rows:
        sink.row(row)
    sink.close()
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= 60
    assert shown[0] == "et_vk.linear_q4gsw · 0: x 1×19×576 · w 192×288"
    assert shown[1].split()[:3] == ["route", "for", "µs"]
    assert [line.split()[:3] for line in shown[2:4]] == [["gemm", "software", "123.4"], ["gemm", "gpu", "123.4"]]
    assert len(shown) == 1 + 4 + len(rows)
