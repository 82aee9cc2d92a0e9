"""A row that a query must not see has no influence on it, whatever the row contains: 0 * NaN is NaN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webgpu_run.gpu.device import Device
from webgpu_run.ops.limits import GPU, PLAIN
from webgpu_run.runtime.open import open_model, open_program
from webgpu_run.runtime.runner import Runner
from webgpu_run.shapes import Array

from helpers.command import HERE
from helpers.graphs import Builder, bits, run, transformer, with_limits

BAD = 67  # the last id of the vocabulary, whose embedding is NaN or infinite
KINDS: dict[str, dict[str, Any]] = {
    "own": {},
    "plain": {"profile": PLAIN, "subgroups": False},
    "gpu": {"profile": GPU},
    "gpu-no-subgroups": {"profile": GPU, "subgroups": False},
}
FORMS = {"fused": {}, "f16": {"kv": "f16"}, "as written": {}}
EVERYWHERE = [
    pytest.param(kind, form, value, id=f"{kind}-{form}-{value}")
    for kind in KINDS
    for form in FORMS
    for value in (np.nan, np.inf)
]


def ids(count: int) -> Array:
    return np.random.default_rng(3).integers(0, BAD, (1, count)).astype(np.int32)


def call(runner: Runner, tokens: Array, position: int) -> list[Array]:
    return run(runner, [tokens, np.array([position], np.int32)])[:1]


@pytest.mark.parametrize(("kind", "form", "value"), EVERYWHERE)
def test_stale_rows_of_the_cache(kind: str, form: str, value: float, device: Device) -> None:
    """A call whose rows are not finite, a rewind, and then the bits of a model that never saw that call."""
    other = with_limits(device, **KINDS[kind], **FORMS[form])
    poisoned, clean = (
        transformer(last_token=value).runner(other, fuse=form != "as written") for _ in ("poisoned", "clean")
    )
    (bad,) = call(poisoned, np.full((1, 24), BAD, np.int32), 0)
    call(poisoned, np.full((1, 16), BAD, np.int32), 24)
    assert not np.isfinite(bad).all()
    tokens = ids(12)
    for first, last in ((0, 5), (5, 6), (6, 7), (7, 12)):
        part = tokens[:, first:last]
        assert bits(call(poisoned, part, first)) == bits(call(clean, part, first)), f"positions {first} to {last}"


@pytest.mark.parametrize(("kind", "form", "value"), EVERYWHERE)
def test_later_rows_of_the_same_prefill(kind: str, form: str, value: float, device: Device) -> None:
    """Rows before a token that is not finite are those of a prefill without it."""
    other = with_limits(device, **KINDS[kind], **FORMS[form])
    runner = transformer(full=True, last_token=value).runner(other, fuse=form != "as written")
    for bad_at in (1, 2, 3, 7, 17):
        tokens = ids(20)
        (want,) = call(runner, tokens, 0)
        tokens[:, bad_at] = BAD
        (got,) = call(runner, tokens, 0)
        assert bits([got[:, :bad_at]]) == bits([want[:, :bad_at]]), f"token {bad_at}"
        assert not np.isfinite(got[:, bad_at:]).any()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_masked_keys(value: float, device: Device) -> None:
    """Attention without a cache: where the mask is -inf, keys and values do not matter."""
    b = Builder()
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, rows, 16)).astype(np.float32) for rows in (5, 40, 40))
    mask = np.zeros((1, 1, 5, 40), np.float32)
    mask[..., 33:] = -np.inf
    b.output(b.call("et_vk.sdpa.default", *(b.input(x.shape) for x in (q, k, v, mask)), 0.25, out=q.shape))
    runner = b.runner(device)
    want = run(runner, [q, k, v, mask])
    assert np.isfinite(want[0]).all()
    k[:, :, 34:], v[:, :, 33:] = value, value
    assert bits(run(runner, [q, k, v, mask])) == bits(want)


@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "as written"])
def test_a_bad_embedding_row_in_a_rounded_model(fuse: bool, device: Device, tmp_path: Path) -> None:
    """A whole 8da4w file: one token's embedding is NaN. Its logits, and those of later tokens, are NaN."""
    name = HERE / "fixtures" / "tiny_8da4w.pte"
    graph = open_model(open_program(name), device).runners[0].graph
    (node,) = (node for node in graph.nodes if "scales" in node.tensors and "embedding" in node.op.name)
    scales = np.asarray(graph.constant(node.tensors["scales"]))
    bad = scales.copy()
    bad[40] = np.nan
    assert name.read_bytes().count(scales.tobytes()) == 1
    damaged = tmp_path / "bad.pte"
    damaged.write_bytes(name.read_bytes().replace(scales.tobytes(), bad.tobytes()))
    model = open_model(open_program(damaged), device, fuse=fuse)

    def logits(tokens: list[int], position: int) -> Array:
        return model.run([np.array([tokens]), np.array([position])])[0]

    (want,) = logits([5, 6, 7], 0)
    for tokens in ([5, 40], [40, 6, 7], [40]):
        assert not np.isfinite(logits(tokens, 0)).any(), tokens
    assert not np.isfinite(logits([5], 1)).any()
    assert bits([want]) == bits([logits([5, 6, 7], 0)[0]])
