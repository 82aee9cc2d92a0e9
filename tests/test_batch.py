"""A batch of sequences in one graph: rows that do not depend on other rows, resizes, and replies of single runs."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webgpu_run import LLM
from webgpu_run.assets import bundled_model
from webgpu_run.cli.many import _key
from webgpu_run.cli.options import Settings
from webgpu_run.errors import ShapeError, UnsupportedError
from webgpu_run.formats import pte
from webgpu_run.gpu.device import Device
from webgpu_run.graph.lower import planned_batch
from webgpu_run.graph.passes.batch import batched
from webgpu_run.graph.planner import Engine
from webgpu_run.llm import batch as scheduler
from webgpu_run.llm.sampling import Sampler
from webgpu_run.ops.choice import GREEDY, draw_words, repeat_words
from webgpu_run.ops.limits import GPU, PLAIN, SHORT, SOFTWARE, WIDE, Limits
from webgpu_run.ops.pick_rows import rows_of_words
from webgpu_run.runtime.batch import Batch, Row
from webgpu_run.runtime.model import Model
from webgpu_run.shapes import Array

from helpers.command import execute, webgpu_run
from helpers.graphs import Builder, with_limits
from helpers.language import FIXTURES, folder

REFUSED = {
    "tiny_emb8": "not a single delegate",
    "tiny_nosdpa": "not a single delegate",
    "tiny_static": "aten.index.Tensor may mix rows",
}
FILES = sorted(path.stem for path in FIXTURES.glob("tiny_*.pte"))
PROMPT = [5, 9, 33, 70, 2, 8, 1, 44, 23, 17, 90]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory, device: Device) -> LLM:
    return LLM(folder(tmp_path_factory.mktemp("tiny")), device=device)


def logits_of(batch: Batch, rows: Sequence[Row]) -> Array:
    """The logits of the last wanted row."""
    logits = batch.run(rows, logits=True)[1]
    assert logits is not None
    return logits[-1]


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_run_or_refused(name: str, device: Device) -> None:
    model = Model(pte.load(FIXTURES / f"{name}.pte"), device)
    if name in REFUSED:
        with pytest.raises(UnsupportedError, match=REFUSED[name]):
            Batch(model, 3)
        return
    batch = Batch(model, 3)
    got = logits_of(batch, [Row(t, 1, i, words=GREEDY if i == 10 else None) for i, t in enumerate(PROMPT)])
    want = model.run([np.array([PROMPT]), np.array([0])])[0].reshape(-1, got.size)[-1]
    assert np.abs(got - want).max() <= 2e-5 * (want.max() - want.min())


@pytest.mark.parametrize("kv", ["f32", "f16"])
@pytest.mark.parametrize("profile", [SOFTWARE, GPU, PLAIN], ids=lambda p: p.name)
def test_sequences_do_not_see_each_other(profile: Any, kv: str, device: Device) -> None:
    machine = with_limits(device, profile=profile) if profile != device.limits.profile else device
    model = Model(pte.load(FIXTURES / "tiny_dyn.pte"), machine, kv=kv)
    batch = Batch(model, 3)
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 512, 12).tolist() for _ in range(3)]
    for at in range(12):
        got = batch.run([Row(t[at], s, at, words=GREEDY) for s, t in enumerate(texts)], logits=True)[1]
    assert got is not None
    for row, text in zip(got, texts, strict=True):
        want = model.run([np.array([text]), np.array([0])])[0].reshape(-1)
        assert np.abs(row - want).max() <= (2e-5 if kv == "f32" else 2e-3) * (want.max() - want.min())


@pytest.mark.parametrize("name", ["tiny_dyn", "tiny_qwen3", "tiny_8da4w", "bundled"])
def test_a_row_does_not_depend_on_other_rows_in_any_bit(name: str, device: Device) -> None:
    """On software adapters. The text is prefilled in pieces of any length, among rows of other sequences."""
    path = bundled_model() if name == "bundled" else FIXTURES / f"{name}.pte"
    assert path
    batch = Batch(Model(pte.load(path), device), 6)
    found = set()
    for seed, most in enumerate((1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 40, 64)):
        rng, at = np.random.default_rng(seed), 0
        while at < len(PROMPT):
            end = min(len(PROMPT), at + int(rng.integers(1, max(2, most // 2))))
            rows = [Row(PROMPT[i], 4, i, words=GREEDY if i == 10 else None) for i in range(at, end)]
            others = [Row(int(rng.integers(400)), i % 4, i // 4, words=GREEDY if i < 4 else None) for i in range(most)]
            rows = [*others[: most - len(rows)], *rows]
            last, at = logits_of(batch, rows) if end == len(PROMPT) else batch.run(rows), end
        found.add(np.asarray(last).tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("name", ["tiny_dyn", "tiny_qwen25", "tiny_qwen3", "tiny_8da4w", "bundled"])
def test_a_row_has_the_bits_of_a_single_run(name: str, device: Device) -> None:
    """On software adapters, if the caches are textures: prefilled at once, token by token, or in a batch.

    All profiles with texture caches give these bits.
    """
    path = bundled_model() if name == "bundled" else FIXTURES / f"{name}.pte"
    assert path
    text, found = [*PROMPT, *PROMPT[::-1]], set()
    for profile in (SOFTWARE, SHORT, WIDE):
        model = Model(pte.load(path), with_limits(device, profile=profile))
        whole = model.run([np.array([text]), np.array([0])])[0].reshape(-1)
        model.reset()
        for i, token in enumerate(text):
            one = model.run([np.array([[token]]), np.array([i])])[0].reshape(-1)
        rows = [Row(t, 1, i, words=GREEDY if i == len(text) - 1 else None) for i, t in enumerate(text)]
        many = logits_of(Batch(model, 3), rows)
        found |= {whole[-many.size :].tobytes(), one[-many.size :].tobytes(), many.tobytes()}
    assert len(found) == 1


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("profile", [SOFTWARE, WIDE, GPU, PLAIN], ids=lambda p: p.name)
def test_steps_that_share_a_submission_are_those_of_single_calls(profile: Any, drawn: bool, device: Device) -> None:
    machine = with_limits(device, profile=profile) if profile != device.limits.profile else device
    model = Model(pte.load(FIXTURES / "tiny_dyn.pte"), machine)
    sampler = Sampler(1.2, top_k=40, seed=3)
    words = [[sampler.words(k) if drawn else GREEDY, GREEDY, sampler.words(9 * k)][: 2 + drawn] for k in range(6)]
    rows = [Row(PROMPT[s], s, s) for s in range(2 + drawn)]
    one, together = Batch(model, 3), Batch(model, 3)
    tokens, want = [row.token for row in rows], []
    for k, step in enumerate(words):
        given = zip(rows, tokens, step, strict=True)
        tokens = one.run([replace(r, token=t, position=r.position + k, words=w) for r, t, w in given])[0]
        want.append(tokens)
    first, stats = together.decode(rows, words[:4])
    last = [replace(r, token=t, position=r.position + 4) for r, t in zip(rows, first[-1], strict=True)]
    assert first + together.decode(last, words[4:])[0] == want
    assert stats.read_bytes == 4 * 4 * max(2, len(rows))
    after = [replace(r, token=7, position=r.position + 6, words=GREEDY) for r in rows]
    assert logits_of(one, after).tobytes() == logits_of(together, after).tobytes()


def test_steps_share_a_submission_while_it_is_short(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch(Model(pte.load(FIXTURES / "tiny_dyn.pte"), device), 2)
    assert batch.together(9) == 1  # the first step may compile
    batch.decode([Row(5, 0, 0), Row(6, 1, 0)], [[GREEDY] * 2])
    for step_ns, left, count in ((1, 99, 16), (1, 3, 3), (40_000_000, 99, 2), (10**9, 99, 1)):
        monkeypatch.setattr(batch, "_step_ns", step_ns)
        assert batch.together(left) == count
    plans = list(batch.engine.plans)
    with pytest.raises(ShapeError, match="position 128"):
        batch.decode([Row(5, 0, 125), Row(6, 1, 0)], [[GREEDY] * 2] * 4)
    assert batch.engine.plans == plans


def test_a_shared_beginning_is_read_where_it_is(device: Device) -> None:
    batch = Batch(Model(pte.load(FIXTURES / "tiny_dyn.pte"), device), 3)
    text = PROMPT[:9]
    want = logits_of(batch, [Row(t, 0, i, words=GREEDY if i == 8 else None) for i, t in enumerate(text)])
    batch.executor.reset()
    batch.run([Row(t, 2, i) for i, t in enumerate(text[:8])])
    got = logits_of(batch, [Row(text[8], 1, 8, 2, 8, GREEDY)])
    assert got.tobytes() == want.tobytes()
    assert logits_of(batch, [Row(text[8], 1, 8, words=GREEDY)]).tobytes() != want.tobytes()


def batch_inputs(rng: np.random.Generator) -> list[Array]:
    rows, wanted = int(rng.integers(1, 65)), int(rng.integers(0, 6))
    words = [
        Sampler(0.7, seed=3).words(0),
        Sampler(repeat_penalty=1.2).words(0, range(int(rng.integers(1, 200)))),
        GREEDY,
    ]
    picks = [words[i] for i in rng.integers(0, int(rng.integers(1, 4)), wanted)]
    places = np.stack([rng.integers(0, 5, rows), rng.integers(0, 100, rows), *np.zeros((2, rows), int)], 1)
    ids, position = rng.integers(0, 400, (1, rows)), places[:, 1].max(keepdims=True)
    index = rng.integers(0, rows, wanted)
    return [x.astype(np.int32) for x in (ids, position, places, index, rows_of_words(picks))]


@pytest.mark.parametrize("profile", [SOFTWARE, SHORT, WIDE, GPU, PLAIN], ids=lambda p: p.name)
def test_plans_of_any_batch_in_any_order_are_fresh_ones(profile: Any) -> None:
    limits = Limits(subgroups=profile.shuffle, software=profile is not GPU, profile=profile)
    engine = planned_batch(pte.load(FIXTURES / "tiny_dyn.pte").method(None).delegates[0], limits, 5, 64)
    rng = np.random.default_rng(1)
    for _ in range(150):
        given = batch_inputs(rng)
        engine.resize(given)
        fresh = Engine(engine.graph, limits)
        fresh.resize(given)
        assert engine.plans == fresh.plans
        assert (engine.live, engine.slot_values()) == (fresh.live, fresh.slot_values())


def test_outputs_of_any_batch_in_any_order_are_those_of_a_fresh_build(device: Device) -> None:
    model = Model(pte.load(FIXTURES / "tiny_dyn.pte"), device)
    used = Batch(model, 5)
    dice = random.Random(2)
    for _ in range(12):
        count = dice.randrange(1, 65)
        rows = [
            Row(dice.randrange(400), i % 5, i // 5, words=GREEDY if i % 5 == 4 and i < 25 else None)
            for i in range(count)
        ]
        results = []
        for batch in (used, Batch(model, 5)):
            batch.executor.reset()
            ids, logits, _ = batch.run(rows, logits=True)
            results.append((ids, logits.tobytes() if logits is not None else b""))
        assert results[0] == results[1]


def test_a_refused_call_changes_nothing(device: Device) -> None:
    batch = Batch(Model(pte.load(FIXTURES / "tiny_dyn.pte"), device), 3)
    batch.run([Row(7, 0, 0), Row(8, 1, 0)])
    plans = list(batch.engine.plans)
    for rows, what in (
        ([], "0 rows"),
        ([Row(1, 0, 0)] * 65, "65 rows"),
        ([Row(512, 0, 0)], "token id 512"),
        ([Row(1, 3, 0)], "sequence 3"),
        ([Row(1, 0, 9, 3, 8)], "sequence 3"),
        ([Row(1, 0, 128)], "position 128"),
        ([Row(1, 0, 9, 1, 7)], "7 shared"),
    ):
        with pytest.raises(ShapeError, match=what):
            batch.run(rows)
    given = [np.zeros(d, np.int32) for d in ((1, 2), (1,), (2, 4), (1,), (1, 5))]
    with pytest.raises(ShapeError, match=r"position 128 is outside 0\.\.127"):
        batch.engine.resize([given[0], np.array([128]), *given[2:]])
    with pytest.raises(ShapeError, match="2 queries, 2 keys and rows"):
        batch.engine.resize([given[0], given[1], np.zeros((3, 4), np.int32), *given[3:]])
    assert batch.engine.plans == plans


def test_memory_grows_by_the_caches(device: Device) -> None:
    model = Model(pte.load(str(bundled_model())), device)
    before = device.allocated
    batch = Batch(model, 16)
    assert batch.cache_nbytes == 16 * model.cache_nbytes
    assert device.allocated - before - batch.cache_nbytes < 0.05 * batch.cache_nbytes


def test_graphs_that_mix_rows_are_refused() -> None:
    delegate = pte.load(FIXTURES / "tiny_dyn.pte").method(None).delegates[0]
    vk = delegate.graph
    assert vk
    with pytest.raises(UnsupportedError, match="tokens and a position"):
        batched(replace(vk, input_ids=vk.input_ids[:1]), Limits(), 4)
    with pytest.raises(UnsupportedError, match=r"reads the position|may mix rows"):  # a table that is not sliced there
        batched(
            replace(vk, chain=tuple(c for c in vk.chain if c.name != "et_vk.apply_rotary_emb.default")), Limits(), 4
        )
    b = Builder()
    tokens, position = b.input((1, 8), "int32"), b.input((1,), "int32")
    b.call("et_vk.select_as_symint.default", position, 0, 0)
    table = b.constant(np.zeros((16, 8), np.float32))
    b.output(b.call("aten.embedding.default", table, tokens, -1, False, False))
    with pytest.raises(UnsupportedError, match="no attention over KV caches"):
        batched(b.vk(), Limits(), 4)


# -- many prompts ------------------------------------------------------------------------------------------------------


def prompts_of(count: int, seed: int) -> list[dict[str, Any]]:
    """Prompts of mixed lengths, some with a common beginning; half of them drawn, some with stops and penalties."""
    dice, rows = random.Random(seed), list[dict[str, Any]]()
    begin = [dice.randrange(400) for _ in range(45)]
    for i in range(count):
        ids = [dice.randrange(400) for _ in range(dice.choice((1, 2, 3, 9, 30, 70)))]
        row: dict[str, Any] = {"ids": begin + ids[:9] if i % 4 == 1 else ids, "max_new_tokens": dice.randrange(1, 20)}
        if i % 2:
            row |= {"temperature": dice.choice((0.6, 1.0, 1.4)), "top_k": dice.choice((0, 5)), "top_p": 0.9, "seed": i}
        if i % 3 == 0:
            row |= {"repeat_penalty": 1.3, "repeat_last_n": dice.choice((4, 64, 100))}
        if i % 7 == 0:
            row |= {"stop": ["e", "t"]}
        rows.append(row)
    return rows


def test_rows_have_words_only_if_one_of_them_needs_words() -> None:
    draw, repeat = draw_words(0.8, 40, 1.0, 0.0, 1, 2), repeat_words(1.3, [5])
    assert rows_of_words([GREEDY, GREEDY]).shape == (2, 0)
    assert rows_of_words([GREEDY, draw]).tolist() == [[0] * 5, draw.tolist()]
    one = np.float32(1).view(np.int32)
    assert rows_of_words([repeat, GREEDY]).tolist() == [repeat.tolist(), [one, one, *[-1] * 64]]
    assert rows_of_words([repeat, draw]).tolist() == [[0] * 5 + repeat.tolist(), [*draw, one, one, *[-1] * 64]]


@pytest.mark.parametrize(("count", "parallel"), [(40, 5), (12, 2), (5, 64)])
def test_replies_are_those_of_single_runs(count: int, parallel: int, llm: LLM) -> None:
    rows = prompts_of(count, parallel)
    rows[3] |= {"max_new_tokens": -1, "ignore_eos": True}  # until the context is full
    rows[4] |= {"top_p": 7}
    one, many = (list(llm.generate_many(rows, seed=5, parallel=n)) for n in (1, parallel))
    facts = [[(c.id, c.ids, c.text, c.reason, c.prompt_tokens, c.seed, c.error) for c in run] for run in (one, many)]
    assert facts[0] == facts[1]
    assert {c.reason for c in many} >= {"", "context", "length"}
    assert all(c.prefill_ms > 0 for c in many if not c.error)


def test_a_shared_beginning_is_run_once(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, run = list[int](), Batch.run
    monkeypatch.setattr(Batch, "run", lambda self, rows: counts.append(len(rows)) or run(self, rows))
    begin = [7 + i % 90 for i in range(48)]
    rows = [{"ids": [*begin, i, i], "max_new_tokens": 1} for i in range(6)]
    many = list(llm.generate_many(rows, parallel=3))
    assert sum(counts) == 48 + 6 * 2
    assert [c.ids for c in many] == [c.ids for c in llm.generate_many(rows, parallel=1)]


def test_no_step_is_run_beyond_the_length_of_a_reply(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, decode = list[int](), Batch.decode
    monkeypatch.setattr(Batch, "together", lambda self, left: min(left, 4))
    monkeypatch.setattr(
        Batch, "decode", lambda self, rows, words: steps.append(len(words)) or decode(self, rows, words)
    )
    rows = [{"ids": [5 + i], "max_new_tokens": n} for i, n in enumerate((7, 12, 3))]
    many = list(llm.generate_many(rows, parallel=3, ignore_eos=True))
    assert [len(c.ids) for c in many] == [7, 12, 3]
    assert steps == [2, 4, 4, 1]
    with_penalty = [{**row, "repeat_penalty": 1.1} for row in rows]  # its words need the tokens before
    list(llm.generate_many(with_penalty, parallel=3, ignore_eos=True))
    assert steps == [2, 4, 4, 1]


def test_a_nan_ends_one_reply(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Batch.run

    def broken(self: Batch, rows: Sequence[Row]) -> Any:
        ids, *rest = run(self, rows)
        wanted = [row for row in rows if row.words is not None]
        return [2**31 - 1 if row.token == 77 else i for row, i in zip(wanted, ids, strict=True)], *rest

    monkeypatch.setattr(Batch, "run", broken)
    done = list(llm.generate_many([[77], [78], [79]], max_new_tokens=2, parallel=2, ignore_eos=True))
    assert [c.error for c in done] == ["the logits are not finite", "", ""]


def test_a_nan_in_the_middle_of_a_submission_ends_one_reply(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = Batch.decode
    want = list(llm.generate_many([[77], [78]], max_new_tokens=12, parallel=2, ignore_eos=True))

    def broken(self: Batch, rows: Sequence[Row], words: Sequence[Sequence[Array]]) -> Any:
        ids, stats = decode(self, rows, words)
        for step in ids[2:] if len(rows) == 2 else []:
            step[0] = 2**31 - 1
        return ids, stats

    monkeypatch.setattr(Batch, "together", lambda self, left: min(left, 4))
    monkeypatch.setattr(Batch, "decode", broken)
    done = list(llm.generate_many([[77], [78]], max_new_tokens=12, parallel=2, ignore_eos=True))
    assert done[0].error == "the logits are not finite"
    assert (done[1].error, done[1].ids) == ("", want[1].ids)


def test_auto_takes_what_memory_has_room_for(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [scheduler.Job(i, i, [5], {}) for i in range(3)]
    cache = llm.model.cache_nbytes
    for free, count in ((1 << 40, 16), (2 * 9 * cache, 8), (2 * 2 * cache, 2)):
        monkeypatch.setattr(scheduler, "available", lambda free=free: free)
        run = scheduler.batch_run(llm, jobs, None)
        assert isinstance(run, scheduler.BatchRun)
        assert run.parallel == count
    monkeypatch.setattr(scheduler, "available", lambda: 0)
    assert scheduler.batch_run(llm, jobs, None) == "there is no memory for a second KV cache"


def test_auto_measures(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = llm.batches(8)
    clock = [0]
    run = Batch.run

    def timed(self: Batch, rows: Sequence[Row]) -> Any:
        clock[0] += {8: 900, 4: 300, 2: 200}[len(rows)]
        return run(self, rows)

    monkeypatch.setattr(Batch, "run", timed)
    monkeypatch.setattr(scheduler.time, "perf_counter_ns", lambda: clock[0])
    assert scheduler.measured(batches, 8) == 4


def test_the_command(llm: LLM, tmp_path: Path) -> None:
    model = llm.model.program.path
    source = tmp_path / "in.txt"
    source.write_text("so it is\nin the\nwho\nso\n")
    args = ("--prompts", source, "-n", "6", "--ignore-eos", "-q")
    texts = [webgpu_run(model, *args, "--parallel", n).out for n in (1, 3, "auto")]
    ids = [[line.partition('"reason"')[0] for line in text.splitlines()] for text in texts]
    assert ids[0] == ids[1] == ids[2]
    assert len(ids[0]) == 4
    for bad in ("0", "65", "many"):
        result = webgpu_run(model, *args, "--parallel", bad)
        assert (result.code, "neither auto nor a number from 1 to 64" in result.err) == (2, True)
    one = folder(tmp_path / "static", "tiny_static")
    result = webgpu_run(one, *args[:-1])
    assert result.code == 0
    assert "note: prompts are run one at a time: aten.index.Tensor may mix rows" in result.err


def test_a_journal_of_single_runs_is_not_continued_by_a_batch(llm: LLM) -> None:
    """Kernels for one sequence may decide a near tie in another way."""
    program = llm.model.program
    keys = [_key(program, Settings(model=program.path, parallel=n), b"") for n in (1, 2, 16, None)]
    assert keys[0] != keys[1] == keys[2] == keys[3]


def test_the_benchmark(llm: LLM) -> None:
    model = llm.model.program.path
    result = execute(
        sys.executable,
        "-m",
        "webgpu_run.cli.bench",
        model,
        "-p",
        "none",
        "-n",
        "3",
        "--batch",
        "1,4",
        "-r",
        "1",
        "--no-roofline",
        "-o",
        "json",
        "-q",
    )
    assert result.code == 0, result.err
    rows = {row["test"]: row for row in json.loads(result.out)}
    assert list(rows) == ["tg3", "tg3 b1", "tg3 b4"]
    four = rows["tg3 b4"]
    assert four["phase"] == "batch"
    assert four["mean"] == pytest.approx(4 * four["per_sequence"], rel=1e-4)
    assert four["mean"] == pytest.approx(12 / four["wall_ms"][0] * 1e3, rel=1e-3)
    assert {op["kernel"] for op in four["ops"]} >= {"sdpa_texture", "pick_rows_best"}
    assert four["gpu_bytes"] > rows["tg3 b1"]["gpu_bytes"]
