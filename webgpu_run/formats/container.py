"""The outer structure of .pte and .ptd files: identifier, header, segments and named data."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import FormatError
from .flatbuffer import Path, Reader, Record
from .schema import PTD, PTE, TableSchema
from .source import Source, Span, export_hint, looks_like

HEAD = 64  # bytes of a file that hold its identifier and header


@dataclass(frozen=True, slots=True)
class Container:
    """An open file: its root record, and its segments, which were checked to lie inside the file."""

    source: Source
    reader: Reader
    root: Record
    path: Path
    segments: tuple[Span, ...]
    named: dict[str, Span]


@dataclass(frozen=True, slots=True)
class _Header:
    """Where the program and the segments are in a file, in bytes."""

    program_size: int
    segment_base: int
    segment_end: int


def open_pte(source: Source) -> Container:
    """Open a .pte file. If it is something else, the error says what it looks like."""
    head = _head(source, b"ET12", ".pte")
    return _container(source, PTE, "Program", _pte_header(source, head))


def _head(source: Source, magic: bytes, suffix: str) -> bytes:
    if source.size == 0:
        raise FormatError(f"the file is empty ({source.name})")
    head = source.read(0, min(source.size, HEAD))
    if len(head) >= 8 and head[4:8] == magic:
        if source.size < 16:
            raise FormatError(f"the file ends inside its header, at byte {source.size:#x} ({source.name})")
        return head
    if len(head) < 8:
        raise FormatError(f"not a {suffix} file: it has {len(head)} bytes only ({source.name})")
    seems = looks_like(source.read(0, min(source.size, 512)))
    if seems:
        hint = export_hint(seems, source.name) if suffix == ".pte" else None
        raise FormatError(f"not a {suffix} file: it looks like {seems} ({source.name})", hint=hint)
    raise FormatError(f"not a {suffix} file: identifier {head[4:8]!r} at byte 0x4, not {magic!r} ({source.name})")


def _u64(head: bytes, at: int) -> int:
    return int.from_bytes(head[at : at + 8], "little")


def _pte_header(source: Source, head: bytes) -> _Header:
    if head[8:12] != b"eh00":
        return _Header(source.size, source.size, source.size)
    length = int.from_bytes(head[12:16], "little")
    if length < 24 or 8 + length > source.size:
        raise FormatError(f"bad header length {length} at byte 0xc of {source.size} bytes ({source.name})")
    program_size, base = _u64(head, 16), _u64(head, 24)
    end = base + _u64(head, 32) if length >= 32 else source.size
    return _check_header(source, _Header(program_size, base, end), 16)


def _check_header(source: Source, header: _Header, at: int) -> _Header:
    size = source.size
    if not 16 <= header.program_size <= size:
        raise FormatError(f"program of {header.program_size} bytes in a file of {size} at byte {at:#x} ({source.name})")
    if header.segment_base and not header.program_size <= header.segment_base <= size:
        what = (
            f"segments start at {header.segment_base:#x}, program ends at {header.program_size:#x}, file at {size:#x}"
        )
        raise FormatError(f"{what}, at byte {at + 8:#x} ({source.name})")
    if header.segment_end > size:
        what = f"segments end at {header.segment_end:#x}, the file at {size:#x}: it was cut short"
        raise FormatError(f"{what}, at byte {at + 16:#x} ({source.name})")
    return header


def _segments(source: Source, reader: Reader, root: Record, path: Path, header: _Header) -> tuple[Span, ...]:
    spans = []
    for i, record in enumerate(root["segments"]):
        start = header.segment_base + record["offset"]
        if start + record["size"] > header.segment_end:
            what = f"segment of {record['size']} bytes at {start:#x} ends past {header.segment_end:#x}"
            raise reader.error(what, record, Path(Path(path, "segments"), i))
        spans.append(Span(source, start, record["size"]))
    return tuple(spans)


def _named(reader: Reader, root: Record, path: Path, segments: tuple[Span, ...]) -> dict[str, Span]:
    named: dict[str, Span] = {}
    for i, record in enumerate(root["named_data"]):
        here = Path(Path(path, "named_data"), i)
        if record["segment_index"] >= len(segments):
            raise reader.error(f"segment {record['segment_index']} of {len(segments)}", record, here)
        if record["key"] in named:
            raise reader.error(f"two data of the name {record['key']!r}", record, here)
        named[record["key"]] = segments[record["segment_index"]]
    return named


def open_ptd(source: Source) -> Container:
    """Open a .ptd data file."""
    head = _head(source, b"FT01", ".ptd")
    if head[8:12] != b"FH01" or len(head) < 48 or int.from_bytes(head[12:16], "little") < 40:
        raise FormatError(f"bad .ptd header at byte 0x8 ({source.name})")
    offset, size, base, nbytes = (_u64(head, at) for at in (16, 24, 32, 40))
    header = _check_header(source, _Header(offset + size, base, base + nbytes), 24)
    return _container(source, PTD, "FlatTensor", header)


def _container(source: Source, schema: TableSchema, table: str, header: _Header) -> Container:
    path = Path(None, table)
    reader = Reader(source.read(0, header.program_size), schema)
    root = reader.root(table, path)
    segments = _segments(source, reader, root, path, header)
    return Container(source, reader, root, path, segments, _named(reader, root, path, segments))
