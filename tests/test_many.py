"""Many prompts: forms of rows, error rows, and a journal that survives kill -9."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from webgpu_run import LLM, Reply, UsageError
from webgpu_run.console.journal import Journal
from webgpu_run.gpu.device import Device

from helpers.command import webgpu_run
from helpers.language import FIXTURES, folder, on_terminal, start

QUICK = ("-n", "4", "--ignore-eos", "-q")
ROWS: tuple[dict[str, Any], ...] = (
    {"id": "first", "prompt": "so it is"},
    {"id": 7, "ids": [5, 6, 7], "max_new_tokens": 2},
    {"messages": [{"role": "user", "content": "who is it"}]},
    {"id": "drawn", "prompt": "in the", "temperature": 1.5, "seed": 9, "stop": ["zz"]},
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def llm(model: Path, device: Device) -> LLM:
    return LLM(model, device=device)


def write(path: Path, rows: Any) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    text = path.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.endswith("_ms")} for row in rows]


def test_rows_in_every_form_give_the_replies_of_single_runs(model: Path, llm: LLM, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    result = webgpu_run(model, "--prompts", write(tmp_path / "in.jsonl", ROWS), "--out", out, *QUICK)
    assert (result.code, result.err, result.out) == (0, "", "")
    rows = read(out)
    assert [row["id"] for row in rows] == ["first", 7, 3, "drawn"]
    four: dict[str, Any] = {"max_new_tokens": 4, "ignore_eos": True}
    singles: list[Callable[[], Reply]] = [
        lambda: llm.generate("so it is", **four),
        lambda: llm.generate([5, 6, 7], max_new_tokens=2, ignore_eos=True),
        lambda: llm.chat(ROWS[2]["messages"], **four),
        lambda: llm.generate("in the", temperature=1.5, seed=9, **four),
    ]
    for row, single in zip(rows, singles, strict=True):
        llm.reset()
        reply = single()
        assert (row["text"], row["ids"], row["reason"]) == (reply.text, reply.ids, reply.reason)
        assert (row["prompt_tokens"], row["new_tokens"]) == (len(reply.prompt_ids), len(reply.ids))
        assert row["prefill_ms"] > 0 < row["decode_ms"]
    assert [row["seed"] for row in rows] == [None, None, None, 9]
    assert list(tmp_path.glob("*")) == [tmp_path / "in.jsonl", out]


def test_plain_lines_on_stdout_and_seeds_that_can_be_used_again(model: Path, llm: LLM, tmp_path: Path) -> None:
    text = tmp_path / "in.txt"
    text.write_bytes(b"so it is\n\n  in the\r\n")
    drawn = ("--temp", "1.3", "--seed", "40", "--chat", "--system", "be short")
    rows = [json.loads(line) for line in webgpu_run(model, "--prompts", text, *drawn, *QUICK).out.splitlines()]
    assert [(row["id"], row["seed"]) for row in rows] == [(1, 40), (3, 41)]
    for row, prompt in zip(rows, ("so it is", "in the"), strict=True):
        messages = [{"role": "system", "content": "be short"}, {"role": "user", "content": prompt}]
        llm.reset()
        reply = llm.chat(messages, max_new_tokens=4, temperature=1.3, seed=row["seed"], ignore_eos=True)
        assert reply.ids == row["ids"]


def test_rows_on_stdout_are_in_the_order_of_the_input(model: Path, tmp_path: Path) -> None:
    """A short reply ends first, and a row that cannot be run is known at once."""
    lengths = {"long": 12, "short": 2, "bad": 0, "last": 3}
    rows = [{"id": name, "ids": [5, 6, 7], "max_new_tokens": count} for name, count in lengths.items()]
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = webgpu_run(model, "--prompts", file, "--parallel", "2", "--ignore-eos", "-q")
    got = [json.loads(line) for line in result.out.splitlines()]
    assert [row["id"] for row in got] == list(lengths)
    assert [len(row.get("ids", ())) for row in got] == list(lengths.values())


BAD = {
    "{oops": "not JSON",
    "[1, 2]": "not a JSON object",
    "[" * 100_000: "not JSON",
    '{"id": 1}': "none",
    '{"prompt": "a", "ids": [1]}': "prompt and ids",
    '{"id": "named", "prompt": "a", "temprature": 1}': "temprature",
    '{"prompt": "a", "temperature": "hot"}': "temperature",
    '{"prompt": "a", "temperature": -1}': "temperature",
    '{"prompt": "a", "top_k": true}': "top_k",
    '{"prompt": "a", "seed": 18446744073709551616}': "seed",
    '{"prompt": "a", "stop": [1]}': "stop",
    '{"prompt": "a", "max_new_tokens": 0}': "max_new_tokens",
    '{"prompt": "a", "id": 1.5}': "id",
    '{"prompt": 5}': "prompt",
    '{"prompt": ""}': "empty",
    '{"ids": []}': "no tokens|empty",
    '{"ids": [1, 512]}': "512",
    '{"ids": [-1]}': "-1",
    '{"messages": [{"role": "user"}]}': "messages",
    json.dumps({"ids": [1] * 129}): "context",
}


def test_a_bad_row_is_an_error_row_and_the_others_continue(model: Path, tmp_path: Path) -> None:
    lines = [*BAD, json.dumps(ROWS[0]), '{"prompt": "\\ud800 half a character", "top_k": 4294967296, "temperature": 1}']
    out = tmp_path / "out.jsonl"
    result = webgpu_run(model, "--prompts", write(tmp_path / "in.jsonl", lines), "--out", out, "-n", "2")
    assert (result.code, f"{len(lines)} rows · {len(BAD)} errors" in result.err) == (0, True)
    rows = read(out)
    for row, (line, what) in zip(rows, BAD.items(), strict=False):
        assert set(row) == {"id", "error"}
        assert any(part in row["error"] for part in what.split("|")), (line[:80], row)
    assert rows[5]["id"] == "named"
    assert [len(row["ids"]) for row in rows[len(BAD) :]] == [2, 2]


def test_refusals(model: Path, tmp_path: Path) -> None:
    prompts, out = write(tmp_path / "in.jsonl", ROWS), tmp_path / "out.jsonl"
    empty = write(tmp_path / "empty.txt", [])
    for args in (
        ("--prompts", tmp_path / "none.jsonl"),
        ("--prompts", empty),
        ("--prompts", prompts, "--out", prompts),
        ("--prompts", prompts, "--prompt", "x"),
        ("--prompts", prompts, "--timings"),
        ("--prompts", prompts, "--system", "x"),
        ("--prompts", prompts, "--out", tmp_path / "no" / "out.jsonl"),
        ("--prompts", prompts, "--out", "/dev/null"),
        ("--prompt", "x", "--out", out),
    ):
        result = webgpu_run(model, *args, *QUICK)
        assert (result.code, len(result.err.splitlines())) in ((2, 1), (2, 2)), (args, result.err)
    (tmp_path / "out.jsonl.journal").write_text("my own notes\nfor today\n")
    result = webgpu_run(model, "--prompts", prompts, "--out", out, *QUICK)
    assert (result.code, "not a journal" in result.err) == (2, True)
    assert (tmp_path / "out.jsonl.journal").read_text() == "my own notes\nfor today\n"


def test_a_journal_of_other_rows_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with Journal(out, {"input": "a", "-n": 3}) as journal:
        journal.begin(17)
        journal.add(2, {"id": "ä"})
        with pytest.raises(UsageError, match="another process"):
            Journal(out, {"input": "a", "-n": 3})
    for key, what in (({"input": "b", "-n": 3}, "another input"), ({"input": "a", "-n": 4}, "another -n")):
        with pytest.raises(UsageError, match=what):
            Journal(out, key)
    with Journal(out, {"input": "a", "-n": 3}) as journal:
        journal.begin(18)
        assert (journal.seed, len(journal), 2 in journal, 0 in journal) == (17, 1, True, False)
        journal.add(0, {"id": 0})
        assert not out.exists()
        journal.finish()
    assert out.read_text() == '{"id": 0}\n{"id": "ä"}\n'
    assert os.listdir(tmp_path) == ["out.jsonl"]


def test_a_journal_that_was_cut_anywhere_continues(tmp_path: Path) -> None:
    out, rows = tmp_path / "out.jsonl", [{"id": i, "text": f"é\n{i}"} for i in range(3)]
    with Journal(out, {"input": "a"}) as journal:
        journal.begin(5)
        for i, row in enumerate(rows):
            journal.add(i, row)
    whole = journal.path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    damaged = [whole[:cut] for cut in range(len(whole))]
    damaged += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(ends[0], len(whole))]
    damaged += [whole[: ends[1]] + bytes(50)]
    for data in damaged:
        journal.path.write_bytes(data)
        with Journal(out, {"input": "a"}) as again:
            assert len(again) == max(0, sum(data[:end] == whole[:end] for end in ends) - 1)
            again.begin(5)
            for i, row in enumerate(rows):
                if i not in again:
                    again.add(i, row)
            again.finish()
        assert out.read_text() == "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def test_kill_9_at_random_moments(model: Path, tmp_path: Path) -> None:
    dice = random.Random(6)
    prompts = [{"id": i, "prompt": "so it is " * (1 + i % 5), "max_new_tokens": 20 + i % 7} for i in range(60)]
    source = write(tmp_path / "in.jsonl", [*prompts, "{bad"])
    args = (model, "--prompts", source, "--temp", "1.2", "--seed", "3", "--ignore-eos", "-q", "--out")
    whole = tmp_path / "whole.jsonl"
    assert webgpu_run(*args, whole).code == 0
    out, journal = tmp_path / "out.jsonl", tmp_path / "out.jsonl.journal"
    kills = 0
    for _ in range(6):
        size = journal.stat().st_size if journal.exists() else 0
        process = start(*args, out)
        growth = dice.choice((0, 100, 1000, 4000))
        while process.poll() is None and (not journal.exists() or journal.stat().st_size < size + growth):
            time.sleep(0.002)
        time.sleep(dice.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -9
        assert out.exists() == (process.returncode == 0)
    assert kills >= 4
    assert journal.stat().st_size > 2000
    other = webgpu_run(*args[:-1], "-n", "3", "--out", out)
    assert (other.code, "max-new-tokens" in other.err) == (2, True)
    assert webgpu_run(*args, out).code == 0
    assert timeless(read(out)) == timeless(read(whole))
    assert not journal.exists()


def test_ctrl_c_keeps_what_is_done(model: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [{"prompt": "so it is", "max_new_tokens": 100} for _ in range(500)])
    out, journal = tmp_path / "out.jsonl", tmp_path / "out.jsonl.journal"
    process = start(model, "--prompts", source, "--out", out, "--ignore-eos")
    while process.poll() is None and not (journal.exists() and journal.stat().st_size > 2000):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, b"of 500 rows are done; the same command continues" in err) == (130, True)
    assert not out.exists()


def test_progress_on_a_terminal(model: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [{"prompt": "so it is"} for _ in range(30)])
    code, seen = on_terminal(model, "--prompts", source, "--out", tmp_path / "out.jsonl", "-n", "30", columns=100)
    assert (code, "/30" in seen, "tok/s" in seen, "left" in seen) == (0, True, True, True)


def test_generate_many(llm: LLM) -> None:
    prompts = ["so it is", [5, 6, 7], ROWS[2]["messages"], ROWS[3], {"prompt": "x", "top_p": 7}]
    done = list(llm.generate_many(prompts, max_new_tokens=4, ignore_eos=True, seed=3))
    assert [c.id for c in done] == [0, 1, 2, "drawn", 4]
    assert list(done[0].ids) == llm.generate("so it is", max_new_tokens=4, ignore_eos=True).ids
    assert [bool(c.error) for c in done] == [False] * 4 + [True]
    drawn = [c.ids for c in llm.generate_many(["in the"] * 2, temperature=2, seed=8, max_new_tokens=9)]
    assert drawn[0] != drawn[1]
    assert list(drawn[1]) == llm.generate("in the", temperature=2, seed=9, max_new_tokens=9).ids
    with pytest.raises(UsageError, match="temprature"):
        llm.generate_many(["a"], temprature=1)
    with pytest.raises(UsageError, match="seed"):
        list(llm.generate_many(["a"], seed=-1))
    without = LLM(FIXTURES / "tiny_dyn.pte", device=llm.model.device)
    (reply,) = without.generate_many([[5, 6, 7]], max_new_tokens=2)
    assert reply.text == " ".join(map(str, reply.ids))
