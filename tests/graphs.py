"""Small VkGraphs made in Python: one op from its test case, and chains as an exporter would write them."""

from __future__ import annotations

import copy
import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from webgpu_run.device import Device
from webgpu_run.execute import CallStats
from webgpu_run.graph import Graph
from webgpu_run.model import Runner
from webgpu_run.op import Args, Array, Case, Limits, Op, Plan, load_all
from webgpu_run.shapes import Dims, align, ceil_div
from webgpu_run.source import Span
from webgpu_run.vk import BoolList, Constant, DoubleList, IntList, OperatorCall, SymInt, ValueList, VkGraph, VkTensor

ANY = Limits(1 << 16, 1024, software=True, subgroups=True, f16=True, uniform_align=32)  # what every op runs on
SENTINEL = np.float32(1.7e30)  # finite, so that a zero weight may meet it; large, so that nothing else may


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of a graph being built."""

    id: int


class Builder:
    """Collects values and calls; plain Python arguments become scalar and list values."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.values: list[Any] = []
        self.chain: list[OperatorCall] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.data: list[bytes] = []
        self.limits = limits or ANY
        self._syms: dict[int, int] = {}

    def value(self, value: Any) -> Ref:
        self.values.append(value)
        return Ref(len(self.values) - 1)

    def tensor(self, dims: Dims, dtype: str = "float32") -> Ref:
        return self.value(VkTensor(dtype, tuple(dims)))

    def input(self, dims: Dims, dtype: str = "float32") -> Ref:
        ref = self.tensor(dims, dtype)
        self.inputs.append(ref.id)
        return ref

    def constant(self, array: Array) -> Ref:
        self.data.append(np.ascontiguousarray(array).tobytes())
        return self.value(VkTensor(array.dtype.name, array.shape, constant_id=len(self.data) - 1))

    def sym(self, value: int = 0) -> Ref:
        ref = self.value(SymInt(value))
        self._syms[ref.id] = value
        return ref

    def output(self, *refs: Ref) -> None:
        self.outputs.extend(r.id for r in refs)

    def call(self, name: str, *args: Any, out: Any = None, dtype: str | list[str] = "float32") -> Any:
        """Append a call; `out` is the dims of the output (a list of them for several), by default as planned."""
        op = load_all()[name]
        ids = tuple(self._arg(a).id for a in args)
        made: Any
        if op.out_kind == "symint":
            made = last = self.sym(self._plan(op, args).sym or 0)
        else:
            dims = self._plan(op, args).outs if out is None else out if isinstance(out, list) else (out,)
            dtypes = dtype if isinstance(dtype, list) else [dtype] * len(dims)
            refs = [self.tensor(d, t) for d, t in zip(dims, dtypes, strict=True)]
            made = refs if op.out_kind == "list" else refs[0]
            last = self.value(ValueList(tuple(r.id for r in refs))) if op.out_kind == "list" else refs[0]
        self.chain.append(OperatorCall(len(self.chain), name, (*ids, last.id)))
        return made

    def vk(self) -> VkGraph:
        constants = tuple(Constant(len(d), key=str(i)) for i, d in enumerate(self.data))
        return VkGraph("0", tuple(self.chain), tuple(self.values), tuple(self.inputs), tuple(self.outputs), constants)

    def bytes_of(self, k: int) -> Span:
        return Span.of(self.data[k])

    def graph(self) -> Graph:
        return Graph(self.vk(), self.bytes_of)

    def runner(self, device: Device, *, fuse: bool = False) -> Runner:
        delegate: Any = SimpleNamespace(graph=self.vk(), constant=self.bytes_of, id="VulkanBackend")
        made = Runner(delegate, device, fuse=fuse)
        made.greedy = None  # a graph of that op alone is meant to run it
        return made

    def _arg(self, a: Any) -> Ref:
        if isinstance(a, Ref):
            return a
        if isinstance(a, tuple | list):
            if any(isinstance(x, Ref | None) for x in a):
                return self.value(ValueList(tuple(self._arg(x).id for x in a)))
            kind = BoolList if all(isinstance(x, bool) for x in a) and a else IntList
            return self.value((DoubleList if any(isinstance(x, float) for x in a) else kind)(tuple(a)))
        return self.value(a)

    def _plan(self, op: Op, args: Sequence[Any]) -> Plan:
        dims: dict[str, Dims] = {}
        attrs: dict[str, Any] = {}
        slots: dict[str, int] = {}
        for param, a in zip(op.params, args, strict=True):
            if isinstance(a, Ref) and isinstance(self.values[a.id], VkTensor):
                dims[param.name] = self.values[a.id].dims
            elif param.kind == "slot":
                slots[param.name] = 0
            elif isinstance(a, Ref) and isinstance(self.values[a.id], ValueList):
                items = [self.values[i] for i in self.values[a.id].items]
                attrs[param.name] = tuple(x is not None for x in items)
                dims |= {f"{param.name}{i}": x.dims for i, x in enumerate(items) if x is not None}
            elif param.kind == "tensors":
                attrs[param.name] = tuple(x is not None for x in a)
                dims |= {f"{param.name}{i}": self.values[x.id].dims for i, x in enumerate(a) if x is not None}
            elif isinstance(a, tuple | list):
                attrs[param.name] = tuple(self._syms[x.id] if isinstance(x, Ref) else x for x in a)
            else:
                attrs[param.name] = self._syms[a.id] if isinstance(a, Ref) else a
        attrs |= {"data": None, "aliased": True}
        return op.plan(Args(dims, attrs, slots=slots), self.limits)


# -- one op from its case ----------------------------------------------------------------------------------------------


def names_of(op: Op) -> list[str]:
    """Tensor arguments that an op may have, in order; lists are left out."""
    return [p.name for p in op.params if p.kind == "tensor"]


def args_of(op: Op, case: Case, live: Mapping[str, Dims] | None = None) -> Args:
    """What a plan or a reference of the case sees, at the largest dims or with some of them live."""
    top = {k: v for k, v in case.dims.items() if k not in op.outs}
    slots = {p.name: i for i, p in enumerate(q for q in op.params if q.kind == "slot")}
    attrs = {**case.attrs, "aliased": True} if op.alias else dict(case.attrs)
    dtypes = {n: case.dtypes.get(n, "float32") for n in top}
    dtypes |= {n: _out_dtype(op, case, i) for i, n in enumerate(op.outs)}
    first = Args({**top, **case.dims}, attrs, dtypes=dtypes, slots=slots)
    outs = {n: case.dims[n] for n in op.outs if n in case.dims}
    if not outs:
        outs = dict(zip(op.outs, op.plan(first, ANY).outs, strict=True))
    return Args({**top, **(live or {})}, attrs, max_dims={**top, **outs}, dtypes=dtypes, slots=slots)


def is_constant(op: Op, name: str) -> bool:
    """Whether the exporter would have this argument as a constant: as declared, and what a packing op packs."""
    declared = {p.name for p in op.params if p.constant or p.mutable}
    packed = {"w", "scales", "bias", "norm"} if op.pack else set()
    return name in declared or name.rstrip("0123456789") in declared | packed


def _out_dtype(op: Op, case: Case, i: int) -> str:
    same = case.dtypes.get(op.alias or "", "float32")
    return case.dtypes.get(op.outs[i], same if op.alias else "float32")


def arrays_of(op: Op, case: Case, live: Mapping[str, Dims] | None = None, seed: int = 0) -> dict[str, Array]:
    """Data for every tensor argument; what is constant in the graph does not depend on `live`."""
    fixed = {name for name in case.dims if is_constant(op, name)}
    out: dict[str, Array] = {}
    for a, mine in ((args_of(op, case), fixed), (args_of(op, case, live), set(case.dims) - fixed)):
        salt = zlib.crc32(repr((op.name, sorted(case.dims.items()), seed)).encode())
        made = op.make(a, np.random.default_rng(salt)) if op.make else {}  # type: ignore[arg-type]
        for name in mine:
            if name in op.outs or name not in a:
                continue
            rng = np.random.default_rng([zlib.crc32(name.encode()), salt])
            out[name] = made[name] if name in made else _random(rng, a[name], a.dtypes[name])
    return out


def _random(rng: np.random.Generator, dims: Dims, dtype: str) -> Array:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return rng.standard_normal(dims).astype(kind)
    if kind.kind == "b":
        return rng.integers(0, 2, dims).astype(kind)
    return rng.integers(0 if kind.kind == "u" else -9, 10, dims).astype(kind)


@dataclass(slots=True)
class Single:
    """A graph of one op: the builder, and the names of its inputs in order (`pos` when it is a SymInt from data)."""

    builder: Builder
    names: list[str]
    pos: int

    def inputs(self, arrays: Mapping[str, Array]) -> list[Array]:
        return [np.array([self.pos], np.int32) if n == "pos" else arrays[n] for n in self.names]


def single(
    op: Op, case: Case, arrays: Mapping[str, Array], live: Mapping[str, Dims] | None = None, *, symbolic: bool = False
) -> Single:
    """The op alone, built at the case's dims (or at `live`); with `symbolic`, its position comes from an input."""
    a = args_of(op, case, live)
    planned = op.plan(a, ANY).outs
    b, names, args = Builder(), list[str](), list[Any]()
    pos = 0

    def tensor(name: str) -> Ref:
        if is_constant(op, name):
            return b.constant(arrays[name])
        names.append(name)
        return b.input(a[name], a.dtypes[name])

    for p in op.params:
        if p.kind == "tensor":
            args.append(tensor(p.name) if p.name in a else None)
        elif p.kind == "tensors":
            there = [f"{p.name}{i}" if given else "" for i, given in enumerate(case.attrs[p.name])]
            refs = [tensor(name) if name else b.value(None) for name in there]
            args.append(b.value(ValueList(tuple(r.id for r in refs))))
        elif p.kind == "slot" and symbolic:
            pos = int(case.attrs[p.name] or 0)
            names.append("pos")
            args.append(b.call("et_vk.select_as_symint.default", b.input((1,), "int32"), 0, 0))
        else:
            args.append(case.attrs.get(p.name))
    refs = b.call(op.name, *args, out=list(planned), dtype=[_out_dtype(op, case, i) for i in range(len(op.outs))])
    b.output(*(refs if isinstance(refs, list) else [refs]))
    return Single(b, names, pos)


# -- running -----------------------------------------------------------------------------------------------------------


def with_limits(device: Device, **changes: Any) -> Device:
    """The same device, planned for as if its limits were others."""
    other = copy.copy(device)
    other.limits = dataclasses.replace(device.limits, **changes)
    return other


def run(runner: Runner, inputs: Sequence[Array]) -> list[Array]:
    return runner.call(inputs, CallStats())


def fill(runner: Runner) -> None:
    """Put the sentinel into every buffer that holds no constant, scratch included."""
    graph, executor = runner.graph, runner.executor
    buffers = [b for root, b in executor.buffers.items() if graph.tensors[root].constant < 0]
    kept = {id(b) for b in (*executor.resident._uploads.values(), *executor.resident.state)}
    buffers += [b for b in executor.resident._owned.values() if id(b) not in kept]
    for buffer in buffers:
        executor.device.write(buffer, np.full(buffer.size // 4, SENTINEL))


def contents(runner: Runner, v: int) -> Array:
    """All 32-bit words of the buffer behind a tensor, live or not."""
    buffer = runner.executor.buffers[runner.graph.tensors[v].root]
    return np.frombuffer(runner.executor.device.handle.queue.read_buffer(buffer), np.uint32)


def bits(arrays: Sequence[Array]) -> list[tuple[tuple[int, ...], bytes]]:
    return [(a.shape, a.tobytes()) for a in arrays]


# -- chains ------------------------------------------------------------------------------------------------------------


def q4(rng: np.random.Generator, n: int, k: int, group: int = 32) -> tuple[Array, Array]:
    """A 4-bit weight and its scales as the exporter lays them out."""
    w = rng.integers(0, 256, (n, align(k, 8) // 2)).astype(np.uint8)
    return w, (rng.uniform(0.5, 1.5, (ceil_div(k, group), align(n, 4))) / (4 * k**0.5)).astype(np.float32)


def transformer(
    seq: int = 24, context: int = 40, dim: int = 64, heads: int = 4, kv_heads: int = 2, hidden: int = 96,
    vocab: int = 68, layers: int = 2, *, full: bool = False, seed: int = 5,
) -> Builder:  # fmt: skip
    """A Llama as the exporter writes it: tokens [1, S] and pos [1] to logits of the last row (or, `full`, of all)."""
    rng = np.random.default_rng(seed)
    b = Builder()
    head = dim // heads
    tokens, at = b.input((1, seq), "int32"), b.input((1,), "int32")

    def linear(x: Ref, n: int, rows: Dims) -> Any:
        w, scales = q4(rng, n, b.values[x.id].dims[-1])
        return b.call("et_vk.linear_q4gsw.default", x, b.constant(w), b.constant(scales), 32, None, out=(*rows, n))

    def norm(x: Ref) -> Any:
        weight = b.constant(rng.uniform(0.5, 1.5, dim).astype(np.float32))
        return b.call("et_vk.rms_norm.default", x, weight, 1e-5)

    pos = b.call("et_vk.select_as_symint.default", at, 0, 0)
    live = b.call("sym_size.int", tokens, 1)
    end = b.call("add", pos, live)
    w, _ = q4(rng, vocab, dim)
    scales = rng.uniform(0.05, 0.2, (vocab, dim // 32)).astype(np.float32)
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
        caches = [b.constant(np.zeros((1, context, kv_heads, head), np.float32)) for _ in range(2)]
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
