"""The budgets of the FlatBuffer reader, on schemas that can break them."""

from __future__ import annotations

import pytest

from webgpu_run.errors import FormatError
from webgpu_run.formats import flatbuffer, flatbuffer_writer, schema
from webgpu_run.formats.flatbuffer import Path, Reader

NESTED = schema.parse("""
Node child:Node children:[Node] number:i64 name:str numbers:[i64]
""")


def nested(depth: int) -> bytes:
    record: flatbuffer.Record = {"number": depth}
    for _ in range(depth - 1):
        record = {"child": record}
    return flatbuffer_writer.write(NESTED, "Node", record, b"NODE")


def read(data: bytes) -> flatbuffer.Record:
    return Reader(data, NESTED).root("Node", Path(None, "Node"))


def test_depth() -> None:
    record = read(nested(64))
    while record["child"]:
        record = record["child"]
    assert record["number"] == 64
    with pytest.raises(FormatError, match=r"tables nested deeper than 64 at byte 0x[0-9a-f]+ \(Node(\.child){64}\)"):
        read(nested(65))


def test_table_count(monkeypatch: pytest.MonkeyPatch) -> None:
    data = flatbuffer_writer.write(NESTED, "Node", {"children": [{"number": i} for i in range(10)]}, b"NODE")
    assert [child["number"] for child in read(data)["children"]] == list(range(10))
    monkeypatch.setattr(flatbuffer, "MAX_TABLES", 10)
    with pytest.raises(FormatError, match=r"more than 10 tables .*Node\.children\[9\]"):
        read(data)


def test_bytes_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    data = flatbuffer_writer.write(NESTED, "Node", {"children": [{"numbers": [1] * 100}] * 10}, b"NODE")
    read(data)
    monkeypatch.setattr(flatbuffer, "MAX_VISITS", 0.5)
    with pytest.raises(FormatError, match=r"the same bytes are used too often"):
        read(data)


def test_missing_fields_have_defaults() -> None:
    record = read(flatbuffer_writer.write(NESTED, "Node", {}, b"NODE"))
    assert (record["child"], record["children"], record["number"], record["name"]) == (None, (), 0, "")


@pytest.mark.parametrize("at", range(4))
def test_misaligned_root_is_refused(at: int) -> None:
    data = bytearray(nested(1) + bytes(8))
    data[0] += at
    if at == 0:
        assert read(bytes(data))["number"] == 1
    else:
        with pytest.raises(FormatError, match="not aligned to 4"):
            read(bytes(data))
