"""Writes the VkGraph of a delegate, and wraps a graph in the simplest program that runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from ..errors import UsageError
from . import flatbuffer_writer
from .flatbuffer import Record
from .pte import VULKAN, Allocation, Chain, Delegate, DelegateCall, EValue, Method, Program, Tensor
from .schema import VK
from .source import Span
from .vkgraph import BoolList, Constant, DoubleList, IntList, SymInt, Value, ValueList, VkGraph, VkTensor
from .vkgraph_reader import DTYPE_UNSET, DTYPES, HEADER_SIZE, ITEMSIZE, LAYOUTS, NAMED, STORAGES, nbytes_of

_DTYPE_CODES = {name: code for code, name in DTYPES.items()}
_STORAGE_CODES = {name: code for code, name in STORAGES.items()}
_LAYOUT_CODES = {name: code for code, name in LAYOUTS.items()}
_BODY = 32  # offset of the graph in a delegate: the header size, rounded up for alignment


def blob_of(graph: VkGraph, constants: Sequence[Span]) -> bytes:
    """Serialize a delegate: header, graph, then the constants that are not in the named data."""
    flat = flatbuffer_writer.write(VK, "VkGraph", _graph(graph), b"VK00")
    inline = bytearray()
    for constant, span in zip(graph.constants, constants, strict=True):
        if constant.offset is not None:
            end = constant.offset + constant.length
            inline.extend(bytes(max(0, end - len(inline))))
            inline[constant.offset : end] = span.read(0, constant.length)
    start = -(-(_BODY + len(flat)) // 16) * 16
    head = b"\0\0\0\0VH00" + HEADER_SIZE.to_bytes(2, "little")
    head += b"".join(n.to_bytes(4, "little") for n in (_BODY, len(flat), start))
    head += len(inline).to_bytes(8, "little")
    return head.ljust(_BODY, b"\0") + flat + bytes(start - _BODY - len(flat)) + bytes(inline)


def _graph(graph: VkGraph) -> Record:
    return {
        "version": graph.version,
        "chain": [{"node_id": call.node_id, "name": call.name, "args": call.args} for call in graph.chain],
        "values": [{"value": _value(value)} for value in graph.values],
        "input_ids": graph.input_ids,
        "output_ids": graph.output_ids,
        "constants": [
            {"offset": NAMED if c.offset is None else c.offset, "length": c.length, "named_key": c.key or ""}
            for c in graph.constants
        ],
        "shaders": [],
    }


def _value(value: Value) -> tuple[str, Record]:
    if isinstance(value, VkTensor):
        return "VkTensor", {
            "datatype": _DTYPE_CODES[value.dtype],
            "dims": value.dims,
            "constant_id": value.constant_id,
            "mem_obj_id": value.mem_obj_id,
            "storage_type": _code(_STORAGE_CODES, value.storage),
            "memory_layout": _code(_LAYOUT_CODES, value.layout),
            "staging_datatype": _DTYPE_CODES[value.staging_dtype] if value.staging_dtype else DTYPE_UNSET,
        }
    if isinstance(value, SymInt):
        return "SymInt", {"value": value.init}
    if isinstance(value, ValueList):
        return "ValueList", {"items": value.items}
    return plain_value(value)


def plain_value(value: Any) -> tuple[str, Record]:
    """Union tag and record of a value whose kind has the same schema in programs and graphs."""
    if value is None:
        return "Null", {}
    if isinstance(value, bool):
        return "Bool", {"bool_val": value}
    if isinstance(value, int):
        return "Int", {"int_val": value}
    if isinstance(value, float):
        return "Double", {"double_val": value}
    if isinstance(value, str):
        return "String", {"string_val": value}
    if isinstance(value, IntList | DoubleList | BoolList):
        return type(value).__name__, {"items": value.items}
    raise UsageError(f"no such kind of value: {value!r}")


def _code(codes: dict[str, int], name: str) -> int:
    return codes[name] if name in codes else int(name)


def named_constants(data: Sequence[bytes]) -> tuple[Constant, ...]:
    """Constants stored in the named data under the SHA-256 of their bytes, as the exporter does it."""
    return tuple(Constant(len(item), key=sha256(item).hexdigest()) for item in data)


def program_of(
    graph: VkGraph,
    constants: Sequence[bytes] = (),
    *,
    dynamic: bool = False,
    host_dtypes: Mapping[int, str] | None = None,
    metadata: Mapping[str, EValue | list[EValue]] | None = None,
) -> Program:
    """Make a program whose `forward` runs this graph. `constants` are the bytes of `graph.constants`.

    `dynamic` marks the shapes of inputs and outputs as upper bounds. `host_dtypes` maps value ids to the dtype that
    the host sees, where it differs from the tensor's own. `metadata` becomes constant methods.
    """
    spans = tuple(Span.of(data) for data in constants)
    named = {c.key: span for c, span in zip(graph.constants, spans, strict=True) if c.key is not None}
    ids = graph.input_ids + graph.output_ids
    values: list[EValue] = []
    end = 0
    for position, i in enumerate(ids):
        tensor = graph.values[i]
        if not isinstance(tensor, VkTensor):
            values.append(0)
            continue
        dtype = (host_dtypes or {}).get(i, tensor.staging_dtype or tensor.dtype)
        place = None
        if position >= len(graph.input_ids):
            place = Allocation(1, end)
            end = -(-(end + nbytes_of(tensor.dims, ITEMSIZE[dtype])) // 16) * 16
        order = tuple(range(len(tensor.dims)))
        dynamism = "bound" if dynamic else "static"
        values.append(Tensor(dtype, tensor.dims, order, dynamism, allocation=place))
    count = len(graph.input_ids)
    inputs, outputs = tuple(range(count)), tuple(range(count, len(ids)))
    chain = Chain(inputs, outputs, (DelegateCall(0, inputs + outputs),))
    delegate = Delegate(VULKAN, (("require_dynamic_shapes", bytes([dynamic])),), Span.of(b""), graph, spans)
    forward = Method("forward", inputs, outputs, tuple(values), (chain,), (), (delegate,), (0, end))
    constant_methods = tuple(_metadata(name, value) for name, value in (metadata or {}).items())
    return Program(0, (forward, *constant_methods), named=named)


def _metadata(name: str, value: EValue | list[EValue]) -> Method:
    values = tuple(value) if isinstance(value, list) else (value,)
    outputs = tuple(range(len(values)))
    return Method(name, (), outputs, values, (Chain((), (), ()),), non_const_buffer_sizes=(0,))
