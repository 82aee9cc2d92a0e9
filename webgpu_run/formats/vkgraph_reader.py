"""Reads the VkGraph of a Vulkan delegate.

Checks ids, ranks and sizes, and that every op of the chain reads only values that were written before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..errors import GraphError, MissingDataError, RunError, ShapeError
from .flatbuffer import Path, Reader, Record
from .schema import VK
from .source import Span
from .vkgraph import BoolList, Constant, DoubleList, IntList, OperatorCall, SymInt, Value, ValueList, VkGraph, VkTensor

DTYPES = {0: "bool", 1: "uint8", 2: "int8", 3: "int32", 4: "float16", 5: "float32", 6: "float64", 7: "int64"}
ITEMSIZE = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int32": 4,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "int64": 8,
}
STORAGES = {0: "BUFFER", 1: "TEXTURE_3D", 2: "TEXTURE_2D", 255: "DEFAULT_STORAGE"}
LAYOUTS = {
    0: "TENSOR_WIDTH_PACKED",
    1: "TENSOR_HEIGHT_PACKED",
    2: "TENSOR_CHANNELS_PACKED",
    3: "PACKED_INT8_4W4C",
    4: "PACKED_INT8_4H4W",
    5: "PACKED_INT8_4W",
    6: "PACKED_INT8_4C",
    8: "PACKED_INT8_4C1W",
    9: "PACKED_INT8_CONV2D",
    255: "DEFAULT_LAYOUT",
}
DTYPE_UNSET = 127
NAMED = 2**64 - 1  # the `offset` of a constant whose bytes are in the named data
MAX_RANK = 8
MAX_NBYTES = 2**63 - 1
MAX_REPEATS = 8  # how often a graph may repeat its lists and arguments, all together

HEADER_SIZE = 30


@dataclass(frozen=True, slots=True)
class VkBlob:
    """A parsed delegate: its graph, and the bytes of every constant."""

    graph: VkGraph
    constants: tuple[Span, ...]


def nbytes_of(dims: tuple[int, ...], itemsize: int) -> int:
    """Size in bytes of a contiguous tensor."""
    return math.prod(dims) * itemsize


def tensor_nbytes(tensor: VkTensor) -> int:
    """Size in bytes of a tensor at its largest shape."""
    return nbytes_of(tensor.dims, ITEMSIZE[tensor.dtype])


def read_blob(
    blob: Span, path: Path, named: Callable[[str], Span | None], budget: Callable[[int], bool] = lambda nbytes: True
) -> VkBlob:
    """Read and check a delegate. `named` looks up the constants that are stored outside the delegate.

    `budget` is told the size of the graph before it is parsed; if it returns false, the delegate is refused.
    """
    where = Path(path, "VkGraph")
    reader, inline = _open(blob, where)
    if not budget(reader.size):
        raise reader.error("delegates use the same bytes too often", 0, where)
    root = reader.root("VkGraph", where)
    graph = _Graph(reader, root, where).read()
    constants = tuple(_constants(reader, root, where, graph, inline, named))
    return VkBlob(graph, constants)


def _open(blob: Span, path: Path) -> tuple[Reader, Span]:
    whole = Reader(blob.read(0, min(blob.nbytes, HEADER_SIZE)), VK, base=blob.offset)
    head = whole.data
    if len(head) < HEADER_SIZE:
        raise whole.error(f"delegate of {len(head)} bytes has no room for its header", 0, path)
    if head[4:8] != b"VH00":
        raise whole.error(f"delegate identifier is {head[4:8]!r}, not b'VH00'", 4, path)
    header_size = int.from_bytes(head[8:10], "little")
    flat_offset, flat_size, bytes_offset = (int.from_bytes(head[at : at + 4], "little") for at in (10, 14, 18))
    bytes_size = int.from_bytes(head[22:30], "little")
    if header_size < HEADER_SIZE or flat_offset < header_size:
        raise whole.error(f"bad delegate header size {header_size}", 8, path)
    if flat_size < 12 or flat_offset + flat_size > blob.nbytes:
        what = f"graph of {flat_size} bytes at {flat_offset} does not fit the delegate's {blob.nbytes}"
        raise whole.error(what, 14, path)
    if bytes_offset + bytes_size > blob.nbytes:
        what = f"constants of {bytes_size} bytes at {bytes_offset} do not fit the delegate's {blob.nbytes}"
        raise whole.error(what, 18, path)
    reader = Reader(blob.read(flat_offset, flat_size), VK, base=blob.offset + flat_offset)
    if reader.data[4:8] != b"VK00":
        raise reader.error(f"graph identifier is {reader.data[4:8]!r}, not b'VK00'", 4, path)
    return reader, blob.part(bytes_offset, bytes_size)


def _constants(
    reader: Reader, root: Record, path: Path, graph: VkGraph, inline: Span, named: Callable[[str], Span | None]
) -> Iterator[Span]:
    needs = [0] * len(graph.constants)
    for value in graph.values:
        if isinstance(value, VkTensor) and value.constant_id >= 0:
            needs[value.constant_id] = max(needs[value.constant_id], tensor_nbytes(value))
    for i, constant in enumerate(graph.constants):
        record, here = root["constants"][i], Path(Path(path, "constants"), i)
        if constant.offset is None:
            span = named(constant.key or "")
            if span is None:
                raise reader.error(f"no data named {constant.key!r} in the file", record, here, MissingDataError)
            available = span.nbytes
        elif constant.offset + constant.length > inline.nbytes:
            what = f"{constant.length} bytes at {constant.offset} of {inline.nbytes} bytes of constants"
            raise reader.error(what, record, here)
        else:
            available = constant.length
            span = inline.part(constant.offset, constant.length)
        if available < needs[i]:
            raise reader.error(f"constant has {available} bytes, its tensor needs {needs[i]}", record, here)
        yield span


class _Graph:
    """The state of reading one graph: its records, and the path for error messages."""

    def __init__(self, reader: Reader, root: Record, path: Path) -> None:
        self.reader = reader
        self.root = root
        self.path = path
        self.count = len(root["values"])

    def read(self) -> VkGraph:
        root = self.root
        graph = VkGraph(
            version=root["version"],
            chain=tuple(OperatorCall(call["node_id"], call["name"], call["args"]) for call in root["chain"]),
            values=tuple(self._value(i, record) for i, record in enumerate(root["values"])),
            input_ids=root["input_ids"],
            output_ids=root["output_ids"],
            constants=tuple(
                Constant(record["length"], key=record["named_key"])
                if record["offset"] == NAMED
                else Constant(record["length"], offset=record["offset"])
                for record in root["constants"]
            ),
        )
        self._check_ids(graph)
        self._check_lists(graph)
        self._check_order(graph)
        return graph

    def _error(self, what: str, record: Record, *steps: str | int, kind: type[RunError] = GraphError) -> RunError:
        path = self.path
        for step in steps:
            path = Path(path, step)
        return self.reader.error(what, record, path, kind)

    def _value(self, i: int, record: Record) -> Value:
        if record["value"] is None:
            raise self.reader.error("value has no kind", record, Path(Path(self.path, "values"), i))
        kind, table = record["value"]
        if kind == "VkTensor":
            return self._tensor(i, table)
        if kind == "Null":
            return None
        if kind == "SymInt":
            return SymInt(table["value"])
        if kind in _LISTS:
            return _LISTS[kind](table["items"])
        scalar: Value = table[_SCALARS[kind]]
        return scalar

    def _tensor(self, i: int, table: Record) -> VkTensor:
        where = ("values", i)
        dims: tuple[int, ...] = table["dims"]
        dtype, staging = DTYPES.get(table["datatype"]), DTYPES.get(table["staging_datatype"])
        if dtype is None:
            raise self._error(f"unknown datatype {table['datatype']}", table, *where, "datatype")
        if staging is None and table["staging_datatype"] != DTYPE_UNSET:
            raise self._error(f"unknown datatype {table['staging_datatype']}", table, *where, "staging_datatype")
        if len(dims) > MAX_RANK:
            raise self._error(f"rank {len(dims)} is over {MAX_RANK}", table, *where, "dims", kind=ShapeError)
        for axis, dim in enumerate(dims):
            if not 0 <= dim < 2**31:
                raise self._error(f"bad dim {dim}", table, *where, "dims", axis, kind=ShapeError)
        if nbytes_of(dims, ITEMSIZE[dtype]) > MAX_NBYTES:
            raise self._error(f"dims {list(dims)} overflow 2^63 bytes", table, *where, "dims", kind=ShapeError)
        if table["constant_id"] >= len(self.root["constants"]):
            what = f"constant {table['constant_id']} of {len(self.root['constants'])}"
            raise self._error(what, table, *where, "constant_id")
        if table["mem_obj_id"] >= self.count:
            what = f"mem_obj_id {table['mem_obj_id']} is out of range: the graph has {self.count} values"
            raise self._error(what, table, *where, "mem_obj_id", kind=ShapeError)
        return VkTensor(
            dtype=dtype,
            dims=dims,
            constant_id=max(table["constant_id"], -1),
            mem_obj_id=max(table["mem_obj_id"], -1),
            staging_dtype=staging,
            storage=STORAGES.get(table["storage_type"], str(table["storage_type"])),
            layout=LAYOUTS.get(table["memory_layout"], str(table["memory_layout"])),
        )

    def _check_ids(self, graph: VkGraph) -> None:
        for name, ids in (("input_ids", graph.input_ids), ("output_ids", graph.output_ids)):
            for k, item in enumerate(ids):
                if item >= self.count:
                    raise self._error(f"value {item} of {self.count}", self.root, name, k)
        for i, value in enumerate(graph.values):
            if isinstance(value, ValueList):
                for k, item in enumerate(value.items):
                    record = self.root["values"][i]
                    if not 0 <= item < self.count:
                        raise self._error(f"value {item} of {self.count}", record, "values", i, "items", k)
                    if isinstance(graph.values[item], ValueList):
                        what = "the list contains itself" if item == i else f"list inside a list (value {item})"
                        raise self._error(what, record, "values", i, "items", k)
        for i, call in enumerate(graph.chain):
            if not call.args:
                raise self._error(f"{call.name!r} has no arguments", self.root["chain"][i], "chain", i, "args")
            for k, arg in enumerate(call.args):
                if not 0 <= arg < self.count:
                    raise self._error(f"value {arg} of {self.count}", self.root["chain"][i], "chain", i, "args", k)

    def _check_lists(self, graph: VkGraph) -> None:
        """Bound the work by the file: a list may be an argument of many calls, but not of so many that it explodes."""
        sizes = [
            len(v.items) if isinstance(v, IntList | DoubleList | BoolList | ValueList) else 0 for v in graph.values
        ]
        allowed = MAX_REPEATS * (sum(sizes) + sum(len(call.args) for call in graph.chain)) + 10_000
        count = 0
        for i, call in enumerate(graph.chain):
            count += sum(sizes[arg] for arg in call.args)
            if count > allowed:
                what = f"lists are arguments too often: over {allowed:,} items in all"
                raise self._error(what, self.root["chain"][i], "chain", i, "args")

    def _check_order(self, graph: VkGraph) -> None:
        ready = bytearray(self.count)
        for i, value in enumerate(graph.values):
            if isinstance(value, VkTensor):
                ready[i] = value.constant_id >= 0
            else:
                ready[i] = not isinstance(value, SymInt)
        for i in graph.input_ids:
            ready[i] = True
        written = bytearray(self.count)
        # A list may be named by any number of arguments. What was ready once stays ready, so it is checked once.
        checked: set[int] = set()
        empty_outputs: set[int] = set()
        for i, call in enumerate(graph.chain):
            record = self.root["chain"][i]
            for k, arg in enumerate(call.args[:-1]):
                if arg in checked:
                    continue
                for item in _items(graph, arg):
                    if not ready[item]:
                        what = f"{call.name!r} reads value {item} before anything wrote it"
                        raise self._error(what, record, "chain", i, "args", k)
                checked.add(arg)
            if call.args[-1] in empty_outputs:
                continue
            if all(graph.values[item] is None for item in _items(graph, call.args[-1])):
                empty_outputs.add(call.args[-1])
            for item in _items(graph, call.args[-1]):
                if graph.values[item] is None:
                    continue
                if not isinstance(graph.values[item], VkTensor | SymInt):
                    what = f"{call.name!r} writes value {item}, which is not a tensor or SymInt"
                    raise self._error(what, record, "chain", i, "args", len(call.args) - 1)
                if written[item]:
                    what = f"{call.name!r} writes value {item}, which another op wrote before"
                    raise self._error(what, record, "chain", i, "args", len(call.args) - 1)
                written[item] = ready[item] = True
        for k, value in enumerate(graph.output_ids):
            for item in _items(graph, value):
                if not ready[item]:
                    raise self._error(f"no op writes output value {item}", self.root, "output_ids", k)


def _items(graph: VkGraph, value_id: int) -> tuple[int, ...]:
    """The ids in a ValueList, or the id itself for any other value."""
    value = graph.values[value_id]
    return value.items if isinstance(value, ValueList) else (value_id,)


_LISTS: dict[str, Callable[..., Value]] = {
    "IntList": IntList,
    "DoubleList": DoubleList,
    "BoolList": BoolList,
    "ValueList": ValueList,
}
_SCALARS = {"Int": "int_val", "Double": "double_val", "Bool": "bool_val", "String": "string_val"}
