"""webgpu-bench quality: windows, perplexity, divergence, saved logits."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from webgpu_run.bench import logits_file
from webgpu_run.bench.divergence import Scores
from webgpu_run.bench.logits_file import LogitsFile, saving
from webgpu_run.bench.windows import Scorer, TextWindow, cut, log_softmax, tokens_of
from webgpu_run.errors import FormatError, UsageError
from webgpu_run.formats import pte
from webgpu_run.gpu.device import Device
from webgpu_run.llm import tokenizer as tokenizers
from webgpu_run.runtime.model import Model
from webgpu_run.shapes import Array

from helpers.command import HERE, Result, execute
from helpers.language import folder
from helpers.result_fields import documented

FIXTURES = HERE / "fixtures"
TEXT = "The sun did not shine. It was too wet to play, so we sat in the house all that cold, cold, wet day. " * 3


def quality(*args: str | Path) -> Result:
    return execute(sys.executable, "-m", "webgpu_run.cli.bench", "quality", *args)


def log_probs(rows: Array) -> Array:
    rows = rows.astype(np.float64)
    out: Array = (
        rows - np.log(np.exp(rows - rows.max(-1, keepdims=True)).sum(-1, keepdims=True)) - rows.max(-1, keepdims=True)
    )
    return out


def losses_one_by_one(model: Model, windows: list[TextWindow]) -> list[float]:
    """-log p of every scored token, from a model that is given one token at a time."""
    losses = []
    for window in windows:
        for at, (token, following) in enumerate(zip(window.ids, window.ids[1:], strict=False)):
            row = model.run([np.array([[token]]), np.array([at])])[0].reshape(-1, model.outputs[0].dims[-1])[-1]
            if at >= window.first:
                losses.append(-float(log_probs(row)[following]))
    return losses


def test_windows_are_those_of_llama_perplexity() -> None:
    ids = list(range(100, 163))
    halves = cut(ids, None, 10)
    assert [(w.start, w.first) for w in halves] == [(10 * i, 5) for i in range(6)]
    assert [w.targets.tolist() for w in halves[:2]] == [[106, 107, 108, 109], [116, 117, 118, 119]]
    strided = cut(ids, 7, 10, 4)  # a context of 10 + 4 // 2, of which the last 4 are scored
    assert len(strided) == (63 - 12 + 4 - 1) // 4
    assert strided[1].ids == (7, *range(105, 116))
    assert [w.targets.tolist() for w in strided[:2]] == [[108, 109, 110, 111], [112, 113, 114, 115]]
    with pytest.raises(UsageError, match="the text has 63 tokens, a context of 32 needs 64"):
        cut(ids, None, 32)


@pytest.mark.parametrize("name", ["tiny_dyn", "tiny_static", "tiny_full", "tiny_8da4w"])
def test_losses_are_those_of_one_token_at_a_time(name: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    program = pte.load(FIXTURES / f"{name}.pte")
    vocab = Model(program, device).outputs[0].dims[-1]
    windows = cut(np.random.default_rng(5).integers(0, vocab, 90).tolist(), 3, 40)
    want = losses_one_by_one(Model(program, device), windows)
    monkeypatch.setattr("webgpu_run.graph.passes.all_rows.MAX_LOGITS", 4 * vocab * 7)  # so that a window takes calls
    scorer, scores = Scorer(Model(program, device, all_rows=True)), Scores()
    for window in windows:
        scores.add(window, scorer.log_probs(window))
    np.testing.assert_allclose(scores.losses, want, atol=2e-3)
    assert scores.perplexity == pytest.approx(math.exp(np.mean(want)), rel=1e-3)
    assert scores.perplexity_error == pytest.approx(
        np.std(want) / math.sqrt(len(want) - 1) * math.exp(np.mean(want)), rel=0.01
    )


def test_divergence_by_its_definition() -> None:
    rng = np.random.default_rng(6)
    window = TextWindow(0, tuple(rng.integers(0, 50, 40).tolist()), 19)
    model, base = (log_softmax(rng.standard_normal((20, 50)).astype(np.float32) * 2) for _ in range(2))
    scores = Scores()
    scores.add(window, model, base)
    p, q = np.exp(base.astype(np.float64)), np.exp(model.astype(np.float64))
    kl = (p * (np.log(p) - np.log(q))).sum(-1)
    got, at = scores.comparison(), (np.arange(20), window.targets)
    assert got["kl_mean"] == pytest.approx(kl.mean(), rel=1e-5)
    assert got["kl_p999"] == pytest.approx(np.quantile(kl, 0.999), rel=1e-5)
    assert got["same_top"] == np.mean(p.argmax(-1) == q.argmax(-1))
    assert got["rms_dp"] == pytest.approx(np.sqrt(np.mean((q[at] - p[at]) ** 2)), rel=1e-5)
    assert got["base_perplexity"] == pytest.approx(np.exp(-np.log(p[at]).mean()), rel=1e-5)
    worst = scores.worst[0]
    assert (worst.row, worst.divergence) == (int(kl.argmax()), pytest.approx(kl.max(), rel=1e-5))
    assert window.ids[worst.at] == window.targets[worst.row]


def test_saved_log_probabilities(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(7), str(tmp_path / "a.npz")
    window = TextWindow(0, tuple(rng.integers(0, 3000, 12).tolist()), 5)
    exact = log_softmax(rng.standard_normal((6, 3000)).astype(np.float32) * 8)
    with saving(path, [window], 3000) as writer:
        writer.add(window, exact)
    file = LogitsFile(path)
    file.check([window], 3000)
    scores = Scores()
    scores.add(window, exact, file.log_probs(0, window))
    got = scores.comparison()
    assert abs(got["kl_mean"]) < 1e-6
    assert got["perplexity_ratio"] == pytest.approx(1, abs=1e-9)  # also where a token is less likely than the range
    with pytest.raises(UsageError, match="saved for another text"):
        file.check([TextWindow(0, window.ids[::-1], 5)], 3000)
    with pytest.raises(FormatError, match="window 1 is damaged or missing"):
        file.log_probs(1, window)
    assert -exact.min() > logits_file.SPAN


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("quality")
    (place / "text.txt").write_text(TEXT)
    return folder(place)


@pytest.mark.xdist_group("quality")
def test_command(model: Path, device: Device) -> None:
    text, saved = model.parent / "text.txt", model.parent / "base.npz"
    ran = quality(model, "--text", text, "--ctx", "32", "--save", saved, "-o", "json")
    assert ran.code == 0, ran.err
    (row,) = json.loads(ran.out)
    tokenizer = tokenizers.find(model)
    windows = cut(*tokens_of(TEXT, tokenizer), 32)
    want = losses_one_by_one(Model(pte.load(model), device), windows)
    assert row["perplexity"] == pytest.approx(math.exp(np.mean(want)), rel=1e-3)
    assert (row["tokens"], row["windows"], row["test"]) == (len(want), len(windows), "ppl32")
    again = quality(
        model, "--text", text, "--ctx", "32", "--against", saved, "--kv", "f16", "--out", model.parent / "b.json"
    )
    assert again.code == 0, again.err
    (row,) = json.loads((model.parent / "b.json").read_text())
    assert {*row} == documented("Every row") | documented("quality")
    assert 0 < row["kl_mean"] < 1e-4
    assert row["same_top"] > 0.95
    assert row["perplexity_ratio"] == pytest.approx(1, abs=1e-3)
    assert "KL 99.9%" in again.out.splitlines()[0]
    worst = row["worst"][0]
    assert f"[{worst['next']}]" in again.out
    assert worst["before"] + worst["next"] in TEXT


@pytest.mark.xdist_group("quality")
def test_refusals(model: Path) -> None:
    text = model.parent / "text.txt"
    (model.parent / "bad.npz").write_bytes(b"PK\x03\x04 no archive")
    for code, message, *args in (
        (2, "cannot read the text: no such file", "--text", model.parent / "absent.txt"),
        (2, "--ctx 600: the model holds 128 tokens", "--text", text, "--ctx", "600"),
        (2, "the text has", "--text", text, "--ctx", "128"),
        (3, "not a file of --save", "--text", text, "--ctx", "32", "--against", model.parent / "bad.npz"),
        (2, "different vocabularies", "--text", text, "--ctx", "32", "--against", FIXTURES / "tiny_tied.pte"),
        (2, "--save would overwrite its own input", "--text", text, "--save", text),
    ):
        ran = quality(model, *args)
        assert (ran.code, message in ran.err) == (code, True), ran.err
        assert "Traceback" not in ran.err


def test_bundled_model_and_text() -> None:
    ran = quality("--windows", "1", "-o", "json")
    assert ran.code == 0, ran.err
    (row,) = json.loads(ran.out)
    assert row["model"]["name"] == "tiny-storyteller"
    assert 600 < row["perplexity"] < 1200
    assert row["text"]["file"] == "persuasion.txt"


def test_likelihood_of_a_continuation(device: Device) -> None:
    program = pte.load(FIXTURES / "tiny_dyn.pte")
    scorer, plain = Scorer(Model(program, device, all_rows=True)), Model(program, device)
    ids = np.random.default_rng(8).integers(0, 512, 20).tolist()
    want = losses_one_by_one(plain, [TextWindow(0, tuple(ids), 14)])
    total, is_likeliest = scorer.likelihood(ids[:15], ids[15:], 128)
    assert (total, is_likeliest) == (pytest.approx(-sum(want), abs=0.01), False)
    cut_off = losses_one_by_one(plain, [TextWindow(0, tuple(ids[-11:]), 5)])
    assert scorer.likelihood(ids[:15], ids[15:], 10)[0] == pytest.approx(-sum(cut_off), abs=0.01)
    likeliest = int(plain.run([np.array([ids]), np.array([0])])[0].argmax())
    assert scorer.likelihood(ids, [likeliest], 128)[1]
