"""Builds graphs in Python: from values and calls, or of one op alone, from one of its test cases."""

from __future__ import annotations

import copy
import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..formats.source import Span
from ..formats.vkgraph import (
    BoolList,
    Constant,
    DoubleList,
    IntList,
    OperatorCall,
    SymInt,
    ValueList,
    VkGraph,
    VkTensor,
)
from ..gpu.device import Device
from ..graph.calls import Ref
from ..graph.graph import Graph
from ..ops.limits import SOFTWARE, Limits
from ..ops.plan import Plan
from ..ops.spec import Args, Case, Op, load_all
from ..runtime.runner import Runner
from ..shapes import Array, Dims

# Limits that every op accepts.
ANY = Limits(
    1 << 16, 1024, max_uniform=1 << 30, software=True, subgroups=True, f16=True, uniform_align=32, profile=SOFTWARE
)


class Builder:
    """Collects the values and calls of a graph. Plain Python arguments become scalar or list values."""

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
        """Append a call, return its output. `out` is its dims (a list if there are several), by default as planned."""
        op = load_all()[name]
        ids = tuple(self._arg(a).id for a in args)
        result: Any
        if op.out_kind == "symint":
            result = last = self.sym(self._plan(op, args).sym or 0)
        else:
            dims = self._plan(op, args).outs if out is None else out if isinstance(out, list) else (out,)
            dtypes = dtype if isinstance(dtype, list) else [dtype] * len(dims)
            refs = [self.tensor(d, t) for d, t in zip(dims, dtypes, strict=True)]
            result = refs if op.out_kind == "list" else refs[0]
            last = self.value(ValueList(tuple(r.id for r in refs))) if op.out_kind == "list" else refs[0]
        self.chain.append(OperatorCall(len(self.chain), name, (*ids, last.id)))
        return result

    def vk(self) -> VkGraph:
        constants = tuple(Constant(len(d), key=str(i)) for i, d in enumerate(self.data))
        return VkGraph("0", tuple(self.chain), tuple(self.values), tuple(self.inputs), tuple(self.outputs), constants)

    def bytes_of(self, k: int) -> Span:
        return Span.of(self.data[k])

    def graph(self) -> Graph:
        return Graph(self.vk(), self.bytes_of)

    def runner(self, device: Device, *, fuse: bool = False) -> Runner:
        delegate: Any = SimpleNamespace(graph=self.vk(), constant=self.bytes_of, id="VulkanBackend")
        runner = Runner(delegate, device, fuse=fuse)
        if not fuse:
            runner.pick = None  # a graph of `pick` alone must run it
        return runner

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
    """Names of an op's tensor arguments, in order, without lists of tensors."""
    return [p.name for p in op.params if p.kind == "tensor"]


def sized(op: Op, case: Case) -> Op:
    """The op with the number of outputs that the case has."""
    return op.sized(len(op.plan(Args(case.dims, case.attrs), ANY).outs)) if op.outs == ("out*",) else op


def varying(op: Op, case: Case) -> set[str]:
    """Attributes that the live shapes of the case change: in a file they are SymInts."""
    return {p.name for p in op.params if p.kind in ("shape", "sym", "scalar") and any(p.name in o for o in case.live)}


def args_of(op: Op, case: Case, live: Mapping[str, Any] | None = None) -> Args:
    """The arguments that a plan or a reference gets for the case, at its largest dims or at `live`."""
    changed = {n: v for n, v in (live or {}).items() if n in varying(op, case)}
    live = {n: v for n, v in (live or {}).items() if n not in changed}
    top = {k: v for k, v in case.dims.items() if k not in op.outs}
    slots = {p.name: i for i, p in enumerate(q for q in op.params if q.kind == "slot")}
    attrs = {**case.attrs, "aliased": True} if op.alias else dict(case.attrs)
    dtypes = {n: case.dtypes.get(n, "float32") for n in top}
    dtypes |= {n: _out_dtype(op, case, i) for i, n in enumerate(op.outs)}
    first = Args({**top, **case.dims}, attrs, dtypes=dtypes, slots=slots)
    outs = {n: case.dims[n] for n in op.outs if n in case.dims}
    if not outs:
        made = op.plan(first, ANY).outs
        outs = dict(zip(op.sized(len(made)).outs, made, strict=True))
    return Args({**top, **live}, {**attrs, **changed}, max_dims={**top, **outs}, dtypes=dtypes, slots=slots)


def is_constant(op: Op, name: str) -> bool:
    """Whether the exporter would have this argument as a constant: as declared, and what a packing op packs."""
    if name in op.outs:
        return False
    param = op.param(name)
    packed = op.pack is not None and param.role in ("weight", "scales", "bias", "norm")
    return param.constant or param.mutable or packed


def _out_dtype(op: Op, case: Case, i: int) -> str:
    same = case.dtypes.get(op.alias or "", "float32")
    return case.dtypes.get(op.outs[i], same if op.alias else "float32")


def arrays_of(op: Op, case: Case, live: Mapping[str, Dims] | None = None, seed: int = 0) -> dict[str, Array]:
    """Data for every tensor argument. Constants do not depend on `live`."""
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
    attrs = args_of(op, case, live).attrs
    return out | {name: np.atleast_1d(np.array(attrs[name], np.int32)) for name in varying(op, case)}


def _random(rng: np.random.Generator, dims: Dims, dtype: str) -> Array:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return rng.standard_normal(dims).astype(kind)
    if kind.kind == "b":
        return rng.integers(0, 2, dims).astype(kind)
    return rng.integers(0 if kind.kind == "u" else -9, 10, dims).astype(kind)


@dataclass(slots=True)
class Single:
    """A graph of one op: the builder, the names of its inputs in order, and the positions among these."""

    builder: Builder
    names: list[str]
    positions: Mapping[str, int]

    def inputs(self, arrays: Mapping[str, Array]) -> list[Array]:
        return [np.array([self.positions[n]], np.int32) if n in self.positions else arrays[n] for n in self.names]


def single(
    op: Op, case: Case, arrays: Mapping[str, Array], live: Mapping[str, Dims] | None = None, *, symbolic: bool = False
) -> Single:
    """A graph of the op alone, built at the case's dims or at `live`. With `symbolic`, its position is an input.

    If `live` is None, the attributes that vary are SymInts: the elements of inputs with the names of the attributes.
    """
    a = args_of(op, case, live)
    planned = op.plan(a, ANY).outs
    b, names, args = Builder(), list[str](), list[Any]()
    positions: dict[str, int] = {}
    read = varying(op, case) if live is None else ()

    def tensor(name: str) -> Ref:
        if is_constant(op, name):
            return b.constant(arrays[name])
        names.append(name)
        return b.input(a[name], a.dtypes[name])

    for p in op.params:
        if p.kind == "tensor":
            args.append(tensor(p.name) if p.name in a else None)
        elif p.kind == "tensors":
            members = [f"{p.name}{i}" if present else "" for i, present in enumerate(case.attrs[p.name])]
            refs = [tensor(name) if name else b.value(None) for name in members]
            args.append(b.value(ValueList(tuple(r.id for r in refs))))
        elif p.kind == "slot" and symbolic:
            positions[p.name] = int(case.attrs[p.name] or 0)
            names.append(p.name)
            args.append(b.call("et_vk.select_as_symint.default", b.input((1,), "int32"), 0, 0))
        elif p.name in read:
            names.append(p.name)
            source = b.input(arrays[p.name].shape, "int32")
            syms = [b.call("et_vk.select_as_symint.default", source, 0, i) for i in range(arrays[p.name].size)]
            args.append(syms if p.kind == "shape" else syms[0])
        else:
            args.append(a.attrs.get(p.name))
    refs = b.call(op.name, *args, out=list(planned), dtype=[_out_dtype(op, case, i) for i in range(len(op.outs))])
    b.output(*(refs if isinstance(refs, list) else [refs]))
    return Single(b, names, positions)


def with_limits(device: Device, **changes: Any) -> Device:
    """The same device, but plans see other limits."""
    other = copy.copy(device)
    other.limits = dataclasses.replace(device.limits, **changes)
    return other
