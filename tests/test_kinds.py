"""Every kind of language-model file that the exporter makes, run on the adapter against its eager golden."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from webgpu_run.debug.stepping import Check, Stepper
from webgpu_run.errors import FormatError
from webgpu_run.formats import pte, pte_writer
from webgpu_run.formats.vkgraph import Constant, OperatorCall, VkGraph, VkTensor
from webgpu_run.formats.vkgraph_writer import program_of
from webgpu_run.gpu.callstats import CallStats
from webgpu_run.gpu.device import Device
from webgpu_run.ops.limits import GPU, PLAIN, Limits
from webgpu_run.runtime.model import Model
from webgpu_run.runtime.open import load
from webgpu_run.shapes import Array

from helpers.graphs import Builder, with_limits
from helpers.kinds import FIXTURES, KINDS, ROUNDED, golden, measure, open_kind


@pytest.mark.parametrize("name", KINDS)
def test_kind(name: str, device: Device) -> None:
    """Largest difference in logits, and the best token of every row."""
    found = measure(open_kind(name, device), golden(name))
    assert found.relative <= KINDS[name].limit, found
    assert found.exact >= found.calls - KINDS[name].loose, found
    assert found.agree == found.rows, found


@pytest.mark.parametrize("name", KINDS)
def test_kind_with_kernels_of_a_gpu(name: str, device: Device) -> None:
    """The kernels that a GPU gets, with no more than the limits that WebGPU promises."""
    promised = dataclasses.asdict(Limits(profile=GPU, subgroups=device.limits.subgroups))
    gpu = with_limits(device, **{**promised, "profile": GPU})
    found = measure(open_kind(name, gpu), golden(name))
    assert found.relative <= KINDS[name].limit, found
    assert found.agree == found.rows, found


UNFUSED = ("tiny_tutorial", "tiny_8da4w", "tiny_mixed", "tiny_qwen25", "tiny_qwen3", "tiny_nosdpa")


@pytest.mark.parametrize("name", UNFUSED)
def test_kind_as_written(name: str, device: Device) -> None:
    """The same without fusion: the ops as the exporter spells them.

    Where rows are rounded to 8 bits, one early rounding that goes the other way is in the cache for all calls after it:
    there each op is compared with its reference instead.
    """
    found = measure(open_kind(name, device, fuse=False), golden(name)[:11])
    assert found.relative <= KINDS[name].limit, found
    assert found.agree == found.rows, found
    if KINDS[name].limit != ROUNDED:
        assert found.exact == found.calls, found
        return
    model, check = open_kind(name, device, fuse=False), Check()
    for runner in model.runners:
        runner.visitor = Stepper([check], inputs=True)
    measure(model, golden(name)[:3])
    assert check.compared > 100
    assert max(check.worst.values()) <= 1e-10, check.worst


@pytest.mark.parametrize("name", ["tiny_emb8", "tiny_nosdpa"])
def test_reset_empties_the_buffers(name: str, device: Device) -> None:
    """After `reset` the first call gives its first bits again, whatever ran between."""
    model, calls = open_kind(name, device), golden(name)
    first = model.run(list(calls[0][:2]))[0].tobytes()
    for ids, pos, _ in calls[1:4]:
        model.run([ids, pos])
    model.reset()
    assert model.run(list(calls[0][:2]))[0].tobytes() == first


def test_a_failed_call_leaves_the_buffers(device: Device) -> None:
    """A position past the context is refused, and the next call finds the buffers as they were."""
    model, calls = open_kind("tiny_nosdpa", device), golden("tiny_nosdpa")
    for ids, pos, _ in calls[:3]:
        model.run([ids, pos])
    with pytest.raises(Exception, match="index 48 is out of range of a dim of 48"):
        model.run([calls[3][0], np.array([48])])
    found = measure(model, calls[3:6])
    assert found.relative <= KINDS["tiny_nosdpa"].limit
    assert found.agree == found.rows


def test_metadata_has_several_eos_ids(device: Device) -> None:
    assert open_kind("tiny_short", device).metadata["get_eos_ids"] == [2, 5]


def rewritten(path: Path, device: Device) -> None:
    """A rewritten tiny_dyn gives the logits of the first one."""
    found = measure(load(path, device=device), golden("tiny_dyn")[:3])
    assert found.relative <= KINDS["tiny_dyn"].limit
    assert found.agree == found.rows


def with_inline_constants(program: pte.Program) -> pte.Program:
    """As older exporters wrote it: the weights inside the delegate, nothing in named data."""
    forward = program.method()
    delegate = forward.delegates[0]
    assert delegate.graph is not None
    constants, at = [], 0
    for constant in delegate.graph.constants:
        constants.append(Constant(constant.length, offset=at))
        at += -(-constant.length // 16) * 16
    graph = dataclasses.replace(delegate.graph, constants=tuple(constants))
    method = dataclasses.replace(forward, delegates=(dataclasses.replace(delegate, graph=graph),))
    methods = tuple(method if m is forward else m for m in program.methods)
    return dataclasses.replace(program, methods=methods, named={})


@pytest.mark.parametrize("header", [24, 32])
def test_older_header(tmp_path: Path, device: Device, header: int) -> None:
    path = tmp_path / "model.pte"
    pte_writer.write(path, pte.load(FIXTURES / "tiny_dyn.pte"), header=header)
    rewritten(path, device)


@pytest.mark.parametrize(("header", "inline"), [(0, True), (24, True), (32, False)])
def test_inline_constants(tmp_path: Path, device: Device, header: int, inline: bool) -> None:
    """Also without any extended header: then the delegate is inside the FlatBuffer too."""
    path = tmp_path / "model.pte"
    pte_writer.write(path, with_inline_constants(pte.load(FIXTURES / "tiny_dyn.pte")), header=header, inline=inline)
    assert not pte.load(path).named
    rewritten(path, device)


def test_external_weights_of_our_own(tmp_path: Path, device: Device) -> None:
    """A file whose weights were all moved to a .ptd runs with it, and is refused by name without."""
    program = pte.load(FIXTURES / "tiny_dyn.pte")
    data, path = tmp_path / "weights.ptd", tmp_path / "elsewhere" / "model.pte"
    path.parent.mkdir()
    data.write_bytes(pte_writer.ptd({key: span.read() for key, span in program.named.items()}))
    pte_writer.write(path, dataclasses.replace(program, named={}))
    found = measure(Model(pte.load(path, [data]), device), golden("tiny_dyn")[:3])
    assert found.relative <= KINDS["tiny_dyn"].limit
    with pytest.raises(FormatError, match="no data named"):
        load(path, device=device)


ROWS, WIDTH = 3001, 24
TABLE = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)


def one_op(name: str, order: tuple[int, ...], table: Array, x: VkTensor, out: VkTensor) -> pte.Program:
    """A graph of one op with a constant table; `order` lists its arguments: x 0, table 1, null 2, false 3, out 4."""
    values = (x, VkTensor(table.dtype.name, table.shape, constant_id=0), None, False, out)
    graph = VkGraph("0", (OperatorCall(0, name, order),), values, (0,), (4,), (Constant(table.nbytes, offset=0),))
    return program_of(graph, [table.tobytes()])


def in_parts(program: pte.Program, device: Device, x: Array) -> tuple[Array, str]:
    """The output where the adapter binds a fifth of the table at most, and the route taken.

    Subgroups would make strips of a linear's weight, which are a texture.
    """
    limits = device.limits
    device.limits = dataclasses.replace(limits, max_binding=TABLE.nbytes // 5, profile=PLAIN)
    try:
        model = Model(program, device)
        return model.run([x])[0], model.runners[0].engine.plans[0].route
    finally:
        device.limits = limits


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_table_past_the_binding_limit_comes_in_parts(device: Device, dtype: str) -> None:
    table = TABLE.astype(dtype)
    ids = np.array([[0, ROWS - 1, 17, 1200, 599, 600, 601, 2400]], np.int32)
    order = (1, 0, 2, 3, 3, 4)
    x, out = VkTensor("int32", ids.shape), VkTensor("float32", (*ids.shape, WIDTH))
    got, route = in_parts(one_op("aten.embedding.default", order, table, x, out), device, ids)
    assert route.endswith("parts")
    assert np.array_equal(got, table[ids].astype(np.float32))


def test_a_weight_past_the_binding_limit_comes_in_parts(device: Device) -> None:
    rows = np.random.default_rng(1).standard_normal((2, WIDTH)).astype(np.float32)
    x, out = VkTensor("float32", rows.shape), VkTensor("float32", (2, ROWS))
    program = one_op("aten.linear.default", (0, 1, 2, 4), TABLE, x, out)
    got, route = in_parts(program, device, rows)
    assert route.endswith("parts")
    assert np.allclose(got, rows @ TABLE.T, rtol=0, atol=1e-5)
    route = Model(program, device).runners[0].engine.plans[0].route
    assert route == ("gemm strips" if device.limits.profile.shuffle else "gemm")


def test_a_linear_without_inputs_returns_its_bias(device: Device) -> None:
    builder = Builder(device.limits)
    bias = np.arange(20, dtype=np.float32)
    w, b = builder.constant(np.zeros((20, 0), np.float32)), builder.constant(bias)
    builder.output(builder.call("aten.linear.default", builder.input((2, 0)), w, b, out=(2, 20)))
    (got,) = builder.runner(device).call([np.zeros((2, 0), np.float32)], CallStats())
    assert np.array_equal(got, np.stack([bias, bias]))
