"""Weights that a graph computes from constants become constants, as they must be for a kernel to pack them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from webgpu_run.formats import pte_writer
from webgpu_run.formats.pte import Delegate
from webgpu_run.formats.source import Span
from webgpu_run.formats.vkgraph_writer import program_of
from webgpu_run.gpu.device import Device
from webgpu_run.graph.folding import fold_weights
from webgpu_run.runtime.model import Model
from webgpu_run.runtime.open import open_program

from helpers.graphs import Builder

RNG = np.random.default_rng(0)
V, G, X = (RNG.standard_normal(dims).astype(np.float32) for dims in ((4, 2, 3), (4, 1, 1), (1, 2, 9)))


def weight_norm(*, from_input: bool = False, returned: bool = False) -> Builder:
    """A convolution by v * exp(g), where g is a constant, or an input of the graph."""
    b = Builder()
    v = b.constant(V)
    x = b.input((1, 2, 9))
    g = b.input((4, 1, 1)) if from_input else b.constant(G)
    weight = b.call("aten.mul.Tensor", v, b.call("aten.exp.default", g))
    b.output(b.call("aten.convolution.default", x, weight, None, (1,), (0,), (1,), False, (0,), 1))
    if returned:
        b.output(b.call("aten.relu.default", weight))
    return b


def delegate_of(b: Builder) -> Delegate:
    vk = b.vk()
    return Delegate("VulkanBackend", (), Span.of(b""), vk, tuple(b.bytes_of(k) for k in range(len(vk.constants))))


def test_the_calls_that_compute_a_weight_are_gone() -> None:
    before = delegate_of(weight_norm())
    after = fold_weights(before)
    assert before.graph is not None
    assert after.graph is not None
    assert [call.name for call in after.graph.chain] == ["aten.convolution.default"]
    assert len(after.constants) == len(after.graph.constants) == len(before.constants) + 1
    made = np.frombuffer(after.constants[-1].read(), np.float32).reshape(V.shape)
    assert np.allclose(made, V * np.exp(G), rtol=1e-6)


def test_what_is_read_elsewhere_stays() -> None:
    after = fold_weights(delegate_of(weight_norm(returned=True)))
    assert after.graph is not None
    assert [call.name for call in after.graph.chain] == ["aten.convolution.default", "aten.relu.default"]


def test_other_graphs_stay_as_they_are() -> None:
    computed = delegate_of(weight_norm(from_input=True))
    assert fold_weights(computed) is computed


def test_a_file_with_such_a_weight(tmp_path: Path, device: Device) -> None:
    b = weight_norm(returned=True)
    vk = b.vk()
    constants = [b.bytes_of(k).read() for k in range(len(vk.constants))]
    pte_writer.write(tmp_path / "norm.pte", program_of(vk, constants))
    out, weight = Model(open_program(tmp_path / "norm.pte"), device).run([X])
    w = V * np.exp(G)
    wanted = sum(np.einsum("nil,oi->nol", X[:, :, k : k + 7], w[:, :, k]) for k in range(3))
    assert np.allclose(out, wanted, atol=1e-5)
    assert np.allclose(weight, np.maximum(w, 0), rtol=1e-5)
