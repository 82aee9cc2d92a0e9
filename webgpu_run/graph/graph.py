"""A delegate's graph, ready for planning: typed nodes, alias roots, and the readers of every value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import RunError, ShapeError, UnsupportedError
from ..formats.source import Span
from ..formats.vkgraph import BoolList, DoubleList, IntList, OperatorCall, SymInt, Value, ValueList, VkGraph, VkTensor
from ..ops.schema import dtype_problem, same_memory
from ..ops.spec import Args, Op, load_all
from ..shapes import Array, Dims, prod
from .boundary import PROVOKED, graph_error

# The device computes in 32 bits: narrower tensors are widened. Constants keep their dtype until they are packed.
GPU_DTYPE = {
    "float32": "float32",
    "float16": "float32",
    "int32": "int32",
    "int8": "int32",
    "uint8": "int32",
    "bool": "int32",
}


MAX_ELEMENTS = 1 << 30  # of an activation: 4 GiB on the device, which is also the largest binding that WebGPU can name


@dataclass(frozen=True, slots=True)
class Sym:
    """Stands for the live value of a SymInt in a shape attribute."""

    value: int


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """A tensor of the graph; `root` is the tensor whose memory it uses: itself, unless it is an alias."""

    id: int
    dtype: str
    max_dims: Dims
    root: int
    constant: int = -1  # index of the constant that fills it; on roots only
    mutable: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """One op call with its arguments sorted by kind."""

    index: int
    op: Op
    tensors: Mapping[str, int]
    attrs: Mapping[str, Any]
    syms: Mapping[str, int]  # SymInts whose value the plan reads
    slots: Mapping[str, int]  # SymInts that kernels read: arg -> slot
    outs: tuple[int, ...]
    written: Mapping[str, int]  # tensors among the outputs, by name
    max_dims: Mapping[str, Dims]  # of tensors and outputs
    dtypes: Mapping[str, str]  # of tensors and outputs
    symbolic: tuple[str, ...]  # attributes that contain a Sym
    key: int  # nodes with equal keys plan alike

    @property
    def label(self) -> str:
        return f"{self.op.short}#{self.index}"

    def args(self, dims: Mapping[str, Dims], attrs: Mapping[str, Any]) -> Args:
        """What the op sees of the node, with its tensors at these dims."""
        return Args(dims, attrs, max_dims=self.max_dims, dtypes=self.dtypes, slots=self.slots)

    def args_at(self, live: Mapping[int, Dims]) -> Args:
        """The same for ops that size their own memory: dims by value id, the largest where there is none."""
        return self.args({name: live.get(v, self.max_dims[name]) for name, v in self.tensors.items()}, self.attrs)


class Graph:
    """Tensors, nodes in execution order, and the nodes that read each value.

    `const_data(k)` returns the bytes of constant k.
    """

    def __init__(self, vk: VkGraph, const_data: Callable[[int], Span]) -> None:
        self.vk = vk
        self.const_data = const_data
        self.input_ids, self.output_ids = vk.input_ids, vk.output_ids  # tensors and SymInts
        registry = load_all()
        unknown = Counter(call.name for call in vk.chain if call.name not in registry)
        if unknown:
            names = ", ".join(f"{name} x{count}" for name, count in sorted(unknown.items()))
            raise UnsupportedError(f"{len(unknown)} unsupported op{'s' * (len(unknown) > 1)}: {names}")
        self.tensors: dict[int, GraphTensor] = {}
        for i, value in enumerate(vk.values):
            if isinstance(value, VkTensor):
                if value.dtype not in GPU_DTYPE:
                    raise UnsupportedError(f"value {i} is a {value.dtype} tensor, which no kernel takes")
                if value.constant_id < 0 and prod(value.dims) > MAX_ELEMENTS:
                    raise ShapeError(f"value {i} has dims {list(value.dims)}, over {MAX_ELEMENTS:,} elements")
                self.tensors[i] = GraphTensor(i, value.dtype, value.dims, i, value.constant_id)
        for v in (*vk.input_ids, *vk.output_ids):
            if v not in self.tensors and not isinstance(vk.values[v], SymInt):
                what = f"{self.name(v)} of the graph is {_kind(vk.values[v])}"
                raise UnsupportedError(f"{what}, expected a tensor or a SymInt")
        self.slots: dict[int, int] = {}  # SymInt value id -> slot
        self.fixed_slots: dict[int, int] = {}  # constant number -> slot
        self._keys: dict[Any, int] = {}
        self.nodes: list[Node] = []
        for index, call in enumerate(vk.chain):
            try:
                self.nodes.append(self._bind(index, call, registry[call.name]))
            except RunError:
                raise
            except PROVOKED as error:
                raise graph_error(f"{call.name} (node {index})", error) from error
        self.readers: dict[int, list[int]] = {}
        for node in self.nodes:
            for v in {*node.tensors.values(), *node.syms.values(), *_shape_syms(node.attrs)}:
                self.readers.setdefault(v, []).append(node.index)

    @property
    def slot_count(self) -> int:
        return len(self.slots) + len(self.fixed_slots)

    def name(self, v: int) -> str:
        """The name of a value in messages."""
        if v in self.input_ids:
            return f"input {self.input_ids.index(v)}"
        if v in self.output_ids:
            return f"output {self.output_ids.index(v)}"
        return f"value {v}"

    def is_constant(self, v: int) -> bool:
        return self.tensors[self.tensors[v].root].constant >= 0

    def constant(self, v: int) -> Array:
        """The data of a constant tensor, in the dtype of the file."""
        tensor = self.tensors[v]
        root = self.tensors[tensor.root]
        dtype = np.dtype(root.dtype)
        count = int(np.prod(root.max_dims, dtype=np.int64))
        data = np.frombuffer(self.const_data(root.constant).read(0, count * dtype.itemsize), dtype, count)
        return data.reshape(tensor.max_dims)

    def _bind(self, index: int, call: OperatorCall, op: Op) -> Node:
        values = self.vk.values

        def bad(what: str) -> UnsupportedError:
            return UnsupportedError(f"{call.name} (node {index}): {what}")

        if len(call.args) != len(op.params) + 1:
            raise bad(f"{len(call.args)} arguments, expected {len(op.params) + 1}")
        tensors: dict[str, int] = {}
        attrs: dict[str, Any] = {}
        syms: dict[str, int] = {}
        slots: dict[str, int] = {}
        for param, vid in zip(op.params, call.args[:-1], strict=True):
            value = values[vid]
            if param.kind == "any":
                continue
            if value is None and (param.optional or param.kind == "sym"):
                attrs[param.name] = None
                continue
            if param.kind == "tensor":
                if not isinstance(value, VkTensor):
                    raise bad(f"argument {param.name} is {_kind(value)}, expected a tensor")
                if param.constant and not self.is_constant(vid):
                    raise bad(f"argument {param.name} is computed, but it must be a constant")
                tensors[param.name] = vid
                if op.pack and param.role == "weight" and not self.is_constant(vid):
                    attrs["computed"] = True  # so it can't be packed
                if param.mutable:
                    root = self.tensors[self.tensors[vid].root]
                    self.tensors[root.id] = GraphTensor(
                        root.id, root.dtype, root.max_dims, root.id, root.constant, True
                    )
            elif param.kind == "tensors":
                if not isinstance(value, ValueList) or not all(
                    values[v] is None or isinstance(values[v], VkTensor) for v in value.items
                ):
                    raise bad(f"argument {param.name} is {_kind(value)}, expected a list of tensors")
                attrs[param.name] = tuple(values[v] is not None for v in value.items)
                tensors |= {f"{param.name}{i}": v for i, v in enumerate(value.items) if values[v] is not None}
            elif param.kind == "slot" and isinstance(value, SymInt):
                slots[param.name] = self._slot(vid)
            elif param.kind in ("sym", "scalar") and isinstance(value, SymInt):
                syms[param.name] = vid
            elif param.kind == "slot" and isinstance(value, int | float):
                slots[param.name] = self._fixed_slot(int(value))
                attrs[param.name] = int(value)
            else:
                attrs[param.name] = _attribute(param.kind, value, values, bad, param.name)
        last = values[call.args[-1]]
        op = op.sized(len(last.items) if isinstance(last, ValueList) else 1)
        outs = self._outputs(op, call.args[-1], bad)
        given = [(op.param(name), name, self.tensors[v].dtype) for name, v in tensors.items()]
        made = [(op.outs[i], op.out_dtypes[i], self.tensors[v].dtype) for i, v in enumerate(outs) if v in self.tensors]
        if problem := dtype_problem(given, made):
            raise bad(problem)
        if op.alias and op.alias in tensors:
            source = self.tensors[self.tensors[tensors[op.alias]].root]
            out = self.tensors[outs[0]]
            if not source.mutable and same_memory(source.dtype, out.dtype):
                self.tensors[out.id] = GraphTensor(out.id, out.dtype, out.max_dims, source.id)
        written = {name: v for name, v in zip(op.outs, outs, strict=True) if v in self.tensors}
        max_dims = {name: self.tensors[v].max_dims for name, v in {**tensors, **written}.items()}
        dtypes = {name: self.tensors[v].dtype for name, v in {**tensors, **written}.items()}
        symbolic = tuple(n for n, a in attrs.items() if isinstance(a, tuple) and any(isinstance(x, Sym) for x in a))
        is_alias = bool(op.alias) and self.tensors[outs[0]].root != outs[0]
        facts = (
            op.name,
            tuple(max_dims.items()),
            tuple(dtypes.items()),
            tuple(attrs.items()),
            tuple(slots.items()),
            is_alias,
        )
        key = self._keys.setdefault(facts, len(self._keys))
        return Node(index, op, tensors, attrs, syms, slots, outs, written, max_dims, dtypes, symbolic, key)

    def _slot(self, vid: int) -> int:
        return self.slots.setdefault(vid, self.slot_count)

    def _fixed_slot(self, value: int) -> int:
        return self.fixed_slots.setdefault(value, self.slot_count)

    def _outputs(self, op: Op, vid: int, bad: Callable[[str], UnsupportedError]) -> tuple[int, ...]:
        value = self.vk.values[vid]
        if op.out_kind == "symint":
            if not isinstance(value, SymInt):
                raise bad(f"the output is {_kind(value)}, expected a SymInt")
            return (vid,)
        ids = value.items if op.out_kind == "list" and isinstance(value, ValueList) else (vid,)
        if len(ids) != len(op.outs) or not all(isinstance(self.vk.values[v], VkTensor) for v in ids):
            raise bad(f"the output is {_kind(value)}, expected {len(op.outs)} tensor(s)")
        return ids


def _kind(value: Value) -> str:
    return "null" if value is None else type(value).__name__


def _shape_syms(attrs: Mapping[str, Any]) -> set[int]:
    return {item.value for a in attrs.values() if isinstance(a, tuple) for item in a if isinstance(item, Sym)}


def _attribute(
    kind: str, value: Value, values: tuple[Value, ...], bad: Callable[[str], UnsupportedError], name: str
) -> Any:
    """A scalar or list argument as its parameter wants it; exporters mix ints, floats and bools."""
    number = isinstance(value, bool | int | float)
    if kind == "scalar" and number:
        return value if isinstance(value, float) else int(value)  # type: ignore[arg-type]
    if kind in ("int", "sym") and isinstance(value, int):
        return int(value)
    if kind in ("int", "sym") and (isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
        return int(value)
    if kind == "num" and number:
        return float(value)  # type: ignore[arg-type]
    if kind == "bool" and number:
        return bool(value)
    if kind == "str" and isinstance(value, str):
        return value
    if kind == "nums" and isinstance(value, IntList | DoubleList):
        return tuple(float(v) for v in value.items)
    if kind in ("ints", "shape"):
        if isinstance(value, IntList | BoolList | DoubleList):
            return tuple(int(v) for v in value.items)
        if isinstance(value, ValueList):
            out: list[int | Sym] = []
            for v in value.items:
                item = values[v]
                if isinstance(item, SymInt) and kind == "shape":
                    out.append(Sym(v))
                elif isinstance(item, int | float):
                    out.append(int(item))
                else:
                    raise bad(f"argument {name} holds {_kind(item)}, expected integers")
            return tuple(out)
    raise bad(f"argument {name} is {_kind(value)}, expected {kind}")
