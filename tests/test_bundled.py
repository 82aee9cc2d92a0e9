"""The bundled model: the eager model's logits, its greedy text word for word, and the tales it was trained on."""

from __future__ import annotations

import importlib
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest

from webgpu_run.assets import bundled_model
from webgpu_run.gpu.device import Device
from webgpu_run.runtime.open import load

from helpers.command import webgpu_run

FIXTURES = Path(__file__).parent / "fixtures"
TEXTS = json.loads((FIXTURES / "bundled_text.json").read_text())


@pytest.mark.parametrize("fuse", [True, False])
def test_every_call(fuse: bool, device: Device) -> None:
    path = bundled_model()
    assert path
    model = load(path, device=device, fuse=fuse)
    record = np.load(FIXTURES / "bundled_golden.npz")
    for i in range(int(record["n_calls"])):
        (out,) = model.run([record[f"tokens_{i}"], np.array([record[f"pos_{i}"]])])
        want = record[f"logits_{i}"]
        assert np.abs(out.reshape(want.shape) - want).max() <= 1e-4 * (want.max() - want.min())
        assert out.argmax() == want.argmax()


@pytest.mark.parametrize("row", TEXTS, ids=[row["prompt"] for row in TEXTS])
def test_greedy_text(row: dict[str, object]) -> None:
    result = webgpu_run("--prompt", str(row["prompt"]), "-n", str(len(row["gen_ids"])), "--stats", "json")  # type: ignore[arg-type]
    assert (result.code, result.out.rstrip("\n")) == (0, str(row["text"]).rstrip("\n"))


def test_every_plot_is_told_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """No mark of the grammar is left, quotes are in pairs, sentences begin with a capital, no two are the same."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "examples" / "tiny_storyteller")
    tales = importlib.import_module("tales")
    grammar = tales.Grammar.read()
    for plot in grammar.plots:
        told = {tales.tell(grammar, plot, random.Random(seed)) for seed in range(10)}
        assert len(told) == 10
        for text in told:
            assert not re.search(r"[<>{}|@\[\]]|  | [,.!?]|[,.]{2}", text), text
            assert text.count('"') % 2 == 0, text
            assert not re.search(r"\. [a-z]|^[a-z]", text, re.MULTILINE), text
            assert text[-1] in '.!?)"', text
            assert 50 < len(text.split()) < 300, text
