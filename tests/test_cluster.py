"""What a cluster needs that can be tested without Ray: rows dealt out, files that travel, and messages."""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path

import pytest

from webgpu_run import LLM, UsageError
from webgpu_run.bench.page import page
from webgpu_run.bench.views import model_cells
from webgpu_run.cluster import MOST_ROWS, Cluster, Dealer, collect_files, unpacked
from webgpu_run.gpu.device import Device
from webgpu_run.runtime.open import open_program

from helpers.command import execute, webgpu_run
from helpers.language import FIXTURES, folder

BENCH = (sys.executable, "-c", "from webgpu_run.cli.entry import webgpu_bench; webgpu_bench()")


@pytest.mark.parametrize("seed", range(20))
def test_every_row_is_done_once_whatever_workers_do(seed: int) -> None:
    rng = random.Random(seed)
    rows = rng.sample(range(1000), rng.randint(1, 200))
    workers = rng.randint(1, 5)
    dealer, held, seen, gone = Dealer(rows, workers), dict[int, tuple[int, ...]](), list[int](), list[tuple[int, ...]]()
    while dealer.missing:
        worker = rng.randrange(workers)
        if worker not in held:
            block = dealer.take(worker)
            assert len(block) <= MOST_ROWS
            if block:
                held[worker] = block
        elif rng.random() < 0.3:  # its node dies, and it is started again elsewhere
            dealer.lost(worker)
            gone.append(held.pop(worker))
        else:
            seen += dealer.done(worker, held.pop(worker))
        if gone and rng.random() < 0.3:  # the answer of one that was given up comes after all
            seen += dealer.done(99, gone.pop())
    assert sorted(seen) == sorted(rows)
    assert dealer.take(0) == ()


def test_a_lost_block_is_dealt_first() -> None:
    dealer = Dealer(range(40), 2)
    first = dealer.take(0)
    second = dealer.take(1)
    dealer.lost(0)
    assert dealer.take(1) == first
    assert dealer.done(1, first) == list(first)
    dealer.lost(1)  # it holds nothing
    assert dealer.take(1) not in ((), first, second)


def test_blocks_are_small_and_enough_for_all_workers() -> None:
    for rows, workers, size in ((1000, 2, MOST_ROWS), (40, 2, 5), (3, 8, 1), (1, 1, 1)):
        assert len(Dealer(range(rows), workers).take(0)) == size
    for rows, workers, parallel, size in ((1000, 2, 3, 12), (1000, 2, None, 64), (40, 2, 16, 16), (9, 2, 16, 5)):
        assert len(Dealer(range(rows), workers, parallel).take(0)) == size


@pytest.mark.parametrize("form", ["beside", "file", "folder"])
def test_the_files_of_a_model_open_elsewhere(form: str, device: Device, tmp_path: Path) -> None:
    place = folder(tmp_path)
    given: str | None = None
    want = LLM(place, device=device)
    if form != "beside":
        (tmp_path / "words").mkdir()
        for path in place.parent.glob("*.json"):
            shutil.move(path, tmp_path / "words")
        given = str(tmp_path / "words" / ("tokenizer.json" if form == "file" else ""))
    files, named = collect_files(open_program(place), given)
    with unpacked(files) as there:
        shutil.rmtree(tmp_path)
        paths = {name: there / named[name] for name in ("path", "tokenizer") if named[name]}
        llm = LLM(**paths, device=device)
    assert llm.generate("so it is", max_new_tokens=5).ids == want.generate("so it is", max_new_tokens=5).ids


def test_weights_in_other_files_travel_too(device: Device) -> None:
    files, named = collect_files(open_program(FIXTURES / "tiny_ptd.pte"))
    assert named["data"]
    with unpacked(files) as there:
        llm = LLM(there / named["path"], data=[there / name for name in named["data"]], device=device)
    want = LLM(FIXTURES / "tiny_ptd.pte", device=device)
    assert llm.generate([5, 6], max_new_tokens=5).ids == want.generate([5, 6], max_new_tokens=5).ids


def test_without_ray_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"--ray needs the extra webgpu-run\[ray\], which is not installed"):
        Cluster("auto")


def test_options_that_have_no_meaning_with_ray() -> None:
    for result, message in (
        (webgpu_run(FIXTURES / "tiny_dyn.pte", "--prompt-ids", "5", "--ray", "auto"), "--ray is for --prompts"),
        (execute(*BENCH, FIXTURES / "tiny_dyn.pte", "--ray", "auto", "--share", "x.json"), "--share cannot be used"),
    ):
        assert result.code == 2
        assert message in result.err


def test_rows_of_nodes_are_told_apart() -> None:
    text = (FIXTURES.parents[1] / "bench" / "results" / "bundled.1.jsonl").read_text("utf-8")
    alone = [json.loads(line) for line in text.splitlines()]
    rows = [{"node": node, **row} for node in ("north", "south") for row in alone]
    assert [model_cells(row)["node"] for row in rows] == [row["node"] for row in rows]
    assert "node" not in model_cells(alone[0])
    assert {"north", "south"} <= set(page(rows).replace("<", " ").replace(">", " ").split())
