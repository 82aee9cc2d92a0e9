"""What users of other runners type, as real processes: short forms, hints, chat input, output that adds up."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from webgpu_run.cli.chat_loop import _line_reader
from webgpu_run.cli.run_totals import RunTotals
from webgpu_run.console.progress import Progress

from helpers.command import webgpu_run
from helpers.language import FIXTURES, folder, on_terminal, start

SHORT = ("-n", "3", "--ignore-eos")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("tiny"))


def plain(seen: str) -> str:
    """What a terminal showed, without control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen).replace("\r", "")


def test_a_prompt_in_several_forms(model: Path, tmp_path: Path) -> None:
    want = webgpu_run(model, "--prompt", "so it is", *SHORT, "-q").out
    assert want.strip()
    (file := tmp_path / "p.txt").write_text("so it is")
    for args in (
        (model, "so it is"),
        ("-m", model, "so it is"),
        ("so it is", "--model", model),
        ("-m", model, "-p", "so it is"),
        (model, "-f", file, "--max-tokens", "3"),
    ):
        assert webgpu_run(*args, *SHORT, "-q").out == want
    drawn = [
        webgpu_run(model, "so it is", *SHORT, flag, "2", "--seed", "4").out for flag in ("--temp", "--temperature")
    ]
    assert drawn[0] == drawn[1] != want
    for args in (("-m", model, model, "so"), (model, "so", "--prompt", "it")):
        assert webgpu_run(*args).code == 2


def test_no_limit(model: Path) -> None:
    result = webgpu_run(model, "so it is", "-n", "-1", "--ignore-eos", "--stats", "json")
    told = json.loads(result.err.splitlines()[-1])
    assert (told["stop"], told["prefill"]["tokens"] + told["decode"]["tokens"]) == ("context", 128)
    for wrong in ("0", "-2", "x"):
        assert webgpu_run(model, "so it is", "-n", wrong).code == 2


def test_one_hint_at_the_template(model: Path) -> None:
    hint = "hint: --chat applies the model's chat template"
    assert webgpu_run(model, "so it is", *SHORT).err.count(hint) == 1
    for other in (
        (model, "so it is", "-q"),
        (model, "<|im_start|>user"),
        (FIXTURES / "tiny_dyn.pte", "--prompt-ids", "5"),
    ):
        assert hint not in webgpu_run(*other, *SHORT).err


def test_near_names_of_files(model: Path, tmp_path: Path) -> None:
    result = webgpu_run(model.with_name("modle.pte"), "hi")
    assert result.code == 3
    assert result.err.splitlines()[1] == f"hint: did you mean {model}?"
    assert "hint" not in webgpu_run(model.with_name("other.bin"), "hi").err
    inside = folder(tmp_path / "models" / "tiny").parent
    result = webgpu_run(inside.parent, "hi")
    assert (result.code, result.err.splitlines()[1]) == (3, f"hint: did you mean {inside}?")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Once upon a time", "a prompt comes after the model, or after --prompt"),
        ("Qwen/Qwen3-0.6B", "models are not downloaded by name; examples/export/README.md says how to get one"),
        ("qwen3:0.6b", "models are not downloaded by name; examples/export/README.md says how to get one"),
    ],
)
def test_what_is_no_file(name: str, hint: str) -> None:
    result = webgpu_run(name)
    assert (result.code, result.err.splitlines()[1]) == (3, f"hint: {hint}")


def test_a_model_alone_on_a_terminal_is_a_chat(model: Path, tmp_path: Path) -> None:
    code, seen = on_terminal(model, "-n", "2", then=[("> ", "/exit\n")])
    assert (code, "/help, /reset, /save, /load, /exit" in seen) == (0, True)
    plain_folder = folder(tmp_path, template="")
    (plain_folder.parent / "tokenizer_config.json").write_text("{}")
    code, seen = on_terminal(plain_folder, "-n", "2")
    assert (code, "'Once upon a time' is used" in plain(seen)) == (0, True)


def prefills(err: bytes) -> list[int]:
    calls = [json.loads(line) for line in err.decode().splitlines()]
    return [call["tokens"] for call in calls if call["phase"] == "prefill"]


def test_piped_input_is_one_message_or_turns(model: Path) -> None:
    for extra, count in (((), 1), (("--turns",), 2)):
        process = start(
            model, "--chat", *SHORT, "--trace-resize=json", "--stats", "none", *extra, stdin=subprocess.PIPE
        )
        _, err = process.communicate(b"who is it\n\nand you\n", timeout=180)
        assert (process.returncode, len(prefills(err))) == (0, count)


@pytest.mark.parametrize(
    "typed",
    ["\x1b[200~who\nis it\x1b[201~\n", "who\\\nis it\n", '"""who\nis it"""\n', '"""\nwho\nis it\n"""\n'],
    ids=["paste", "backslash", "quotes", "quotes of their own"],
)
def test_a_message_of_several_lines(typed: str, model: Path) -> None:
    """It has as many tokens as the same message from a pipe."""
    process = start(model, "--chat", *SHORT, "--trace-resize=json", "--stats", "none", stdin=subprocess.PIPE)
    (want,) = prefills(process.communicate(b"who\nis it\n", timeout=180)[1])
    code, seen = on_terminal(model, *SHORT, "-v", then=[("> ", typed), ("tok/s", "/exit\n")])
    assert (code, re.findall(r"prefill (\d+) tok", plain(seen))) == (0, [str(want)] * 2), plain(seen)


def test_ctrl_c_discards_a_message_of_several_lines(model: Path) -> None:
    then = [("> ", '"""half\n'), (". ", "\x03"), ("> ", "who\n"), ("cut off", "/exit\n")]
    code, seen = on_terminal(model, *SHORT, then=then)
    assert code == 0
    assert "[cut off after 3 tokens: -n sets the limit]" in plain(seen)


def test_speed_of_each_turn_and_where_a_reply_was_cut(model: Path) -> None:
    process = start(model, "--chat", "--turns", *SHORT, "-v", stdin=subprocess.PIPE)
    _, err = process.communicate(b"who\nwhy\n", timeout=180)
    lines = err.decode().splitlines()
    assert sum(line == "[cut off after 3 tokens: -n sets the limit]" for line in lines) == 2
    assert sum(bool(re.match(r"prefill \d+ tok .* · decode 2 tok .* · ttft", line)) for line in lines) == 2


def test_bytes_that_are_not_utf8_are_told(model: Path, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes(b"caf\xe9")
    result = webgpu_run(model, "--prompt-file", tmp_path / "p.txt", *SHORT)
    assert (
        result.err.count(f"warning: the prompt is not UTF-8; the bytes that are wrong became \ufffd ({tmp_path}") == 1
    )
    (tmp_path / "p.txt").write_bytes("café \ufffd".encode())
    assert "UTF-8" not in webgpu_run(model, "--prompt-file", tmp_path / "p.txt", *SHORT).err


def test_the_stats_line_adds_up(model: Path) -> None:
    """Parts are at most the whole, and line and JSON count the same."""
    args = (model, "so it is", "-n", "20", "--ignore-eos")
    told = json.loads(webgpu_run(*args, "--stats", "json").err.splitlines()[-1])
    parts = (told["load_ms"], told["compile_ms"], told["prefill"]["ms"], told["decode"]["ms"])
    assert min(parts) > 0
    assert sum(parts) <= told["total_ms"]
    assert told["total_ms"] - sum(parts) < 0.25 * told["total_ms"]
    assert told["ttft_ms"] <= told["total_ms"] - told["load_ms"]
    line = webgpu_run(*args).err.splitlines()[-1]
    for name in ("prefill", "decode"):
        assert f"{name} {told[name]['tokens']} tok " in line
    times = [float(ms.replace(",", "")) for ms in re.findall(r"(?:load|compile|tok) ([\d,]+) ms", line)]
    total = re.search(r"total ([\d,]+) ms", line)
    assert total
    assert len(times) == 4
    assert sum(times) <= float(total[1].replace(",", "")) + 2


def test_a_chat_on_a_narrow_terminal(model: Path) -> None:
    """Lines break between their parts and words."""
    code, seen = on_terminal(model, *SHORT, "-v", then=[("> ", "who is it\n"), ("ttft", "/exit\n")], columns=60)
    lines = [line.rstrip() for line in plain(seen).splitlines() if "━" not in line]  # no progress bars
    assert code == 0
    assert max(map(len, lines)) <= 60
    assert "/help, /reset, /save, /load, /exit; Ctrl-C ends a reply," in lines
    assert sum(bool(re.fullmatch(r"prefill \d+ tok [\d,]+ ms [\d,.]+ tok/s ·", line)) for line in lines) == 2, lines


def test_the_time_to_think_of_a_question_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(read))
    totals = RunTotals(time.perf_counter_ns())
    threading.Timer(0.5, os.write, (write, b"who is it\n")).start()
    printer = SimpleNamespace(progress=Progress(quiet=True), totals=totals)
    assert _line_reader(printer)("> ") == "who is it"  # type: ignore[arg-type]
    os.close(write)
    assert totals.as_dict()["total_ms"] < 400 <= totals.waited_ns / 1e6


def test_a_check_that_found_nothing_says_so(model: Path) -> None:
    result = webgpu_run(model, "so it is", *SHORT, "--nan-check")
    found = re.search(r"^nan-check: (\d+) op outputs have no NaN and no new infinity$", result.err, re.M)
    assert found
    assert int(found[1]) > 10


def test_trace_lines_count_everything() -> None:
    result = webgpu_run(FIXTURES / "tiny_dyn.pte", "--prompt-ids", "3,5,7", "-n", "9", "--trace-resize")
    lines = [line for line in result.err.splitlines() if line.startswith("call")]
    assert len(lines) == 3
    for line in lines:
        found = re.search(r"(\d+) of (\d+) nodes planned, (\d+) numbers? changed, (\d+) skipped", line)
        assert found, line
        planned, total, changed, skipped = map(int, found.groups())
        assert planned + changed + skipped == total


def test_a_repeat_penalty_gives_the_same_on_device_and_host(model: Path) -> None:
    """Without fusion the host chooses every id."""
    args = (model, "so it is", "-n", "24", "--ignore-eos", "-q", "--repeat-last-n", "16", "--repeat-penalty")
    for drawn in ((), ("--temp", "0.9", "--seed", "3")):
        on_device, on_host, without = (
            webgpu_run(*args, *more, *drawn).out for more in (("1.5",), ("1.5", "--no-fuse"), ("1",))
        )
        assert on_device == on_host != without
    for wrong in ("0", "nan", "101"):
        assert webgpu_run(*args, wrong).code == 2


def test_timings_in_files(tmp_path: Path) -> None:
    args = (FIXTURES / "tiny_dyn.pte", "--prompt-ids", "5,6,7", "-n", "3", "--stats", "json")
    for name in ("t.csv", "t.json"):
        result = webgpu_run(*args, "--timings-out", tmp_path / name)
        assert result.code == 0, result.err
        told = json.loads(result.err.splitlines()[-1])["timings"]
        if name == "t.json":
            assert json.loads((tmp_path / name).read_text()) == told
            continue
        with (tmp_path / name).open() as file:
            rows = list(csv.DictReader(file))
        assert sum(int(row["gpu_ns"]) for row in rows if row["phase"] == "decode") == told["decode"]["gpu_ns"]
        assert len(rows) == sum(len(phase["rows"]) for phase in told.values())
    result = webgpu_run(*args, "--timings-out", tmp_path / "t.txt")
    assert (result.code, "must end with .csv or .json" in result.err) == (2, True)


def test_the_timeline_names_layers_and_the_parts_of_loading(tmp_path: Path) -> None:
    webgpu_run(FIXTURES / "tiny_dyn.pte", "--prompt-ids", "5,6,7", "-n", "3", "--trace", tmp_path / "t.json")
    spans = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e["ph"] == "X"]
    load, *parts = spans[:4]
    assert [e["name"] for e in (load, *parts)] == ["load", "prompt and tokenizer", "device and plans", "weights"]
    assert abs(sum(e["dur"] for e in parts) - load["dur"]) < 1
    layers = {e["args"]["layer"] for e in spans if e["cat"] == "gpu"}
    assert layers == {None, 0, 1}
    assert all(e["name"].endswith(f" · layer {n}") for e in spans if (n := e["args"].get("layer")) is not None)
