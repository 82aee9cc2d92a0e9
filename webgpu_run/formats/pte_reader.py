"""Reads .pte and .ptd files into the dataclasses of `pte`. Every index, size and sum is checked before it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..errors import FormatError, GraphError, MissingDataError, RunError, ShapeError, UnsupportedError
from . import container, delegate_args
from .container import Container
from .flatbuffer import MAX_VISITS, Path, Record
from .pte import (
    VULKAN,
    Allocation,
    Chain,
    Delegate,
    DelegateCall,
    EValue,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    Method,
    MoveCall,
    Program,
    Tensor,
    TensorList,
)
from .source import Source, Span
from .vkgraph import BoolList, DoubleList, IntList
from .vkgraph_reader import MAX_NBYTES, MAX_RANK, nbytes_of, read_blob

# code -> name, bytes per element
SCALAR_TYPES = {
    0: ("uint8", 1),
    1: ("int8", 1),
    2: ("int16", 2),
    3: ("int32", 4),
    4: ("int64", 8),
    5: ("float16", 2),
    6: ("float32", 4),
    7: ("float64", 8),
    11: ("bool", 1),
    12: ("qint8", 1),
    13: ("quint8", 1),
    14: ("qint32", 4),
    15: ("bfloat16", 2),
    16: ("quint4x2", 1),
    17: ("quint2x4", 1),
    22: ("bits16", 2),
    23: ("float8_e5m2", 1),
    24: ("float8_e4m3fn", 1),
    25: ("float8_e5m2fnuz", 1),
    26: ("float8_e4m3fnuz", 1),
    27: ("uint16", 2),
    28: ("uint32", 4),
    29: ("uint64", 8),
}
DYNAMISM = ("static", "bound", "unbound")
KNOWN_VERSION = 0


def read(source: Source, data: Sequence[Source] = ()) -> Program:
    """Read and check a .pte file. The named data of the .ptd files in `data` is added to its own."""
    file = container.open_pte(source)
    reader, root, path = file.reader, file.root, file.path
    if root["version"] != KNOWN_VERSION:
        raise UnsupportedError(f"program version {root['version']}: only {KNOWN_VERSION} is known ({source.name})")
    if not root["execution_plan"]:
        raise reader.error("the program has no method", root, Path(path, "execution_plan"))
    named = dict(file.named)
    for extra in data:
        named.update(container.open_ptd(extra).named)
    shared = _Shared(file, named)
    names: set[str] = set()
    for record in root["execution_plan"]:  # before any is read: one table may be named as thousands of methods
        if record["name"] in names:
            raise reader.error(f"two methods are named {record['name'] or ''!r}", root, Path(path, "execution_plan"))
        names.add(record["name"])
    methods = tuple(
        _Plan(shared, record, Path(Path(path, "execution_plan"), i)).read()
        for i, record in enumerate(root["execution_plan"])
    )
    return Program(
        version=root["version"],
        methods=methods,
        segments=file.segments,
        named=named,
        constants=shared.constants,
        path=source.name,
        file_size=source.size,
        program_size=len(reader.data),
    )


class _Shared:
    """The parts of a file that all its methods share: segments, named data and constants."""

    def __init__(self, file: Container, named: dict[str, Span]) -> None:
        source, root, path = file.source, file.root, file.path
        self.reader = file.reader
        self.segments = file.segments
        self.named = named
        self._graph_bytes_left = MAX_VISITS * source.size
        self.inline = [Span(source, *record["data"]) for record in root["backend_delegate_data"]]
        self.mutable = [
            self._subsegment(record, Path(Path(path, "mutable_data_segments"), i))
            for i, record in enumerate(root["mutable_data_segments"])
        ]
        subsegment = root["constant_segment"]
        self.constants: tuple[Span, ...] = tuple(Span(source, *r["storage"]) for r in root["constant_buffer"])
        if subsegment is not None and subsegment["offsets"]:
            self.constants = self._subsegment(subsegment, Path(path, "constant_segment"))

    def spend(self, nbytes: int) -> bool:
        """Charge the bytes of a delegate's graph. False if graphs add up to more than the file can honestly hold."""
        self._graph_bytes_left -= nbytes
        return self._graph_bytes_left >= 0

    def _subsegment(self, record: Record, path: Path) -> tuple[Span, ...]:
        if record["segment_index"] >= len(self.segments):
            raise self.reader.error(f"segment {record['segment_index']} of {len(self.segments)}", record, path)
        segment = self.segments[record["segment_index"]]
        for i, offset in enumerate(record["offsets"]):
            if offset > segment.nbytes:
                what = f"offset {offset} of a segment of {segment.nbytes} bytes"
                raise self.reader.error(what, record, Path(Path(path, "offsets"), i))
        return tuple(segment.part(offset, segment.nbytes - offset) for offset in record["offsets"])


class _Plan:
    """The state of reading one execution plan."""

    def __init__(self, shared: _Shared, record: Record, path: Path) -> None:
        self.shared = shared
        self.record = record
        self.path = path
        self.count = len(record["values"])
        self.values: tuple[EValue, ...] = ()
        self.known: set[int] = set()  # values that exist when an instruction runs

    def _error(self, what: str, record: Record, *steps: str | int, kind: type[RunError] = FormatError) -> RunError:
        path = self.path
        for step in steps:
            path = Path(path, step)
        return self.shared.reader.error(what, record, path, kind)

    def read(self) -> Method:
        record = self.record
        values = self.values = tuple(self._value(i, value) for i, value in enumerate(record["values"]))
        for i, value in enumerate(values):
            if isinstance(value, TensorList):
                self._check_list(i, value, values)
        for name in ("inputs", "outputs"):
            self._ids(record, record[name], name)
        operators = tuple(
            f"{operator['name']}.{operator['overload']}" if operator["overload"] else operator["name"]
            for operator in record["operators"]
        )
        delegates = [self._delegate(i, delegate) for i, delegate in enumerate(record["delegates"])]
        self.known = {*record["inputs"], *(i for i, v in enumerate(values) if isinstance(v, Tensor) and v.data)}
        chains = tuple(self._chain(i, chain, operators, delegates) for i, chain in enumerate(record["chains"]))
        return Method(
            name=record["name"],
            inputs=record["inputs"],
            outputs=record["outputs"],
            values=values,
            chains=chains,
            operators=operators,
            delegates=tuple(delegates),
            non_const_buffer_sizes=record["non_const_buffer_sizes"],
        )

    def _ids(self, record: Record, ids: tuple[int, ...], *steps: str | int) -> tuple[int, ...]:
        for k, value in enumerate(ids):
            if not 0 <= value < self.count:
                raise self._error(f"value {value} of {self.count}", record, *steps, k)
        return ids

    def _check_list(self, i: int, tensors: TensorList, values: tuple[EValue, ...]) -> None:
        record = self.record["values"][i]
        for k, item in enumerate(tensors.items):
            if item == -1 and tensors.optional:
                continue
            if not 0 <= item < self.count:
                raise self._error(f"value {item} of {self.count}", record, "values", i, "items", k)
            if not (isinstance(values[item], Tensor) or (tensors.optional and values[item] is None)):
                raise self._error(f"value {item} is not a tensor", record, "values", i, "items", k)

    def _value(self, i: int, record: Record) -> EValue:
        if record["val"] is None:
            raise self._error("value has no kind", record, "values", i)
        kind, table = record["val"]
        if kind == "Tensor":
            return self._tensor(i, table)
        if kind == "Null":
            return None
        if kind in _SCALARS:
            scalar: EValue = table[_SCALARS[kind]]
            return scalar
        return _LISTS[kind](table["items"])

    def _tensor(self, i: int, table: Record) -> Tensor:
        dims, order = table["sizes"], table["dim_order"]
        if table["scalar_type"] not in SCALAR_TYPES:
            raise self._error(f"unknown scalar type {table['scalar_type']}", table, "values", i, "scalar_type")
        dtype, itemsize = SCALAR_TYPES[table["scalar_type"]]
        if len(dims) > MAX_RANK:
            what = f"rank {len(dims)} is over {MAX_RANK}"
            raise self._error(what, table, "values", i, "sizes", kind=ShapeError)
        if any(dim < 0 for dim in dims) or nbytes_of(dims, itemsize) > MAX_NBYTES:
            raise self._error(f"bad sizes {list(dims)}", table, "values", i, "sizes", kind=ShapeError)
        if order and sorted(order) != list(range(len(dims))):
            raise self._error(f"bad dim order {list(order)}", table, "values", i, "dim_order")
        if not 0 <= table["shape_dynamism"] < len(DYNAMISM):
            raise self._error(f"unknown dynamism {table['shape_dynamism']}", table, "values", i, "shape_dynamism")
        if table["storage_offset"]:
            raise self._error(f"storage offset {table['storage_offset']} is not zero", table, "values", i)
        extra = table["extra_tensor_info"]
        nbytes = nbytes_of(dims, itemsize)
        return Tensor(
            dtype=dtype,
            dims=dims,
            dim_order=order,
            dynamism=DYNAMISM[table["shape_dynamism"]],
            data=self._data(i, table, nbytes),
            allocation=self._allocation(i, table, nbytes),
            name=extra["fully_qualified_name"] if extra else "",
        )

    def _allocation(self, i: int, table: Record, nbytes: int) -> Allocation | None:
        info = table["allocation_info"]
        if info is None:
            return None
        sizes = self.record["non_const_buffer_sizes"]
        memory, offset = info["memory_id"], info["memory_offset_low"] | info["memory_offset_high"] << 32
        where = ("values", i, "allocation_info")
        if memory >= len(sizes):
            raise self._error(f"memory {memory} of {len(sizes)}", info, *where)
        if offset + nbytes > sizes[memory]:
            what = f"{nbytes} bytes at {offset} of memory {memory}, which has {sizes[memory]}"
            raise self._error(what, info, *where)
        return Allocation(memory, offset)

    def _data(self, i: int, table: Record, nbytes: int) -> Span | None:
        extra, index = table["extra_tensor_info"], table["data_buffer_idx"]
        where = ("values", i, "data_buffer_idx")
        if extra and extra["location"] == 1:
            span = self.shared.named.get(extra["fully_qualified_name"])
            if span is None:
                what = f"no data named {extra['fully_qualified_name']!r} in the file"
                raise self._error(what, table, *where, kind=MissingDataError)
        elif index == 0:
            return None
        else:
            buffers: Sequence[Span] = self.shared.constants
            if table["allocation_info"] is not None and self.shared.mutable:
                segment = extra["mutable_data_segments_idx"] if extra else 0
                if segment >= len(self.shared.mutable):
                    raise self._error(f"mutable segment {segment} of {len(self.shared.mutable)}", table, *where)
                buffers = self.shared.mutable[segment]
            if index >= len(buffers):
                raise self._error(f"constant {index} of {len(buffers)}", table, *where)
            span = buffers[index]
        if span.nbytes < nbytes:
            raise self._error(f"constant has {span.nbytes} bytes, its tensor needs {nbytes}", table, *where)
        return span.part(0, nbytes)

    def _delegate(self, i: int, record: Record) -> Delegate:
        processed = record["processed"]
        if processed is None or processed["location"] not in (0, 1):
            raise self._error("delegate has no data", record, "delegates", i, "processed")
        spans = self.shared.segments if processed["location"] else self.shared.inline
        if processed["index"] >= len(spans):
            name = "segment" if processed["location"] else "inline data"
            what = f"{name} {processed['index']} of {len(spans)}"
            raise self._error(what, processed, "delegates", i, "processed")
        blob = spans[processed["index"]]
        data = self.shared.reader.data
        specs = tuple((spec["key"], data[at : at + n]) for spec in record["compile_specs"] for at, n in [spec["value"]])
        if record["id"] != VULKAN:
            return Delegate(record["id"], specs, blob)
        parsed = read_blob(blob, Path(Path(self.path, "delegates"), i), self.shared.named.get, self.shared.spend)
        return Delegate(record["id"], specs, blob, parsed.graph, parsed.constants)

    def _chain(self, i: int, record: Record, operators: tuple[str, ...], delegates: list[Delegate]) -> Chain:
        steps: list[Instruction] = []
        for k, item in enumerate(record["instructions"]):
            where = ("chains", i, "instructions", k)
            if item["instr_args"] is None:
                raise self._error("instruction has no kind", item, *where)
            kind, table = item["instr_args"]
            step = self._instruction(kind, table, where, len(record["instructions"]), operators, delegates)
            if isinstance(step, KernelCall | DelegateCall):
                self.known.update(step.args)
            steps.append(step)
        return Chain(
            self._ids(record, record["inputs"], "chains", i, "inputs"),
            self._ids(record, record["outputs"], "chains", i, "outputs"),
            tuple(steps),
        )

    def _instruction(
        self,
        kind: str,
        table: Record,
        where: tuple[str | int, ...],
        count: int,
        operators: tuple[str, ...],
        delegates: list[Delegate],
    ) -> Instruction:
        if kind == "KernelCall":
            if not 0 <= table["op_index"] < len(operators):
                raise self._error(f"operator {table['op_index']} of {len(operators)}", table, *where)
            return KernelCall(operators[table["op_index"]], self._ids(table, table["args"], *where, "args"))
        if kind == "DelegateCall":
            if not 0 <= table["delegate_index"] < len(delegates):
                raise self._error(f"delegate {table['delegate_index']} of {len(delegates)}", table, *where)
            delegate = delegates[table["delegate_index"]]
            args = self._ids(table, table["args"], *where, "args")
            if graph := delegate.graph:
                binding = delegate_args.bind(graph, args, self.values, self.known)
                if binding is None:
                    takes = f"{len(graph.input_ids)} inputs and {len(graph.output_ids)} outputs"
                    what = f"{len(args)} arguments for a delegate of {takes}"
                    if len(args) > len(graph.input_ids) + len(graph.output_ids):
                        what += "; types and dims do not tell which are unread inputs or repeated outputs"
                    raise self._error(what, table, *where, "args", kind=GraphError)
                args = binding.args
                if binding.output_ids != graph.output_ids:
                    whole = replace(graph, output_ids=binding.output_ids)
                    delegates[table["delegate_index"]] = replace(delegate, graph=whole)
            return DelegateCall(table["delegate_index"], args)
        if kind == "MoveCall":
            self._ids(table, (table["move_from"], table["move_to"]), *where)
            return MoveCall(table["move_from"], table["move_to"])
        if kind == "FreeCall":
            self._ids(table, (table["value_index"],), *where)
            return FreeCall(table["value_index"])
        self._ids(table, (table["cond_value_index"],), *where)
        if not 0 <= table["destination_instruction"] <= count:
            raise self._error(f"jump to {table['destination_instruction']} of {count}", table, *where)
        return JumpFalseCall(table["cond_value_index"], table["destination_instruction"])


_SCALARS = {"Int": "int_val", "Double": "double_val", "Bool": "bool_val", "String": "string_val"}
_LISTS: dict[str, Callable[..., EValue]] = {
    "IntList": IntList,
    "DoubleList": DoubleList,
    "BoolList": BoolList,
    "TensorList": TensorList,
    "OptionalTensorList": lambda items: TensorList(items, optional=True),
}
