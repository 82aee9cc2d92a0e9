"""A checked FlatBuffer reader.

It turns bytes and a schema into plain records, or raises a FormatError that names the byte and the path of the field.
Every offset is checked to stay inside the buffer before it is followed. Nesting depth, the number of tables and the
number of bytes visited have budgets, so a hostile file costs no more to read than an honest file of the same size.
"""

from __future__ import annotations

import itertools
import struct
from typing import Any, NamedTuple

from ..errors import FormatError, RunError
from .schema import SCALARS, SIZES, Field, Table, TableSchema

MAX_DEPTH = 64
MAX_TABLES = 1_000_000
MAX_VISITS = 4
RECORD_COST = 16  # charged per table in addition to its bytes, so that empty tables are not free

Record = dict[str, Any]  # field name -> value; "@" -> the table's position in the buffer

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_SCALAR = {name: struct.Struct("<" + code) for name, code in SCALARS.items()}


class Path(NamedTuple):
    """The path of a field, as a link to its parent. It becomes text only when an error message needs it."""

    parent: Path | None
    step: str | int

    def __str__(self) -> str:
        if self.parent is None:
            return str(self.step)
        return f"{self.parent}[{self.step}]" if isinstance(self.step, int) else f"{self.parent}.{self.step}"


class _Layout(NamedTuple):
    """A vtable read as one kind of table: its sizes and the fields that are present."""

    vtable_size: int
    table_size: int
    fields: tuple[tuple[Field, int, int], ...]  # field, offset, offset of the union tag (0 if not a union)


class Reader:
    """Reads the tables of one FlatBuffer. `base` is the file offset of its first byte, for error messages."""

    def __init__(self, data: bytes, schema: TableSchema, *, base: int = 0) -> None:
        self.data = data
        self.schema = schema
        self.base = base
        self.size = len(data)
        self._tables_left = MAX_TABLES
        self._bytes_left = MAX_VISITS * self.size
        self._layouts: dict[tuple[int, str], _Layout] = {}
        self._records: dict[tuple[int, str, int], Record] = {}  # position, table, depth -> what was read there
        self._defaults = {
            name: {field.name: field.default for field in table.fields} for name, table in schema.tables.items()
        }

    def root(self, table: str, path: Path) -> Record:
        """Read the root table. The first word of the buffer is its offset."""
        return self._table(self._follow(0, path), self.schema.tables[table], path, 1)

    def error(self, what: str, pos: int | Record, path: Path, kind: type[RunError] = FormatError) -> RunError:
        """Build the error for a fault at a position, or at the table that a record was read from."""
        at = pos if isinstance(pos, int) else int(pos["@"])
        return kind(f"{what} at byte {self.base + at:#x} ({path})")

    def _need(self, pos: int, nbytes: int, align: int, path: Path) -> None:
        if pos < 0 or pos + nbytes > self.size:
            raise self.error(f"{nbytes} bytes needed past the end ({self.base + self.size:#x})", pos, path)
        if pos % align:
            raise self.error(f"not aligned to {align}", pos, path)

    def _spend(self, nbytes: int, pos: int, path: Path) -> None:
        self._bytes_left -= nbytes
        if self._bytes_left < 0:
            raise self.error(f"the same bytes are used too often (over {MAX_VISITS} times the size)", pos, path)

    def _follow(self, pos: int, path: Path) -> int:
        self._need(pos, 4, 4, path)
        offset: int = _U32.unpack_from(self.data, pos)[0]
        if offset < 4 or offset > self.size - pos - 4:
            raise self.error(f"bad offset {offset}", pos, path)
        return pos + offset

    def _layout(self, vtable: int, table: Table, path: Path) -> _Layout:
        self._need(vtable, 4, 2, path)
        vtable_size, table_size = struct.unpack_from("<HH", self.data, vtable)
        if vtable_size < 4 or vtable_size % 2:
            raise self.error(f"bad vtable size {vtable_size}", vtable, path)
        self._need(vtable, vtable_size, 2, path)
        if table_size < 4:
            raise self.error(f"bad table size {table_size}", vtable, path)
        offsets = struct.unpack_from(f"<{vtable_size // 2 - 2}H", self.data, vtable + 4)
        fields: list[tuple[Field, int, int]] = []
        ranges: list[tuple[int, int]] = [(0, 4)]  # bytes of the table that are in use; the first 4 point to the vtable
        for field in table.fields:
            at = field.slot + 1 if field.kind == "union" else field.slot
            offset = offsets[at] if at < len(offsets) else 0
            tag = offsets[field.slot] if field.kind == "union" and field.slot < len(offsets) else 0
            if offset:
                ranges.append((offset, offset + (SIZES[field.type] if field.kind == "scalar" else 4)))
            if tag:
                ranges.append((tag, tag + 1))
            if offset or tag:
                fields.append((field, offset, tag))
        ranges.sort()
        if ranges[-1][1] > table_size or any(a[1] > b[0] for a, b in itertools.pairwise(ranges)):
            raise self.error("vtable fields overlap or leave the table", vtable, path)
        return _Layout(vtable_size, table_size, tuple(fields))

    def _table(self, pos: int, table: Table, path: Path, depth: int) -> Record:
        """The record of a table. A table that is named many times is read once; its record is shared."""
        known = self._records.get((pos, table.name, depth))
        if known is not None:
            return known
        if depth > MAX_DEPTH:
            raise self.error(f"tables nested deeper than {MAX_DEPTH}", pos, path)
        self._tables_left -= 1
        if self._tables_left < 0:
            raise self.error(f"more than {MAX_TABLES} tables", pos, path)
        self._need(pos, 4, 4, path)
        vtable = pos - _I32.unpack_from(self.data, pos)[0]
        layout = self._layouts.get((vtable, table.name))
        if layout is None:
            layout = self._layouts[vtable, table.name] = self._layout(vtable, table, path)
        if pos + layout.table_size > self.size:
            raise self.error(f"table of {layout.table_size} bytes runs past the end", pos, path)
        if vtable < pos + layout.table_size and pos < vtable + layout.vtable_size:
            raise self.error("table and vtable overlap", pos, path)
        self._spend(layout.table_size + RECORD_COST, pos, path)
        record: Record = self._defaults[table.name].copy()
        record["@"] = pos
        for field, offset, tag in layout.fields:
            record[field.name] = self._field(field, pos, offset, tag, path, depth)
        self._records[pos, table.name, depth] = record
        return record

    def _field(self, field: Field, pos: int, offset: int, tag: int, path: Path, depth: int) -> Any:
        at = pos + offset
        if field.kind == "scalar":
            if at % SIZES[field.type]:
                raise self.error(f"not aligned to {SIZES[field.type]}", at, Path(path, field.name))
            return _SCALAR[field.type].unpack_from(self.data, at)[0]
        here = Path(path, field.name)
        if field.kind == "scalars":
            stride = SIZES[field.type]
            start, count = self._vector(at, stride, here)
            return struct.unpack_from(f"<{count}{SCALARS[field.type]}", self.data, start)
        if field.kind == "tables":
            start, count = self._vector(at, 4, here)
            item = self.schema.tables[field.type]
            steps = [Path(here, i) for i in range(count)]
            return tuple(
                self._table(self._follow(start + 4 * i, step), item, step, depth + 1) for i, step in enumerate(steps)
            )
        if field.kind == "string":
            return self._string(at, here)
        if field.kind == "blob":
            return self._vector(at, 1, here)
        if field.kind == "table":
            return self._table(self._follow(at, here), self.schema.tables[field.type], here, depth + 1)
        return self._union(field, pos, offset, tag, here, depth)

    def _union(self, field: Field, pos: int, offset: int, tag_at: int, path: Path, depth: int) -> Any:
        names = self.schema.unions[field.type]
        tag = self.data[pos + tag_at] if tag_at else 0
        if tag >= len(names):
            raise self.error(f"unknown union tag {tag}", pos + tag_at, path)
        if (tag == 0) != (offset == 0):
            raise self.error("union tag without a table" if tag else "union table without a tag", pos, path)
        if tag == 0:
            return None
        return names[tag], self._table(
            self._follow(pos + offset, path), self.schema.tables[names[tag]], path, depth + 1
        )

    def _vector(self, at: int, stride: int, path: Path) -> tuple[int, int]:
        """Position of the first element, and the number of elements."""
        pos = self._follow(at, path)
        self._need(pos, 4, 4, path)
        count: int = _U32.unpack_from(self.data, pos)[0]
        start = pos + 4
        if count * stride > self.size - start:
            raise self.error(f"bad vector length {count}", pos, path)
        if count and start % stride:
            raise self.error(f"not aligned to {stride}", start, path)
        self._spend(4 + count * stride, pos, path)
        return start, count

    def _string(self, at: int, path: Path) -> str:
        start, count = self._vector(at, 1, path)
        end = start + count
        if end >= self.size or self.data[end]:
            raise self.error("string has no terminating zero", start, path)
        try:
            return str(self.data[start:end], "utf-8")
        except UnicodeDecodeError as error:
            raise self.error("string is not UTF-8", start + error.start, path) from None
