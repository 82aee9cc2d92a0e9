"""Finds the bytes of a field in a written file, so that a test can damage exactly this field."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from webgpu_run.formats import pte
from webgpu_run.formats.schema import PTE, VK, TableSchema


@dataclass(slots=True)
class File:
    """A file to damage; paths like `execution_plan.0.values` start at the program, with `graph=True` at its graph."""

    data: bytearray

    def put(self, pos: int, code: str, *values: int) -> bytes:
        """The file with these numbers written at a byte."""
        data = bytearray(self.data)
        struct.pack_into("<" + code, data, pos, *values)
        return bytes(data)

    def field(self, path: str, *, graph: bool = False) -> int:
        """The byte of a field: a scalar, a union's table offset, or the offset that leads to a vector or table."""
        return self._find(path, graph)[0]

    def target(self, path: str, *, graph: bool = False) -> int:
        """The byte that a field leads to: a vector's length, a table."""
        pos = self.field(path, graph=graph)
        return pos + self._u32(pos)

    def tag(self, path: str, *, graph: bool = False) -> int:
        """The byte of a union's tag."""
        return self._find(path, graph)[1]

    def vtable(self, path: str, *, graph: bool = False) -> int:
        """The byte of the vtable of the table that a path leads to; an empty path is the root."""
        pos = self.target(path, graph=graph) if path else self._start(graph) + self._u32(self._start(graph))
        return pos - int(struct.unpack_from("<i", self.data, pos)[0])

    def blob(self) -> int:
        """The byte of the first delegate's header."""
        return pte.loads(bytes(self.data)).methods[0].delegates[0].blob.offset

    def _start(self, graph: bool) -> int:
        return self.blob() + 32 if graph else 0

    def _u32(self, pos: int) -> int:
        return int(struct.unpack_from("<I", self.data, pos)[0])

    def _find(self, path: str, graph: bool) -> tuple[int, int]:
        schema: TableSchema = VK if graph else PTE
        table = schema.tables["VkGraph" if graph else "Program"]
        start = self._start(graph)
        pos = start + self._u32(start)
        tag = 0
        at = start
        words = path.split(".")
        for i, word in enumerate(words):
            if word.isdigit():
                at = at + self._u32(at) + 4 + 4 * int(word)
                if i + 1 < len(words):
                    pos = at + self._u32(at)
                continue
            field = next(field for field in table.fields if field.name == word)
            vtable = pos - int(struct.unpack_from("<i", self.data, pos)[0])
            slot = field.slot + 1 if field.kind == "union" else field.slot
            offset = int(struct.unpack_from("<H", self.data, vtable + 4 + 2 * slot)[0])
            assert offset, f"{word} of {path} has its default and is not in the file"
            at = pos + offset
            if field.kind == "union":
                tag = pos + int(struct.unpack_from("<H", self.data, vtable + 4 + 2 * field.slot)[0])
                table = schema.tables[schema.unions[field.type][self.data[tag]]]
            elif field.kind in ("table", "tables"):
                table = schema.tables[field.type]
            if field.kind in ("union", "table"):
                pos = at + self._u32(at)
        return at, tag
