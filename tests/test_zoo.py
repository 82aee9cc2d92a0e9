"""Small models of many architectures, made by bench/zoo.py: the outputs of PyTorch at every live shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from webgpu_run.gpu.device import Device
from webgpu_run.runtime.open import load

FOLDER = Path(__file__).parent / "fixtures" / "zoo"
NAMES = sorted(path.stem for path in FOLDER.glob("*.pte"))


@pytest.mark.parametrize("name", NAMES)
def test_outputs(name: str, device: Device) -> None:
    """All calls in one session, then the first again: its outputs must not depend on the calls between."""
    model, record = load(FOLDER / f"{name}.pte", device=device), np.load(FOLDER / f"{name}.npz")

    def arrays(kind: str, call: int) -> list[np.ndarray]:
        return [record[key] for key in record.files if key.startswith(f"{kind}_{call}_")]

    calls = len({key.split("_")[1] for key in record.files if key.startswith("in_")})
    for call in [*range(calls), 0]:
        ours, wanted = model.run(arrays("in", call)), arrays("out", call)
        assert len(ours) == len(wanted)
        for a, b in zip(map(np.asarray, ours), wanted, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert np.abs(a - b).max() <= record["tolerance"] * np.abs(b).max(), f"call {call}"


def test_there_are_twenty() -> None:
    assert len(NAMES) >= 20
