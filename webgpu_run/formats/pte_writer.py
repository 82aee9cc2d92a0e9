"""Writes .pte and .ptd files from the dataclasses of `pte`. What is written reads back equal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import UsageError
from . import flatbuffer_writer
from .flatbuffer import Record
from .pte import (
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
from .pte_reader import DYNAMISM, SCALAR_TYPES
from .schema import PTD, PTE
from .source import Span
from .vkgraph_writer import blob_of, plain_value

SEGMENT_ALIGNMENT = 128
TENSOR_ALIGNMENT = 16
PTD_HEADER = 48  # the header has 40 bytes; the padding keeps the FlatBuffer aligned
_SCALAR_CODES = {name: code for code, (name, _) in SCALAR_TYPES.items()}


@dataclass(frozen=True, slots=True)
class FileLayout:
    """A file as (offset, span) parts in order, with zeros between them."""

    parts: tuple[tuple[int, Span], ...]
    size: int

    def chunks(self, nbytes: int = 1 << 20) -> Iterator[bytes]:
        """The bytes of the file in order, in pieces of at most `nbytes`."""
        at = 0
        for offset, span in self.parts:
            yield bytes(offset - at)
            for start in range(0, span.nbytes, nbytes):
                yield span.read(start, min(nbytes, span.nbytes - start))
            at = offset + span.nbytes
        yield bytes(self.size - at)


def dumps(program: Program, *, header: int = 32, inline: bool = False) -> bytes:
    """Serialize a .pte file; `layout` explains the parameters."""
    return b"".join(layout(program, header=header, inline=inline).chunks())


def write(path: str | os.PathLike[str], program: Program, *, header: int = 32, inline: bool = False) -> None:
    """Write a .pte file. It appears under its name only when it is complete; `layout` explains the parameters."""
    temporary = f"{os.fspath(path)}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.writelines(layout(program, header=header, inline=inline).chunks())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def layout(program: Program, *, header: int = 32, inline: bool = False) -> FileLayout:
    """Plan a .pte file.

    `header` is the size of the extended header: 32, 24, or 0 for a file without segments. With `inline`, delegates
    are stored inside the FlatBuffer, not in segments.
    """
    if header not in (0, 24, 32) or (header == 0 and (program.named or not inline)):
        raise UsageError("a header of 24 or 32 bytes, or 0 with inline delegates and no named data")
    out = _Program(segmented=header > 0, inline=inline)
    plans = [out.plan(method) for method in program.methods]
    named = [{"key": key, "segment_index": out.segment(span)} for key, span in program.named.items()]
    record: Record = {
        "version": program.version,
        "execution_plan": plans,
        "constant_buffer": [],
        "backend_delegate_data": [{"data": blob.read()} for blob in out.delegates],
        "segments": [],
        "named_data": named,
    }
    if header == 0:
        record["constant_buffer"] = [{"storage": span.read()} for span in out.constants]
    else:
        record["constant_segment"] = out.packed(out.constants)
        record["mutable_data_segments"] = [out.packed(out.mutable)] if len(out.mutable) > 1 else None
    offsets, size = _place(out.segments, SEGMENT_ALIGNMENT)
    record["segments"] = [{"offset": at, "size": span.nbytes} for at, span in zip(offsets, out.segments, strict=True)]
    body = flatbuffer_writer.write(PTE, "Program", record, b"ET12")
    return _file(_insert_header(body, header, size), offsets, out.segments, size)


def ptd(named: Mapping[str, bytes]) -> bytes:
    """Serialize a .ptd data file with this named data."""
    spans = [Span.of(data) for data in named.values()]
    offsets, size = _place(spans, SEGMENT_ALIGNMENT)
    record: Record = {
        "version": 0,
        "segments": [{"offset": at, "size": span.nbytes} for at, span in zip(offsets, spans, strict=True)],
        "named_data": [{"key": key, "segment_index": i} for i, key in enumerate(named)],
    }
    body = flatbuffer_writer.write(PTD, "FlatTensor", record, b"FT01")
    total = len(body) + PTD_HEADER
    numbers = (PTD_HEADER, len(body), _align(total, SEGMENT_ALIGNMENT), size)
    head = b"FH01" + (40).to_bytes(4, "little") + b"".join(n.to_bytes(8, "little") for n in numbers)
    body = _shift_root(body, PTD_HEADER)
    return b"".join(_file(body[:8] + head.ljust(PTD_HEADER, b"\0") + body[8:], offsets, spans, size).chunks())


def _insert_header(body: bytes, header: int, segment_size: int) -> bytes:
    if header == 0:
        return body
    size = len(body) + header
    numbers = [size, _align(size, SEGMENT_ALIGNMENT), segment_size][: header // 8 - 1]
    packed = b"".join(n.to_bytes(8, "little") for n in numbers)
    shifted = _shift_root(body, header)
    return shifted[:8] + b"eh00" + header.to_bytes(4, "little") + packed + shifted[8:]


def _shift_root(body: bytes, nbytes: int) -> bytes:
    return (int.from_bytes(body[:4], "little") + nbytes).to_bytes(4, "little") + body[4:]


def _file(body: bytes, offsets: list[int], segments: list[Span], size: int) -> FileLayout:
    if not segments:
        return FileLayout(((0, Span.of(body)),), len(body))
    base = _align(len(body), SEGMENT_ALIGNMENT)
    parts = [(0, Span.of(body)), *((base + at, span) for at, span in zip(offsets, segments, strict=True))]
    return FileLayout(tuple(parts), base + size)


def _align(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment


def _place(spans: list[Span], alignment: int) -> tuple[list[int], int]:
    offsets, end = [], 0
    for span in spans:
        offsets.append(_align(end, alignment))
        end = offsets[-1] + span.nbytes
    return offsets, end


@dataclass(slots=True)
class _Program:
    """Constants, delegates and segments, collected while the methods are turned into records."""

    segmented: bool
    inline: bool
    constants: list[Span] = field(default_factory=lambda: [Span.of(b"")])
    mutable: list[Span] = field(default_factory=lambda: [Span.of(b"")])
    delegates: list[Span] = field(default_factory=list)
    segments: list[Span] = field(default_factory=list)

    def segment(self, span: Span) -> int:
        self.segments.append(span)
        return len(self.segments) - 1

    def packed(self, spans: list[Span]) -> Record:
        offsets, size = _place(spans, TENSOR_ALIGNMENT)
        data = bytearray(size)
        for at, span in zip(offsets, spans, strict=True):
            data[at : at + span.nbytes] = span.read()
        return {"segment_index": self.segment(Span.of(bytes(data))), "offsets": offsets}

    def plan(self, method: Method) -> Record:
        operators = list(method.operators)
        operators += sorted(
            {s.op for s in method.instructions if isinstance(s, KernelCall) and s.op not in method.operators}
        )
        return {
            "name": method.name,
            "container_meta_type": {"encoded_inp_str": "", "encoded_out_str": ""},
            "values": [{"val": self.value(value)} for value in method.values],
            "inputs": method.inputs,
            "outputs": method.outputs,
            "chains": [
                {
                    "inputs": chain.inputs,
                    "outputs": chain.outputs,
                    "instructions": [{"instr_args": _instruction(step, operators)} for step in chain.instructions],
                }
                for chain in method.chains
            ],
            "operators": [_operator(name) for name in operators],
            "delegates": [self.delegate(delegate) for delegate in method.delegates],
            "non_const_buffer_sizes": method.non_const_buffer_sizes,
        }

    def delegate(self, delegate: Delegate) -> Record:
        blob = delegate.blob
        if delegate.graph is not None:
            blob = Span.of(blob_of(delegate.graph, delegate.constants))
        if self.inline:
            self.delegates.append(blob)
            index = len(self.delegates) - 1
        else:
            index = self.segment(blob)
        return {
            "id": delegate.id,
            "processed": {"location": 0 if self.inline else 1, "index": index},
            "compile_specs": [{"key": key, "value": value} for key, value in delegate.compile_specs],
        }

    def value(self, value: EValue) -> tuple[str, Record]:
        if isinstance(value, Tensor):
            return "Tensor", self.tensor(value)
        if isinstance(value, TensorList):
            return "OptionalTensorList" if value.optional else "TensorList", {"items": value.items}
        return plain_value(value)

    def tensor(self, tensor: Tensor) -> Record:
        index = 0
        if tensor.data is not None:
            buffers = self.mutable if tensor.allocation and self.segmented else self.constants
            if tensor.data not in buffers[1:]:
                buffers.append(tensor.data)
            index = buffers.index(tensor.data, 1)
        place = tensor.allocation
        return {
            "scalar_type": _SCALAR_CODES[tensor.dtype],
            "sizes": tensor.dims,
            "dim_order": tensor.dim_order,
            "data_buffer_idx": index,
            "allocation_info": place
            and {
                "memory_id": place.memory_id,
                "memory_offset_low": place.offset & 0xFFFFFFFF,
                "memory_offset_high": place.offset >> 32,
            },
            "shape_dynamism": DYNAMISM.index(tensor.dynamism),
            "extra_tensor_info": {"fully_qualified_name": tensor.name} if tensor.name else None,
        }


def _operator(name: str) -> Record:
    space, _, rest = name.rpartition("::")
    base, _, overload = rest.partition(".")
    return {"name": f"{space}::{base}" if space else base, "overload": overload}


def _instruction(step: Instruction, operators: list[str]) -> tuple[str, Record]:
    match step:
        case KernelCall():
            return "KernelCall", {"op_index": operators.index(step.op), "args": step.args}
        case DelegateCall():
            return "DelegateCall", {"delegate_index": step.delegate, "args": step.args}
        case MoveCall():
            return "MoveCall", {"move_from": step.source, "move_to": step.target}
        case JumpFalseCall():
            return "JumpFalseCall", {"cond_value_index": step.condition, "destination_instruction": step.destination}
        case FreeCall():
            return "FreeCall", {"value_index": step.value}
