"""The pass that makes a language model return the logits of every token."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from webgpu_run.assets import bundled_model
from webgpu_run.errors import UnsupportedError
from webgpu_run.formats import pte
from webgpu_run.formats.source import BytesSource, Span
from webgpu_run.gpu.device import Device
from webgpu_run.graph.passes import all_rows as module
from webgpu_run.graph.passes.all_rows import all_rows
from webgpu_run.runtime.model import Model
from webgpu_run.shapes import Array

from helpers.graphs import Builder

FIXTURES = Path(__file__).parent / "fixtures"
FILES = sorted(path.stem for path in FIXTURES.glob("tiny_*.pte"))


def rows_of(model: Model, ids: Array) -> Array:
    """The logits of these tokens, by as few calls as the output has room for."""
    most = min(model.inputs[0].dims[1], model.outputs[0].dims[-2])
    calls = [model.run([ids[:, at : at + most], np.array([at])])[0] for at in range(0, ids.shape[1], most)]
    return np.concatenate([out.reshape(-1, out.shape[-1]) for out in calls])


@pytest.mark.parametrize("name", [*FILES, "bundled"])
def test_each_row_is_that_of_a_call_which_ends_there(name: str, device: Device) -> None:
    path = bundled_model() if name == "bundled" else FIXTURES / f"{name}.pte"
    assert path
    program = pte.load(path)
    whole, last = Model(program, device, all_rows=True), Model(program, device)
    vocab = last.outputs[0].dims[-1]
    ids = np.random.default_rng(3).integers(0, vocab, (1, 13))
    got = rows_of(whole, ids)
    assert got.shape == (13, vocab)
    for i in range(13):
        want = last.run([ids[:, i : i + 1], np.array([i])])[0].reshape(-1, vocab)[-1]
        assert np.abs(got[i] - want).max() <= 2e-4 * (want.max() - want.min())


def test_rows_beyond_the_memory_for_logits_are_those_of_the_last_tokens(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = pte.load(FIXTURES / "tiny_dyn.pte")
    every = Model(program, device, all_rows=True)
    monkeypatch.setattr(module, "MAX_LOGITS", 4 * 512 * 5)
    some = Model(program, device, all_rows=True)
    assert every.outputs[0].dims == (127, 512)
    assert some.outputs[0].dims == (5, 512)
    ids = np.random.default_rng(4).integers(0, 512, (1, 12))
    want = rows_of(every, ids)
    np.testing.assert_allclose(rows_of(some, ids), want, atol=1e-3)
    np.testing.assert_allclose(some.run([ids, np.array([0])])[0], want[-5:], atol=1e-3)
    assert some.run([ids[:, :3], np.array([0])])[0].shape == (3, 512)


def method_of(builder: Builder) -> pte.Method:
    tokens, logits = pte.Tensor("int64", (1, 9)), pte.Tensor("float32", (1, 4))
    delegate = pte.Delegate(pte.VULKAN, (), Span(BytesSource(b""), 0, 0), graph=builder.vk())
    chain = pte.Chain((0,), (1,), (pte.DelegateCall(0, (0, 1)),))
    return pte.Method("forward", (0,), (1,), (tokens, logits), (chain,), delegates=(delegate,))


def test_an_op_that_mixes_rows_is_refused() -> None:
    b = Builder()
    rows = b.input((1, 9, 4))
    b.output(b.call("aten._softmax.default", b.call("aten.select_copy.int", rows, 1, -1), 0, False))
    with pytest.raises(UnsupportedError, match=r"aten._softmax.default follows the select of the last row"):
        all_rows(method_of(b))


def test_a_graph_without_the_select_is_refused() -> None:
    b = Builder()
    b.output(b.call("aten.select_copy.int", b.input((1, 9, 4)), 1, 0))
    with pytest.raises(UnsupportedError, match="no select of the last row"):
        all_rows(method_of(b))
