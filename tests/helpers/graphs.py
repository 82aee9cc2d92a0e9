"""Small graphs built in Python as an exporter would write them, and access to the buffers of a runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from webgpu_run.debug.single_op import ANY, Builder, Ref, Single, args_of, arrays_of, single, with_limits
from webgpu_run.formats.source import Span
from webgpu_run.formats.vkgraph import Constant, VkGraph, VkTensor
from webgpu_run.gpu.callstats import CallStats
from webgpu_run.gpu.device import Image
from webgpu_run.runtime.runner import Runner
from webgpu_run.shapes import Array, Dims, align, ceil_div

__all__ = ["ANY", "SENTINEL", "Builder", "Ref", "Single", "args_of", "arrays_of", "single", "with_limits"]
SENTINEL = np.float32(1.7e30)  # finite, so that a zero weight may meet it; large, so that nothing else may


def run(runner: Runner, inputs: Sequence[Array]) -> list[Array]:
    return runner.call(inputs, CallStats())


def unread(count: int) -> Array:
    """The sentinel of inputs. It has both signs, so that neither a maximum nor a minimum can hide it."""
    return np.where(np.arange(count) % 2, np.float32(2.3e29), np.float32(-2.3e29))


def fill(runner: Runner) -> None:
    """Fill every buffer that holds no constant with a sentinel, scratch included. Inputs have a sentinel of their own,
    so that it is seen when a kernel copies it past the end of an output."""
    graph, executor = runner.graph, runner.executor
    buffers = [b for root, b in executor.buffers.items() if graph.tensors[root].constant < 0]
    resident = executor.resident
    kept = {id(b) for b in (*resident.uploads.values(), *resident.state, *resident.images)}
    buffers += [b for b in resident.owned.values() if id(b) not in kept]
    inputs = {id(executor.buffers[graph.tensors[v].root]) for v in graph.input_ids}
    for buffer in buffers:
        if isinstance(buffer, Image):
            executor.device.fill_image(buffer, SENTINEL)
            continue
        count = buffer.size // 4
        executor.device.write(buffer, unread(count) if id(buffer) in inputs else np.full(count, SENTINEL))


def contents(runner: Runner, v: int) -> Array:
    """All 32-bit words of the buffer behind a tensor, live or not."""
    buffer = runner.executor.buffers[runner.graph.tensors[v].root]
    return np.frombuffer(runner.executor.device.handle.queue.read_buffer(buffer), np.uint32)


def bits(arrays: Sequence[Array]) -> list[tuple[tuple[int, ...], bytes]]:
    return [(a.shape, a.tobytes()) for a in arrays]


class Blank(Builder):
    """A builder whose constants are views of one zero, so that a graph of any size costs no memory."""

    def __init__(self) -> None:
        super().__init__()
        self.arrays: list[Array] = []

    def constant(self, array: Array) -> Ref:
        self.arrays.append(array)
        return self.value(VkTensor(array.dtype.name, array.shape, constant_id=len(self.arrays) - 1))

    def vk(self) -> VkGraph:
        constants = tuple(Constant(a.nbytes, key=str(i)) for i, a in enumerate(self.arrays))
        return replace(super().vk(), constants=constants)

    def bytes_of(self, k: int) -> Span:
        return Span.of(np.ascontiguousarray(self.arrays[k]).tobytes())


# -- chains ------------------------------------------------------------------------------------------------------------


def zeros(dims: Dims, dtype: type) -> Array:
    """Zeros that take no memory."""
    return np.broadcast_to(np.zeros((), dtype), dims)


def q4(rng: np.random.Generator | None, n: int, k: int, group: int = 32) -> tuple[Array, Array]:
    """A 4-bit weight and its scales as the exporter lays them out; zeros without `rng`."""
    if rng is None:
        return zeros((n, align(k, 8) // 2), np.uint8), zeros((ceil_div(k, group), align(n, 4)), np.float32)
    w = rng.integers(0, 256, (n, align(k, 8) // 2)).astype(np.uint8)
    return w, (rng.uniform(0.5, 1.5, (ceil_div(k, group), align(n, 4))) / (4 * k**0.5)).astype(np.float32)


def transformer(
    seq: int = 24, context: int = 40, dim: int = 64, heads: int = 4, kv_heads: int = 2, hidden: int = 96,
    vocab: int = 68, layers: int = 2, *, full: bool = False, seed: int = 5, last_token: float | None = None,
    blank: bool = False,
) -> Builder:  # fmt: skip
    """A Llama as the exporter writes it: tokens [1, S] and pos [1] to logits of the last row (or, `full`, of all).

    `last_token` replaces the scales of the last row of the embedding, for example by NaN. With `blank`, all weights are
    zero and take no memory."""
    rng = np.random.default_rng(seed)
    b = Blank() if blank else Builder()
    head = dim // heads
    tokens, at = b.input((1, seq), "int32"), b.input((1,), "int32")

    def linear(x: Ref, n: int, rows: Dims) -> Any:
        w, scales = q4(None if blank else rng, n, b.values[x.id].dims[-1])
        return b.call("et_vk.linear_q4gsw.default", x, b.constant(w), b.constant(scales), 32, None, out=(*rows, n))

    def norm(x: Ref) -> Any:
        weight = b.constant(rng.uniform(0.5, 1.5, dim).astype(np.float32))
        return b.call("et_vk.rms_norm.default", x, weight, 1e-5)

    pos = b.call("et_vk.select_as_symint.default", at, 0, 0)
    live = b.call("sym_size.int", tokens, 1)
    end = b.call("add", pos, live)
    w, _ = q4(None if blank else rng, vocab, dim)
    scales = zeros((vocab, dim // 32), np.float32)
    if not blank:
        scales = rng.uniform(0.05, 0.2, scales.shape).astype(np.float32)
        scales[-1] = scales[-1] if last_token is None else last_token
    x = b.call("et_vk.embedding_q4gsw.default", b.constant(w), b.constant(scales), 32, tokens, True)
    angles = np.outer(np.arange(context), 100.0 ** (-np.arange(head // 2) / (head // 2)))
    tables = [b.constant(f(angles).astype(np.float32)) for f in (np.cos, np.sin)]
    cos, sin = (b.call("aten.slice_copy.Tensor", t, 0, pos, end, 1, out=(seq, head // 2)) for t in tables)
    for _ in range(layers):
        h = norm(x)
        q, k, v = (linear(h, n * head, (1, seq)) for n in (heads, kv_heads, kv_heads))
        q, k, v = (
            b.call("aten.view_copy.default", t, (1, live, n, head), out=(1, seq, n, head))
            for t, n in ((q, heads), (k, kv_heads), (v, kv_heads))
        )
        q, k = b.call("et_vk.apply_rotary_emb.default", q, k, cos, sin)
        caches = [b.constant(zeros((1, context, kv_heads, head), np.float32)) for _ in range(2)]
        y = b.call("sdpa_with_kv_cache.default", q, k, v, *caches, pos, live, None, 0.0, True, None)
        y = b.call("aten.view_copy.default", y, (1, live, dim), out=(1, seq, dim))
        x = b.call("aten.add.Tensor", x, linear(y, dim, (1, seq)), 1)
        h = norm(x)
        gate, up = linear(h, hidden, (1, seq)), linear(h, hidden, (1, seq))
        gate = b.call("aten.mul.Tensor", gate, b.call("aten.sigmoid.default", gate))
        x = b.call("aten.add.Tensor", x, linear(b.call("aten.mul.Tensor", gate, up), dim, (1, seq)), 1)
    if not full:
        x = b.call("aten.select_copy.int", x, 1, -1)
    b.output(linear(norm(x), vocab, b.values[x.id].dims[:-1]))
    return b


def residual(rows: int = 17, width: int = 12) -> Builder:
    """y = sigmoid(x) + x; z = y * x + y: every node but the first has an operand that skips the one before it."""
    b = Builder()
    x = b.input((1, rows, width))
    y = b.call("aten.add.Tensor", b.call("aten.sigmoid.default", x), x, 1)
    z = b.call("aten.add.Tensor", b.call("aten.mul.Tensor", y, x), y, 1)
    b.output(z)
    return b


def two_inputs(q: int = 11, k: int = 13, heads: int = 2, dim: int = 8) -> Builder:
    """Rotary embedding of two inputs whose sizes vary apart, each output normalised and summed on its own."""
    b = Builder()
    xq, xk = b.input((1, q, heads, dim)), b.input((1, k, heads, dim))
    rows = max(q, k)
    angles = np.outer(np.arange(rows), 10.0 ** -np.arange(dim // 2))
    tables = [b.constant(f(angles).astype(np.float32)) for f in (np.cos, np.sin)]
    oq, ok = b.call("et_vk.apply_rotary_emb.default", xq, xk, *tables)
    b.output(b.call("aten.add.Tensor", oq, xq, 1), b.call("aten.mul.Tensor", ok, xk))
    return b


def symbolic(rows: int = 24, width: int = 6) -> Builder:
    """Shapes from data, from a live dim and from arithmetic: x[at : at + size // 2] and a view of S * width."""
    b = Builder()
    x, at = b.input((rows, width)), b.input((2,), "int32")
    first = b.call("et_vk.select_as_symint.default", at, 0, 1)
    size = b.call("sym_size.int", x, 0)
    half = b.call("floordiv", size, 2)
    end = b.call("add", first, half)
    b.output(b.call("aten.slice_copy.Tensor", x, 0, first, end, 1, out=(rows // 2, width)))
    flat = b.call("mul", size, width)
    y = b.call("aten.view_copy.default", x, (flat,), out=(rows * width,))
    b.output(b.call("aten.sigmoid.default", y))
    rest = b.call("sub", size, 1)
    b.output(b.call("aten.select_copy.int", x, 0, rest, out=(width,)))
    return b
