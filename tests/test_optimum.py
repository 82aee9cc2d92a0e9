"""Language models as optimum-executorch exports them: several delegates, and the position of every token of a call."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from webgpu_run.gpu.device import Device
from webgpu_run.runtime.open import load

from helpers.command import webgpu_run

FOLDER = Path(__file__).parent / "fixtures" / "optimum"
NAMES = sorted(path.stem for path in FOLDER.glob("*.pte"))


@pytest.mark.parametrize("name", NAMES)
def test_logits(name: str, device: Device) -> None:
    model, record = load(FOLDER / f"{name}.pte", device=device), np.load(FOLDER / f"{name}.npz")
    for i in range(record["n_calls"]):
        tokens, logits = record[f"tokens_{i}"], record[f"logits_{i}"]
        positions = record[f"pos_{i}"] + np.arange(tokens.shape[1])
        ours = np.asarray(model.run([tokens, positions])[0])
        assert ours.shape == logits.shape
        assert np.abs(ours - logits).max() <= 1e-4 * np.abs(logits).max(), f"call {i}"
        assert (ours.argmax(-1) == logits.argmax(-1)).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chunk", ["63", "5"])
def test_greedy_tokens_are_those_of_the_eager_model(name: str, chunk: str) -> None:
    record = np.load(FOLDER / f"{name}.npz")
    prompt = ",".join(str(i) for i in record["prompt"])
    count = len(record["greedy"])
    result = webgpu_run(
        FOLDER / f"{name}.pte", "--prompt-ids", prompt, "-n", str(count), "--ignore-eos", "--chunk", chunk
    )
    assert result.code == 0, result.err
    assert [int(word) for word in result.out.split()[:count]] == record["greedy"].tolist()


def test_both_kinds_are_tried() -> None:
    assert NAMES == ["qwen25", "static"]
