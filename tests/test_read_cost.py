"""Small files that name the same thing many times: reading and inspecting them costs what their size allows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from flatbuffers import Builder

from webgpu_run.errors import RunError
from webgpu_run.formats import flatbuffer, pte, pte_writer, schema
from webgpu_run.formats.pte import Method
from webgpu_run.formats.source import Span
from webgpu_run.formats.vkgraph import IntList, OperatorCall, Value, ValueList, VkGraph, VkTensor
from webgpu_run.formats.vkgraph_writer import blob_of, program_of

from helpers.command import execute
from helpers.samples import add_program

READ = (
    "import sys, webgpu_run.formats.pte as pte\nfrom webgpu_run.errors import RunError\n"
    "try: pte.load(sys.argv[1]).metadata\nexcept RunError as error: print(error)"
)


def named_by_arguments() -> bytes:
    """One list of 8,000 tensors, which 200 ops each name 40 times."""
    tensors: list[Value] = [VkTensor("float32", (1,))] * 8000
    outputs: list[Value] = [VkTensor("float32", (1,))] * 200
    values = (*tensors, *outputs, ValueList(tuple(range(8000))))
    listed = len(values) - 1
    chain = tuple(OperatorCall(i, "aten.cat.default", (listed,) * 40 + (8000 + i,)) for i in range(200))
    graph = VkGraph("0", chain, values, tuple(range(8000)), (8199,), ())
    return pte_writer.dumps(program_of(graph))


def written_by_all() -> bytes:
    """A list of 8,000 missing outputs, which 2,000 ops each write."""
    values: tuple[Value, ...] = (VkTensor("float32", (1,)), *([None] * 8000), ValueList(tuple(range(1, 8001))))
    chain = tuple(OperatorCall(i, "aten.split.default", (0, len(values) - 1)) for i in range(2000))
    return pte_writer.dumps(program_of(VkGraph("0", chain, values, (0,), (0,), ())))


def metadata_repeated() -> bytes:
    """A constant method that returns a list of 6,000 numbers 12,000 times."""
    program = add_program()
    values = (IntList(tuple([1] * 6000)), 7)
    repeated = Method("get_numbers", (), (0,) * 12_000, values, (), non_const_buffer_sizes=(0,))
    return pte_writer.dumps(replace(program, methods=(*program.methods, repeated)))


def delegates_repeated() -> bytes:
    """A thousand delegates with the same bytes."""
    values: tuple[Value, ...] = (VkTensor("float32", (1,)), *(IntList((i, i, i)) for i in range(2000)))
    graph = VkGraph("0", (), values, (0,), (0,), ())
    program = program_of(graph)
    method = program.method()
    blob = Span.of(blob_of(graph, ()))
    delegate = replace(method.delegates[0], blob=blob, graph=None)
    methods = (replace(method, delegates=(delegate,) * 1000), *program.methods[1:])
    out = pte_writer.layout(replace(program, methods=methods))
    data = bytearray(b"".join(out.chunks()))
    root = flatbuffer.Reader(bytes(data), schema.PTE).root("Program", flatbuffer.Path(None, "Program"))
    first = root["segments"][0]
    base = int.from_bytes(data[24:32], "little")
    for record in root["segments"][1:]:  # every segment becomes the first one
        at = record["@"]
        data[at : at + 64] = bytes(data[at : at + 64]).replace(
            record["offset"].to_bytes(8, "little"), first["offset"].to_bytes(8, "little"), 1
        )
    end = base + len(blob.read()) + 1024
    data[32:40] = (end - base).to_bytes(8, "little")
    return bytes(data[:end])


@pytest.mark.parametrize(
    "make",
    [named_by_arguments, written_by_all, metadata_repeated, delegates_repeated],
    ids=lambda make: str(make.__name__),
)
def test_cost_follows_the_size_of_the_file(make: Callable[[], bytes], tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    path.write_bytes(make())
    result = execute(sys.executable, "-c", READ, path)
    print(f"\n{make.__name__}: {path.stat().st_size:,} bytes, {result.seconds:.2f} s, {result.peak >> 20} MB", end="")
    assert result.code == 0, result.err
    assert result.seconds < 4
    assert result.peak < 110 << 20  # Python and numpy take 40 MB


def test_a_table_named_many_times_is_read_once() -> None:
    """A vector whose 100,000 entries are one table: one record, and a refusal where vectors repeat too."""
    nested = schema.parse("Node number:i32 numbers:[i64] children:[Node]")
    builder = Builder(1024)
    builder.StartVector(8, 1000, 8)
    for _ in range(1000):
        builder.PrependInt64(7)
    numbers = builder.EndVector()
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(1, numbers, 0)
    leaf = builder.EndObject()
    builder.StartVector(4, 100_000, 4)
    for _ in range(100_000):
        builder.PrependUOffsetTRelative(leaf)
    children = builder.EndVector()
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(2, children, 0)
    builder.Finish(builder.EndObject())
    record = flatbuffer.Reader(bytes(builder.Output()), nested).root("Node", flatbuffer.Path(None, "Node"))
    assert len(record["children"]) == 100_000
    assert len({id(child) for child in record["children"]}) == 1


def test_honest_metadata_is_as_it_was() -> None:
    program = add_program()
    values = (IntList((1, 2)), 7, 8, 5)
    method = Method("get_eos_ids", (), (0,), values, (), non_const_buffer_sizes=(0,))
    several = Method("get_pair", (), (1, 3), values, (), non_const_buffer_sizes=(0,))
    read = pte.loads(pte_writer.dumps(replace(program, methods=(*program.methods, method, several))))
    assert (read.metadata["get_eos_ids"], read.metadata["get_pair"]) == ([7, 8], [7, 5])


def test_repeated_metadata_is_refused() -> None:
    with pytest.raises(RunError, match="get_numbers"):
        _ = pte.loads(metadata_repeated()).metadata


def test_order_is_still_checked_inside_lists() -> None:
    """An op that names a list before its last tensor is written is refused, however often the list was named."""
    t = VkTensor("float32", (1,))
    values: tuple[Value, ...] = (t, t, t, ValueList((0, 1)), t)
    ops = [OperatorCall(0, "a", (0, 1)), OperatorCall(1, "b", (3, 2)), OperatorCall(2, "c", (3, 4))]
    good = VkGraph("0", tuple(ops), values, (0,), (4,), ())
    pte.loads(pte_writer.dumps(program_of(good)))
    with pytest.raises(RunError, match="'b' reads value 1 before anything wrote it"):
        pte.loads(pte_writer.dumps(program_of(replace(good, chain=(ops[1], ops[0], ops[2])))))
