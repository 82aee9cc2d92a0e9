"""Writes records as FlatBuffer bytes: the reverse of `flatbuffer`."""

from __future__ import annotations

from typing import Any

from flatbuffers import Builder

from .flatbuffer import Record
from .schema import SIZES, Field, Table, TableSchema

BLOB_ALIGNMENT = 16
_METHOD = {
    "bool": "Bool",
    "i8": "Int8",
    "u8": "Uint8",
    "i32": "Int32",
    "u32": "Uint32",
    "i64": "Int64",
    "u64": "Uint64",
    "f64": "Float64",
}


def write(schema: TableSchema, table: str, record: Record, identifier: bytes) -> bytes:
    """Serialize a record. Fields that are missing or None are omitted."""
    builder = Builder(1024)
    root = _table(builder, schema, schema.tables[table], record)
    builder.Finish(root, identifier)
    return bytes(builder.Output())


def _table(builder: Builder, schema: TableSchema, table: Table, record: Record) -> int:
    present = [field for field in table.fields if record.get(field.name) is not None]
    children = {
        field.name: _child(builder, schema, field, record[field.name]) for field in present if field.kind != "scalar"
    }
    builder.StartObject(table.slots)
    for field in present:
        if field.kind == "scalar":
            slot = getattr(builder, f"Prepend{_METHOD[field.type]}Slot")
            slot(field.slot, record[field.name], field.default)
        elif field.kind == "union":
            tag = schema.unions[field.type].index(record[field.name][0])
            builder.PrependUint8Slot(field.slot, tag, 0)
            builder.PrependUOffsetTRelativeSlot(field.slot + 1, children[field.name], 0)
        else:
            builder.PrependUOffsetTRelativeSlot(field.slot, children[field.name], 0)
    return int(builder.EndObject())


def _child(builder: Builder, schema: TableSchema, field: Field, value: Any) -> int:
    if field.kind == "string":
        return int(builder.CreateString(value))
    if field.kind == "blob":
        return _blob(builder, value)
    if field.kind == "table":
        return _table(builder, schema, schema.tables[field.type], value)
    if field.kind == "union":
        return _table(builder, schema, schema.tables[value[0]], value[1])
    if field.kind == "tables":
        items = [_table(builder, schema, schema.tables[field.type], item) for item in value]
        return _vector(builder, 4, items, builder.PrependUOffsetTRelative)
    return _vector(builder, SIZES[field.type], value, getattr(builder, f"Prepend{_METHOD[field.type]}"))


def _vector(builder: Builder, stride: int, items: Any, prepend: Any) -> int:
    builder.StartVector(stride, len(items), stride)
    for item in reversed(items):
        prepend(item)
    return int(builder.EndVector())


def _blob(builder: Builder, data: bytes) -> int:
    builder.StartVector(1, len(data), BLOB_ALIGNMENT)
    builder.head = builder.head - len(data)
    builder.Bytes[builder.head : builder.head + len(data)] = data
    return int(builder.EndVector())
