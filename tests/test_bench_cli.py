"""webgpu-bench as a user runs it: formats, refusals, a killed run, comparisons, ops, the roofline."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from webgpu_run.bench.compare import pairs, read
from webgpu_run.bench.op import _shape, find
from webgpu_run.bench.page import page as make_page
from webgpu_run.bench.tables import SCHEMA, sinks
from webgpu_run.bench.views import MODEL as MODEL_VIEW
from webgpu_run.console import outfile
from webgpu_run.errors import FormatError, UnsupportedError
from webgpu_run.gpu import adapters
from webgpu_run.version import __version__

from helpers.command import HERE, Result, execute
from helpers.result_fields import documented

MODEL = HERE / "fixtures" / "tiny_dyn.pte"
QUICK = (MODEL, "-p", "1,8", "-n", "3", "-d", "0,16", "-r", "3", "-w", "1", "--no-roofline")
TESTS = ["pp1", "pp8", "tg3", "pp1 @ d16", "pp8 @ d16", "tg3 @ d16"]
GROUP = pytest.mark.xdist_group("bench")  # so that the run they share is made once
COLUMNS = (
    "model size params device test t/s 95% median ms p90 ms max ms burst step ms ttft ms compile ms host ms GPU ms "
    "attn ms GPU mem peak mem"
)


def bench(*args: str | Path, env: dict[str, str] | None = None) -> Result:
    return execute(sys.executable, "-m", "webgpu_run.cli.bench", *args, env=env)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """One run that most tests look at: JSON lines in a file, a table on stdout, and the page."""
    folder = tmp_path_factory.mktemp("bench")
    result = bench(*QUICK, "--out", folder / "a.jsonl", "--report", folder / "a.html")
    assert result.code == 0, result.err
    return result, folder


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@GROUP
def test_table_has_llama_bench_columns(run: tuple[Result, Path]) -> None:
    lines = run[0].out.splitlines()
    assert " ".join(lines[0].split()) == COLUMNS
    assert [re.split(r"\s{2,}", line.strip())[4] for line in lines[1:]] == TESTS
    assert all(re.search(r"\d+\.\d\d ± \d+\.\d\d +(±\d+\.\d%|over 100%)", line) for line in lines[1:])


def test_small_models_run_in_one_thread_of_a_software_driver() -> None:
    """Unless the user has said otherwise."""
    for said, used in ((None, "0"), ("1", "1")):
        env = {k: v for k, v in os.environ.items() if k != "LP_NUM_THREADS"} | (
            {"LP_NUM_THREADS": said} if said else {}
        )
        result = bench(MODEL, "-p", "1", "-n", "0", "-r", "1", "-w", "0", "--no-roofline", "-o", "jsonl", env=env)
        assert [json.loads(line)["device"]["threads"] for line in result.out.splitlines()] == [used]


@pytest.mark.parametrize(("bits", "profile"), [("256", "software"), ("512", "software-wide"), (None, None)])
def test_vectors_of_a_software_driver(bits: str | None, profile: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As wide as the user has said; otherwise 512 bits if the processor has them."""
    if bits:
        monkeypatch.setenv(adapters.VECTORS, bits)
    else:
        monkeypatch.delenv(adapters.VECTORS, raising=False)
        bits, profile = ("512", "software-wide") if adapters.has_wide_vectors() else ("256", "software")
    result = bench(MODEL, "-p", "1", "-n", "0", "-r", "1", "-w", "0", "--no-tune", "--no-roofline", "-o", "jsonl")
    device = json.loads(result.out)["device"]
    if "llvmpipe" in device["name"]:
        assert (f"{bits} bits" in device["name"], device["profile"]) == (True, profile)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu avx2 avx512f avx512dq avx512cd avx512bw avx512vl avx512_vbmi2 avx512_vnni", True),
        ("fpu avx2 avx512f avx512dq avx512cd avx512bw avx512vl avx512_vnni", False),  # lowers its clock
        ("fpu avx2 avx512_vbmi2", False),
        (None, False),
    ],
)
def test_processors_with_wide_vectors(flags: str | None, expected: bool, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    if flags is not None:
        cpuinfo.write_text(f"processor\t: 0\nmodel name\t: X\nflags\t\t: {flags}\nbugs\t\t: spectre_v1\n")
    assert adapters.has_wide_vectors(str(cpuinfo)) == expected


@GROUP
def test_only_warnings_on_stderr(run: tuple[Result, Path]) -> None:
    """And how often each test ran. (A busy machine is a warning as well.)"""
    rest = [line for line in run[0].err.splitlines() if not line.startswith("warning: ")]
    assert rest == ["3 rounds of 6 tests"]


@GROUP
def test_rows_keep_everything(run: tuple[Result, Path]) -> None:
    rows = rows_of(run[1] / "a.jsonl")
    assert [row["test"] for row in rows] == TESTS
    for row in rows:
        assert row["schema"] == 4
        assert 0 <= row["compile_ms"] <= row["first_run_ms"]
        assert len(row["samples"]) == len(row["wall_ms"]) == len(row["host_ms"]) == 3
        assert row["mean"] == pytest.approx(sum(row["samples"]) / 3, rel=1e-4)
        tokens = row["tokens"]
        assert row["samples"][0] == pytest.approx(tokens / row["wall_ms"][0] * 1e3, rel=1e-3)
        assert len(row["model"]["sha256"]) == 64
        assert row["model"]["params"] > 400_000
        assert row["device"]["driver"]
        assert row["device"]["profile"]
        assert row["device"]["tuned"] in ("measured", "remembered", "default")
        assert {"cpu", "cores", "memory_bytes", "system"} <= set(row["machine"])
        assert row["versions"]["webgpu-run"] == __version__
        assert {"wgpu", "numpy", "python"} <= set(row["versions"])
        assert row["gpu_bytes"] > 0
        assert row["peak_rss_bytes"] > 0
        assert row["dispatches"] > 0
        assert row["settings"] == {
            "repeat": 3, "warmup": 1, "chunk": 127, "fuse": True, "tune": True, "kv": "f32", "method": "forward",
            "prompt": "random", "models": 1,
        }  # fmt: skip
        if row["device"]["timestamps"]:
            assert row["gpu_ms_per"] > 0
            assert sum(op["gpu_us"] for op in row["ops"]) == pytest.approx(row["gpu_ms_per"] * 1e3, rel=0.01)
            assert 0 < row["attention_ms_per"] < row["gpu_ms_per"]
            assert "separate repetitions" in row["gpu_note"]
        assert {*row} | {"adapter_roofline"} == documented("Every row") | documented("model")
    prefill, decode = rows[1], rows[2]
    assert len(prefill["ttft_samples_ms"]) == 3
    assert prefill["ttft_ms"] > 0
    assert decode["ttft_ms"] is None
    assert [len(sample) for sample in decode["token_ms"]] == [3, 3, 3]
    assert 0.5 * decode["wall_ms"][0] < sum(decode["token_ms"][0]) <= decode["wall_ms"][0]  # shares of submissions
    delivered = sum(ms for ms, _ in decode["deliveries"][0])  # the clock is read once more after the last delivery
    assert 0.5 * decode["wall_ms"][0] < delivered <= decode["wall_ms"][0] * 1.001
    assert [sum(count for _, count in sample) for sample in decode["deliveries"]] == [3, 3, 3]
    assert decode["latency_ms"]["max"] == max(ms for sample in decode["deliveries"] for ms, _ in sample)
    assert decode["tokens_per_delivery"] == pytest.approx(9 / sum(map(len, decode["deliveries"])), rel=1e-4)
    assert decode["step_ms"]["max"] == max(max(sample) for sample in decode["token_ms"])


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.data = ""
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]
        self._inside = tag == "script"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.data += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = False


@GROUP
def test_report_is_one_page_that_needs_no_network(run: tuple[Result, Path]) -> None:
    text = (run[1] / "a.html").read_text()
    page = Page()
    page.feed(text)
    assert page.links == []
    assert "url(" not in text
    assert "@import" not in text
    assert page.tags.count("svg") >= 2
    assert "95%: -" not in text
    assert "KV cache f32 · chunk 127 · fusion on · tuning on · prompts random · method forward · warm-up 1" in text
    row = rows_of(run[1] / "a.jsonl")[0]
    assert "it is above the wall time: pp1." in make_page([{**row, "gpu_ms_per": 2 * row["latency_ms"]["median"]}])
    assert "above the wall time" not in make_page([{**row, "gpu_ms_per": 0.5 * row["latency_ms"]["median"]}])
    assert "% roof" not in text
    assert json.loads(page.data) == rows_of(run[1] / "a.jsonl")


@GROUP
@pytest.mark.parametrize("form", ["md", "csv", "json", "jsonl"])
def test_formats(form: str, run: tuple[Result, Path], capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(run[1] / "a.jsonl")
    with sinks(form, None, MODEL_VIEW, rows) as table:
        table.show(rows[:1])
        table.show(rows)
    out = capsys.readouterr().out
    if form == "md":
        head, rule, *body = out.splitlines()
        assert head.startswith("| model ")
        assert set(rule) <= set("|-: ")
        assert len({len(line) for line in (head, rule, *body)}) == 1
        assert len(body) == len(TESTS)
    elif form == "csv":
        found = list(csv.DictReader(io.StringIO(out)))
        assert [row["test"] for row in found] == TESTS
        assert float(found[0]["mean"]) > 0
        assert len(found[0]["samples"].split()) == 3
    else:
        assert (json.loads(out) if form == "json" else [json.loads(line) for line in out.splitlines()]) == rows


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("--seq-lens", "0"), 2, "0 is below 1"),
        (("--seq-lens", "-1"), 2, "not a list"),
        (("--seq-lens", "abc"), 2, "not a list"),
        (("--seq-lens", "1e9"), 2, "not a list"),
        (("--seq-lens", "1,129"), 5, "the maximum is 128"),
        (("--seq-lens", "8", "-d", "121"), 5, "at depth 121, the maximum is 7"),
        (("-n", "200"), 5, "the maximum is 128"),
        (("-d", "5000"), 5, "the model holds 128 tokens, the maximum depth is 127"),
        (("-d", "0,128"), 5, "the maximum depth is 127"),
        (("-p", "none", "-n", "0"), 2, "nothing to measure"),
        (("-r", "0"), 2, "repeat"),
        (("--out", str(MODEL / "a.json")), 2, "no such directory"),
        (("--out", str(MODEL)), 2, "overwrite its own input"),
        (("-o", "yaml"), 2, "yaml"),
    ],
)
def test_refused_before_anything_runs(args: tuple[str, ...], code: int, words: str) -> None:
    result = bench(MODEL, *args)
    assert result.code == code, result.err
    assert result.out == ""
    assert result.err.startswith("webgpu-bench: error: ")
    assert words in result.err.splitlines()[0]


def test_defaults_that_do_not_fit_are_left_out() -> None:
    result = bench(MODEL, "-n", "0", "-r", "1", "-w", "0", "--no-roofline", "-o", "json")
    assert [row["test"] for row in json.loads(result.out)] == ["pp1", "pp64"]
    assert "left out pp512: the model holds 128 tokens" in result.err


def test_a_file_has_the_format_of_its_name(tmp_path: Path) -> None:
    """And stdout the one asked for, which is also that of a file whose name says nothing."""
    quick = (MODEL, "-p", "1", "-n", "0", "-r", "1", "-w", "0", "--no-roofline", "-q")
    result = bench(*quick, "-o", "json", "--out", tmp_path / "a.md")
    assert [row["test"] for row in json.loads(result.out)] == ["pp1"]
    assert (tmp_path / "a.md").read_text().startswith("| model ")
    bench(*quick, "-o", "csv", "--out", tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text().startswith("model_name,")


def test_a_model_that_takes_logits_back_to_the_host() -> None:
    """Where CPU kernels stand between delegates the device cannot choose the token."""
    result = bench(HERE / "fixtures" / "tiny_mixed.pte", "-p", "3", "-n", "2", "-r", "1", "-w", "0", "--no-roofline")
    assert result.code == 0, result.err
    assert len(result.out.splitlines()) == 3


def long_run(out: Path) -> subprocess.Popen[bytes]:
    """More rounds than anyone waits for, as a process whose file has rows of the second round."""
    args = (MODEL, "-p", "1,2", "-n", "0", "-r", "9999", "-w", "0", "--no-roofline", "--out", out)
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    command = [sys.executable, "-m", "webgpu_run.cli.bench", *map(str, args)]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not out.exists() or len(read(str(out))[0][0]["samples"]) < 2):
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("form", ["jsonl", "json"])
def test_killed_run_keeps_its_rows(form: str, tmp_path: Path) -> None:
    out = tmp_path / f"killed.{form}"
    process = long_run(out)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    rows = read(str(out))[0]
    assert [row["test"] for row in rows] == ["pp1", "pp2"]
    assert len({len(row["samples"]) for row in rows}) == 1


def test_interrupt_prints_the_rows_so_far(tmp_path: Path) -> None:
    process = long_run(tmp_path / "a.jsonl")
    process.send_signal(signal.SIGINT)
    try:
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert [re.split(r"\s{2,}", line)[4] for line in out.decode().splitlines()[1:]] == ["pp1", "pp2"]


def test_interrupt_just_after_a_file_is_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is still an interrupt, and the file is whole."""
    real = os.replace

    def late(source: str, target: Path) -> None:
        real(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", late)
    with pytest.raises(KeyboardInterrupt):
        outfile.write(tmp_path / "a.txt", b"whole")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a.txt", b"whole")]


def on_terminal(columns: int, *args: str | Path) -> str:
    """What a terminal of this width is sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    env = {**os.environ, "PYTHONPATH": str(HERE.parent), "TERM": "xterm"}
    env.pop("COLUMNS", None)
    command = [sys.executable, "-m", "webgpu_run.cli.bench", *map(str, args)]
    with subprocess.Popen(command, env=env, stdout=theirs, stderr=subprocess.DEVNULL):
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while chunk := os.read(ours, 65536):
                seen += chunk
    return seen.decode()


def test_a_terminal_has_the_table_from_the_first_round() -> None:
    """Every later round writes over it; what is left at the end is one table."""
    seen = on_terminal(160, MODEL, "-p", "1,2", "-n", "0", "-r", "3", "-w", "0", "--no-roofline", "-q")
    first, *later = re.split(r"\x1b\[\dA\x1b\[J", seen)
    assert len(later) == 3  # the second row of round 1, then rounds 2 and 3
    assert first.count("pp1") == 1
    assert "pp2" not in first
    assert all(table.count("pp1") == table.count("pp2") == 1 for table in later)


@GROUP
@pytest.mark.parametrize("columns", [140, 80, 36, 20])  # on a busy machine intervals have more digits
def test_a_narrow_terminal_has_fewer_columns(columns: int, run: tuple[Result, Path], tmp_path: Path) -> None:
    seen = on_terminal(columns, MODEL, "-p", "1,64", "-n", "0", "-r", "2", "-w", "0", "--no-roofline", "-q")
    about, head, *rows = seen.split("\x1b[J")[-1].splitlines()
    assert "tiny_dyn"[:columns] in about
    assert head.split()[:2] == ["test", "t/s"]
    assert ("median ms" in head, "p90 ms" in head) == (columns > 50, columns > 100)
    assert [row.split()[0] for row in rows] == ["pp1", "pp64"]
    if columns >= 44:
        assert max(map(len, (about, head, *rows))) <= columns


def test_rounds_keep_to_the_budget() -> None:
    result = bench(MODEL, "-p", "1", "-n", "0", "-w", "0", "--no-roofline", "--budget", "0", "-o", "json")
    assert len(json.loads(result.out)[0]["samples"]) == 5
    result = bench(MODEL, "-p", "1", "-n", "0", "-w", "0", "--no-roofline", "-o", "json")
    assert len(json.loads(result.out)[0]["samples"]) == 30


def slower(rows: list[dict[str, Any]], share: float) -> str:
    return "".join(json.dumps({**row, "samples": [s * share for s in row["samples"]]}) + "\n" for row in rows)


def steady(run: tuple[Result, Path]) -> list[dict[str, Any]]:
    rows = rows_of(run[1] / "a.jsonl")
    return [{**row, "samples": [100.0, 101.0, 99.0]} for row in rows]


@GROUP
def test_compare(run: tuple[Result, Path], tmp_path: Path) -> None:
    a, b = tmp_path / "a.jsonl", tmp_path / "b.json"
    a.write_text(slower(steady(run), 1.0))
    b.write_text("[" + ",".join(slower(steady(run), 0.9).splitlines()) + "]")
    same = bench("compare", a, a, "--fail-over", "5%")
    assert same.code == 0
    assert same.out.count("same") == len(TESTS)
    worse = bench("compare", a, b, "--fail-over", "5%")
    assert worse.code == 1
    assert worse.out.count("regression") == len(TESTS)
    assert "0.900×" in worse.out
    assert worse.err == ""
    rows = [{**row, "device": {**row["device"], "profile": "other"}} for row in steady(run)]
    b.write_text(json.dumps(rows))
    assert f"differ in kernels: {steady(run)[0]['device']['profile']}, other" in bench("compare", a, b).err
    b.write_text("[" + ",".join(slower(steady(run), 0.9).splitlines()) + "]")
    assert bench("compare", a, b, "--fail-over", "15%").code == 0
    assert bench("compare", a, b).code == 0
    faster = bench("compare", b, a, "--fail-over", "5%", "-o", "json")
    assert faster.code == 0
    assert {row["verdict"] for row in json.loads(faster.out)} == {"faster"}


@GROUP
def test_compare_says_when_it_cannot_say(run: tuple[Result, Path], tmp_path: Path) -> None:
    """Samples that vary a lot are neither the same nor different, and an interval that says nothing is not shown."""
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    (row,) = steady(run)[:1]
    a.write_text(json.dumps([{**row, "samples": [80.0, 120.0, 90.0, 110.0, 100.0, 95.0]}]))
    b.write_text(json.dumps([{**row, "samples": [118.0, 85.0, 108.0, 92.0, 99.0, 104.0]}]))
    result = bench("compare", a, b, "-o", "json")
    assert result.code == 0
    (compared,) = json.loads(result.out)
    assert compared["verdict"] == "unclear"
    assert 10 < compared["rounds_needed"] < 1000
    assert f"unclear, try -r {compared['rounds_needed']}" in bench("compare", a, b).out
    assert bench("compare", a, b, "--fail-unclear").code == 1
    assert bench("compare", a, b, "--fail-over", "80%", "--fail-unclear").code == 0
    b.write_text(json.dumps([{**row, "samples": [0.001, 500.0]}]))
    (compared,) = json.loads(bench("compare", a, b, "-o", "json").out)
    assert (compared["verdict"], compared["ci95"]) == ("unclear", None)
    assert compared["ratio"] == pytest.approx(compared["b"] / compared["a"])


@GROUP
def test_compare_of_single_samples(run: tuple[Result, Path], tmp_path: Path) -> None:
    """A single sample has no interval, so B cannot fail. Rows that only one file has are named."""
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    rows = steady(run)
    a.write_text(json.dumps(rows))
    b.write_text(json.dumps([{**row, "samples": [50.0]} for row in rows[:-1]] + [{**rows[-1], "test": "tg9"}]))
    result = bench("compare", a, b, "--fail-over", "5%", "-o", "json")
    assert result.code == 0
    assert {(row["verdict"], row["ci95"], row["rounds_needed"]) for row in json.loads(result.out)} == {
        ("unclear", None, 5)
    }
    assert bench("compare", a, b, "--fail-unclear", "-q").code == 1
    for line in ("only in A: tg3 @ d16", "only in B: tg9", "5 of 5 rows have one sample of A or B"):
        assert f"warning: {line}" in result.err


@GROUP
def test_compare_of_bad_files(run: tuple[Result, Path], tmp_path: Path) -> None:
    good, bad = run[1] / "a.jsonl", tmp_path / "bad.jsonl"
    cut = good.read_text()[:-20]
    bad.write_text(cut)
    result = bench("compare", good, bad)
    assert result.code == 0
    assert "the last line is incomplete" in result.err
    for text, error in (
        ("", FormatError),
        ("{}\n", FormatError),
        ("not json\n", FormatError),
        ('{"test": "pp1", "samples": [1], "schema": 99}', UnsupportedError),
        ('{"test": "pp1", "samples": ["x"], "schema": 1}', FormatError),
    ):
        bad.write_text(text)
        with pytest.raises(error):
            read(str(bad))
    bad.write_text('{"test": "other", "samples": [1], "schema": 1}')
    result = bench("compare", good, bad)
    assert result.code == 3
    assert result.err.startswith("webgpu-bench: error: the files have no test in common")
    assert bench("compare", good, tmp_path / "missing.json").code == 3
    assert bench("compare", good, good, "--fail-over", "lots").code == 2


def test_files_of_earlier_versions_are_readable() -> None:
    """Those in bench/results are of the first schema."""
    results = (HERE.parent / "bench" / "results").glob("*.jsonl")
    instructions = ("radv.jsonl", "attention.jsonl")  # not times
    for path in sorted(path for path in results if path.name not in instructions):
        rows, warning = read(str(path))
        assert warning is None
        assert all(row["schema"] < SCHEMA for row in rows)
        assert len(pairs(rows, rows)) == len(rows)
        if all(row["kind"] == "model" for row in rows):
            assert make_page(rows).count("<svg") >= 2


def test_op() -> None:
    result = bench("op", "sigmoid", "-r", "2", "--no-roofline", "-o", "jsonl")
    assert result.code == 0, result.err
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert rows
    for row in rows:
        assert row["kind"] == "op"
        assert row["error"] <= row["tolerance"]
        assert row["bytes"] > 0
        assert len(row["samples"]) == 2
        assert row["route"]


def test_rows_of_ops_have_names_of_their_own() -> None:
    """Else compare would hold one row against another."""
    cases = [(op, i, case) for op in find(["all"]) for i, case in enumerate(op.cases)]
    names = [(op.name, i, _shape(op, case, live)) for op, i, case in cases for live in ({}, *case.live)]
    assert len(names) == len(set(names))


def test_unknown_op_suggests_one() -> None:
    result = bench("op", "sigmoyd")
    assert result.code == 2
    assert "did you mean sigmoid" in result.err
    result = bench("op", "nosuch")
    assert re.fullmatch(r"hint: there are (\w+, )+\w+", result.err.splitlines()[1])
    assert ", sigmoid, " in result.err


def test_other_commands_are_suggested_and_have_help_of_their_own() -> None:
    result = bench("rooflin")
    assert (result.code, result.err.splitlines()) == (
        2,
        ["webgpu-bench: error: no such command or file (rooflin)", "hint: did you mean webgpu-bench roofline?"],
    )
    for args in (("op",), ("op", "--nosuch"), ("op", "all", "-r", "0")):
        assert bench(*args).err.splitlines()[1] == "hint: see webgpu-bench op --help"


def test_roofline() -> None:
    result = bench("roofline", "-o", "json")
    assert result.code == 0, result.err
    rows = {row["test"]: row for row in json.loads(result.out)}
    assert all(row["mean"] >= 0 for row in rows.values())
    names = " ".join(rows)
    for what in ("copy storage vec4", "read storage texture", "read uniform", "FMA f32", "empty dispatch", "encode"):
        assert what in names
    assert {row["unit"] for row in rows.values()} == {"GB/s", "GFLOP/s", "µs"}


def test_help_teaches_and_is_light() -> None:
    script = "import sys\nfrom webgpu_run.cli.bench import main\ntry:\n    main()\nexcept SystemExit: pass\n"
    script += "print(sorted({'wgpu', 'numpy', 'rich'} & set(sys.modules)))"
    result = execute(sys.executable, "-c", script, "--help")
    assert result.out.splitlines()[-1] == "[]"
    for word in ("--seq-lens", "compare A B", "roofline", "pp512", "tg32", "Examples:"):
        assert word in result.out
    assert "NAME" in bench("op", "--help").out


def test_closed_pipe_ends_quietly() -> None:
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    command = f"{sys.executable} -m webgpu_run.cli.bench {MODEL} -p 1-3 -n 0 -r 1 -w 0 --no-roofline -q | head -1"
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, timeout=60)
    assert done.stdout.startswith(b"model")
    assert done.stderr == b""
