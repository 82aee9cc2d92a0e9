"""Bad files, one test per fault, as real processes: exit code, one line on stderr, no traceback, within 5 s.

Peak memory may be at most the baseline plus three times the size of the file. The baseline is what the interpreter and
our imports take: the peak of the same command on a 2 kB file that is refused by its identifier or, where the refusal
comes after loading, inspected. 4 MB are added for the allocator.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from flatbuffers import Builder

from webgpu_run.formats import pte, pte_writer
from webgpu_run.formats.pte import Chain, DelegateCall, Method, Program
from webgpu_run.formats.vkgraph import Constant, OperatorCall, SymInt, Value, ValueList, VkTensor
from webgpu_run.formats.vkgraph_writer import program_of

from helpers.command import Result, execute, webgpu_run
from helpers.damage import File
from helpers.samples import WEIGHT, add_graph, add_program

NOISE = 4_000_000
F32 = VkTensor("float32", (4, 8))
Save = Callable[[bytes | Program], Path]


@functools.cache
def baseline(late: bool) -> int:
    """The peak memory of a run on a small file that is refused at once, or that gets as far as the ops."""
    data = bytearray(pte_writer.dumps(add_program()))
    if not late:
        data[4:8] = b"ET99"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.pte"
        path.write_bytes(data)
        result = webgpu_run(path, "--inspect")
    assert result.code == (0 if late else 3), result
    return result.peak


def refused(result: Result, code: int, message: str, size: int = 0, *, late: bool = False) -> None:
    """Asserts that a run ended as a fault must."""
    lines = result.err.splitlines()
    assert result.code == code, result
    assert lines, result
    assert lines[0].startswith("webgpu-run: error: "), result.err
    assert re.search(message, lines[0]), lines[0]
    assert len(lines) == 1 or (len(lines) == 2 and lines[1].startswith("hint: ")), result.err
    assert result.out == ""
    assert "Traceback" not in result.err
    assert result.seconds < 5
    assert result.peak < baseline(late) + 3 * size + NOISE


def refuse(path: Path, code: int, message: str, *args: str) -> None:
    """Inspects a file, which must be refused."""
    refused(webgpu_run(path, *(args or ("--inspect",))), code, message, path.stat().st_size, late=bool(args))


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def to_file(content: bytes | Program) -> Path:
        path = tmp_path / f"bad{len(list(tmp_path.iterdir()))}.pte"
        path.write_bytes(content if isinstance(content, bytes) else pte_writer.dumps(content))
        return path

    return to_file


@pytest.fixture(scope="module")
def good() -> File:
    return File(bytearray(pte_writer.dumps(add_program())))


def with_value(i: int, value: Value) -> Program:
    """The sample program with one value of its graph replaced."""
    values = list(add_graph().values)
    values[i] = value
    return add_program(values=tuple(values))


def with_chain(*calls: tuple[int, ...]) -> Program:
    """The sample program with a chain of adds of these arguments."""
    return add_program(chain=tuple(OperatorCall(i, "aten.add.Tensor", args) for i, args in enumerate(calls)))


def test_the_undamaged_file_is_fine(save: Save, good: File) -> None:
    result = webgpu_run(save(bytes(good.data)), "--inspect")
    assert (result.code, result.err) == (0, "")
    assert "forward" in result.out


def test_missing_file_directory_or_no_permission(tmp_path: Path, save: Save) -> None:
    refused(webgpu_run(tmp_path / "none.pte", "--inspect"), 3, r"cannot open: no such file .*none\.pte")
    refused(webgpu_run(tmp_path, "--inspect"), 3, r"is a directory")
    refused(webgpu_run("a\n\x1bb.pte", "--inspect"), 3, r"no such file or directory \(a .b\.pte\)")
    path = save(add_program())
    path.chmod(0)
    # Permissions do not stop root, so there the refusal is made in the process itself.
    script = f"import os, sys\nNAME = {str(path)!r}\nreal = os.open\n"
    script += "def deny(name, *args):\n    if name == NAME: raise PermissionError(13, 'Permission denied')\n"
    script += "    return real(name, *args)\nos.open = deny\nfrom webgpu_run.cli.run import main\nmain()"
    refused(execute(sys.executable, "-c", script, path, "--inspect"), 3, r"cannot open: permission denied")


def test_empty_file(save: Save) -> None:
    refuse(save(b""), 3, r"the file is empty")


@pytest.mark.parametrize("size", range(1, 8))
def test_file_of_a_few_bytes(save: Save, good: File, size: int) -> None:
    refuse(save(bytes(good.data[:size])), 3, rf"not a \.pte file: it has {size} bytes only")


@pytest.mark.parametrize(
    ("content", "seems"),
    [
        (b"GGUF\3\0\0\0" + bytes(100), "a GGUF file"),
        (b"PK\3\4" + bytes(100), "a zip archive"),
        (struct.pack("<Q", 64) + b'{"a":{"dtype":"F32"}}'.ljust(64) + bytes(99), "a safetensors file"),
        (b"<!DOCTYPE html><html><title>404", "an HTML or XML page"),
        (b"404: Not Found\n", "text"),
        (b'{"error": "Entry not found"}', "JSON text"),
        (bytes(4096), "zeros only"),
        (b"\x01\x02\x03\x04\x05\x06\x07\x08\x00\xff" * 9, "identifier b'"),
        (pte_writer.ptd({"a": b"1234"}), r"a \.ptd data file"),
    ],
)
def test_file_of_another_format(save: Save, content: bytes, seems: str) -> None:
    refuse(save(content), 3, rf"not a \.pte file: (it looks like )?{seems}")


@pytest.mark.parametrize("identifier", [b"ET11", b"ET99"])
def test_wrong_identifier(save: Save, good: File, identifier: bytes) -> None:
    data = bytes(good.data[:4]) + identifier + bytes(good.data[8:])
    refuse(save(data), 3, rf"another version \({identifier.decode()}; ET12 is known\)")


@pytest.mark.parametrize("size", [8, 11, 12, 15, 16, 23, 24, 31, 32, 39, 40, 41, 77, 500, 1000, -129, -1])
def test_truncated_file(save: Save, good: File, size: int) -> None:
    refuse(save(bytes(good.data[:size])), 3, r"byte 0x|ends|cut short")


@pytest.mark.parametrize("length", [0, 23, 1 << 20, 2**32 - 1])
def test_extended_header_length(save: Save, good: File, length: int) -> None:
    refuse(save(good.put(12, "I", length)), 3, rf"bad header length {length} at byte 0xc")


def test_program_size(save: Save, good: File) -> None:
    for size in (len(good.data) + 1, 2**64 - 1, 0):
        refuse(save(good.put(16, "Q", size)), 3, rf"program of {size} bytes in a file of {len(good.data)} at byte 0x10")


def test_segments_past_the_end(save: Save, good: File) -> None:
    refuse(save(good.put(24, "Q", len(good.data) + 1)), 3, r"segments start at .* at byte 0x18")
    refuse(save(good.put(24, "Q", 2**64 - 64)), 3, r"segments start at")
    refuse(save(good.put(32, "Q", len(good.data))), 3, r"segments end at .*cut short, at byte 0x20")
    refuse(save(good.put(32, "Q", 2**64 - 1)), 3, r"segments end at")
    refuse(save(good.put(good.field("segments.1.size"), "Q", 1 << 40)), 3, r"segment of 1099511627776 .*segments\[1\]")
    refuse(
        save(good.put(good.field("segments.1.offset"), "Q", 2**64 - 8)), 3, r"segment of 128 bytes at .*segments\[1\]"
    )


def test_root_offset(save: Save, good: File) -> None:
    for offset in (0, 2, len(good.data), 2**32 - 1):
        refuse(save(good.put(0, "I", offset)), 3, rf"bad offset {offset} at byte 0x0 \(Program\)|not aligned")


def test_bad_vtable(save: Save, good: File) -> None:
    plan = good.target("execution_plan.0")
    vtable = good.vtable("execution_plan.0")
    path = r"\(Program\.execution_plan\[0\]\)"
    refuse(save(good.put(plan, "i", -(1 << 30))), 3, rf"needed past the end .*{path}")
    refuse(save(good.put(plan, "i", 1 << 30)), 3, rf"past the end .*{path}")
    refuse(save(good.put(vtable, "H", 7)), 3, rf"bad vtable size 7 at byte {vtable:#x} {path}")
    refuse(save(good.put(vtable, "H", 2)), 3, rf"bad vtable size 2 .*{path}")
    refuse(save(good.put(vtable, "H", 65534)), 3, rf"past the end .*{path}")
    refuse(save(good.put(vtable + 2, "H", 2)), 3, rf"bad table size 2 .*{path}")
    refuse(save(good.put(vtable + 2, "H", 65532)), 3, r"runs past the end|overlap")
    refuse(save(good.put(vtable + 4, "H", 3)), 3, rf"vtable fields overlap or leave the table .*{path}")
    refuse(save(good.put(vtable + 4, "H", 60000)), 3, rf"vtable fields overlap or leave the table .*{path}")
    refuse(save(good.put(plan, "i", -4)), 3, r"overlap|vtable size|table size|past the end")


def test_cycle_and_shared_subtree_bomb(save: Save, good: File) -> None:
    pos = good.field("execution_plan.0")
    refuse(save(good.put(pos, "I", 0)), 3, rf"bad offset 0 at byte {pos:#x} \(Program\.execution_plan\[0\]\)")
    refuse(save(bomb(2000)), 3, r"two methods are named .*Program\.execution_plan")


def bomb(count: int) -> bytes:
    """A program of `count` plans of `count` values that are all the same two tables."""
    builder = Builder(1024)
    builder.StartObject(0)
    null = builder.EndObject()
    builder.StartObject(2)
    builder.PrependUint8Slot(0, 1, 0)
    builder.PrependUOffsetTRelativeSlot(1, null, 0)
    tables = builder.EndObject()
    for slots, slot in ((9, 2), (8, 1)):
        builder.StartVector(4, count, 4)
        for _ in range(count):
            builder.PrependUOffsetTRelative(tables)
        vector = builder.EndVector()
        builder.StartObject(slots)
        builder.PrependUOffsetTRelativeSlot(slot, vector, 0)
        tables = builder.EndObject()
    builder.Finish(tables, b"ET12")
    return bytes(builder.Output())


def test_vector_length(save: Save, good: File) -> None:
    pos = good.target("execution_plan.0.values")
    message = rf"bad vector length 4294967295 at byte {pos:#x} \(Program\.execution_plan\[0\]\.values\)"
    refuse(save(good.put(pos, "I", 2**32 - 1)), 3, message)
    pos = good.target("values.1.value.dims", graph=True)
    refuse(
        save(good.put(pos, "I", 2**32 - 1)), 3, rf"bad vector length 4294967295 at byte {pos:#x} \(.*VkGraph\.values"
    )


def test_bad_string(save: Save, good: File) -> None:
    pos = good.target("execution_plan.0.name")
    refuse(save(good.put(pos + 4, "B", 0xFF)), 3, rf"not UTF-8 at byte {pos + 4:#x} \(.*execution_plan\[0\]\.name\)")
    refuse(save(good.put(pos + 11, "B", 65)), 3, r"no terminating zero .*execution_plan\[0\]\.name\)")
    refuse(save(good.put(pos, "I", 1 << 24)), 3, rf"bad vector length {1 << 24} .*execution_plan\[0\]\.name\)")


def test_bad_union(save: Save, good: File) -> None:
    tag = good.tag("execution_plan.0.values.0.val")
    refuse(save(good.put(tag, "B", 77)), 3, rf"unknown union tag 77 at byte {tag:#x} \(.*values\[0\]\.val\)")
    refuse(save(good.put(tag, "B", 0)), 3, r"union table without a tag .*values\[0\]")
    vtable = good.vtable("execution_plan.0.values.0")
    refuse(save(good.put(vtable + 6, "H", 0)), 3, r"union tag without a table")
    refuse(save(good.put(vtable + 4, "HH", 0, 0)), 3, r"value has no kind .*values\[0\]")


def test_methods_missing_or_repeated(save: Save, good: File) -> None:
    refuse(save(good.put(good.target("execution_plan"), "I", 0)), 3, r"the program has no method .*execution_plan")
    program = add_program()
    forward = program.methods[0]
    two = tuple(dataclasses.replace(forward, name=name) for name in ("encode", "decode"))
    path = save(dataclasses.replace(program, methods=two))
    refuse(path, 3, r"no method 'forward': the file has encode, decode", "--quiet")
    assert webgpu_run(path, "--inspect").code == 0
    refuse(save(dataclasses.replace(program, methods=(forward, forward))), 3, r"two methods are named 'forward'")


def test_delegate_and_segment_index(save: Save, good: File) -> None:
    def calling(delegate: int) -> Program:
        program = add_program()
        forward = program.methods[0]
        chain = Chain((0,), (1,), (DelegateCall(delegate, (0, 1)),))
        return dataclasses.replace(program, methods=(dataclasses.replace(forward, chains=(chain,)),))

    refuse(save(calling(1)), 3, r"delegate 1 of 1 .*chains\[0\]\.instructions\[0\]")
    refuse(save(calling(-1)), 3, r"delegate -1 of 1")
    pos = good.field("named_data.0.segment_index")
    refuse(save(good.put(pos, "I", 99)), 3, r"segment 99 of 3 .*Program\.named_data\[0\]")
    pos = good.field("constant_segment.segment_index")
    refuse(save(good.put(pos, "I", 2**32 - 1)), 3, r"segment 4294967295 of 3 .*Program\.constant_segment")
    pos = good.field("execution_plan.0.delegates.0.processed.location")
    refuse(save(good.put(pos, "b", 0)), 3, r"inline data 0 of 0 .*delegates\[0\]\.processed")
    refuse(save(good.put(pos, "b", 9)), 3, r"delegate has no data")


def test_delegate_header(save: Save, good: File) -> None:
    blob = good.blob()
    refuse(save(good.put(blob + 4, "4B", *b"VH99")), 3, rf"identifier is b'VH99', not b'VH00' at byte {blob + 4:#x}")
    refuse(save(good.put(blob + 8, "H", 8)), 3, r"bad delegate header size 8")
    for at, code, name in ((10, "I", "graph"), (14, "I", "graph"), (18, "I", "constants"), (22, "Q", "constants")):
        refuse(save(good.put(blob + at, code, 2**31)), 3, rf"{name} of \d+ bytes at \d+ do(es)? not fit the delegate's")
    refuse(save(good.put(blob + 22, "Q", 2**64 - 1)), 3, r"constants of 18446744073709551615 bytes")
    refuse(save(good.put(blob + 14, "I", 0)), 3, r"graph of 0 bytes at 32 does not fit")
    size = good.field("segments.0.size")
    refuse(save(good.put(size, "Q", 29)), 3, r"delegate of 29 bytes has no room for its header")


def test_graph_identifier(save: Save, good: File) -> None:
    refuse(save(good.put(good.blob() + 36, "4B", *b"VK01")), 3, r"graph identifier is b'VK01', not b'VK00'")


def test_constant_out_of_range(save: Save, good: File) -> None:
    inline = program_of(dataclasses.replace(add_graph(), constants=(Constant(128, offset=16),)), [WEIGHT])
    file = File(bytearray(pte_writer.dumps(inline)))
    field = file.field("constants.0.offset", graph=True)
    refuse(save(file.put(field, "Q", 17)), 3, r"128 bytes at 17 of 144 bytes of constants .*VkGraph\.constants\[0\]")
    refuse(save(file.put(field, "Q", 2**64 - 64)), 3, r"128 bytes at 18446744073709551552 of 144")
    length = file.field("constants.0.length", graph=True)
    refuse(save(file.put(length, "Q", 2**64 - 1)), 3, r"18446744073709551615 bytes at 16 of 144")
    refuse(save(dataclasses.replace(add_program(), named={})), 3, r"no data named '[0-9a-f]{64}' in the file")
    tensor = dataclasses.replace(F32, constant_id=1)
    refuse(save(with_value(1, tensor)), 4, r"constant 1 of 1 .*values\[1\]\.constant_id")


def test_constant_too_short(save: Save) -> None:
    short = program_of(add_graph(), [WEIGHT[:124]])
    refuse(save(short), 3, r"constant has 124 bytes, its tensor needs 128 .*VkGraph\.constants\[0\]")
    inline = program_of(dataclasses.replace(add_graph(), constants=(Constant(124, offset=0),)), [WEIGHT])
    refuse(save(inline), 3, r"constant has 124 bytes, its tensor needs 128")
    longer = program_of(add_graph(), [WEIGHT + b"padding"])
    assert webgpu_run(save(longer), "--inspect").code == 0


def test_git_lfs_pointer(save: Save) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 341120\n"
    refuse(save(pointer), 3, r"a git-lfs pointer: .*git lfs pull")


def test_file_shrinks_while_open(save: Save) -> None:
    path = save(add_program())
    script = """
import os, sys
from webgpu_run.formats import pte
from webgpu_run.errors import RunError
program = pte.load(sys.argv[1])
weights = program.methods[0].delegates[0].constant(0)
assert len(weights.read()) == 128
os.truncate(sys.argv[1], weights.offset + 100)
try:
    weights.read()
except RunError as error:
    print(f"webgpu-run: error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""
    refused(
        execute(sys.executable, "-c", script, path), 3, r"file ends at byte 0x[0-9a-f]+: it was cut short or changed"
    )


def test_unknown_op(save: Save) -> None:
    names = ("aten.add.Tensor", "made.up", "made.up", "other.op")
    values = (*add_graph().values[:4], F32, F32, F32)
    args = ((0, 0, 2, 3), (3, 4), (3, 5), (3, 6))
    chain = tuple(OperatorCall(i, name, arg) for i, (name, arg) in enumerate(zip(names, args, strict=True)))
    path = save(add_program(values=values, chain=chain, output_ids=(6,)))
    refuse(path, 4, r"not supported: made\.up ×2, other\.op ×1$", "--quiet")
    shown = webgpu_run(path, "--inspect")
    assert shown.code == 0
    assert "✗ made.up" in shown.out


def test_wrong_arguments_of_an_op(save: Save) -> None:
    refuse(save(with_chain((0, 0, 2, 3), (3, 1, 4))), 4, r"aten\.add\.Tensor.*3 arguments, expected 4", "--quiet")
    refuse(save(with_chain((0, 0, 2, 3), (2, 1, 2, 4))), 4, r"aten\.add\.Tensor.*expected a tensor", "--quiet")
    refuse(save(with_chain((0, 0, 2, 3), (3, 1, 1, 4))), 4, r"aten\.add\.Tensor", "--quiet")
    refuse(save(with_chain(())), 4, r"'aten\.add\.Tensor' has no arguments .*chain\[0\]")


def test_value_ids_out_of_range(save: Save, good: File) -> None:
    refuse(save(with_chain((0, 0, -1, 3))), 4, r"value -1 of 5 at byte 0x[0-9a-f]+ \(.*chain\[0\]\.args\[2\]\)")
    refuse(save(with_chain((0, 0, 2, 5))), 4, r"value 5 of 5 .*chain\[0\]\.args\[3\]")
    refuse(save(good.put(good.target("output_ids", graph=True) + 4, "I", 2**31)), 4, r"value 2147483648 of 5")
    refuse(save(with_value(2, ValueList((2,)))), 4, r"the list contains itself .*values\[2\]\.items\[0\]")
    refuse(save(with_value(2, ValueList((-5,)))), 4, r"value -5 of 5 .*values\[2\]\.items\[0\]")
    method = dataclasses.replace(add_program().methods[0], inputs=(7,))
    refuse(
        save(dataclasses.replace(add_program(), methods=(method,))), 3, r"value 7 of 2 .*execution_plan\[0\]\.inputs"
    )


def test_values_read_before_written_or_written_twice(save: Save) -> None:
    refuse(save(with_chain((3, 1, 2, 4))), 4, r"reads value 3 before anything wrote it .*chain\[0\]\.args\[0\]")
    refuse(save(with_chain((4, 1, 2, 3), (3, 1, 2, 4))), 4, r"reads value 4 before anything wrote it .*chain\[0\]")
    refuse(
        save(with_chain((0, 0, 2, 3), (0, 0, 2, 3), (3, 1, 2, 4))),
        4,
        r"writes value 3, which another op wrote .*chain\[1\]",
    )
    refuse(save(with_chain((0, 0, 2, 3))), 4, r"no op writes output value 4 .*output_ids\[0\]")
    refuse(save(with_chain((0, 0, 2, 3), (3, 1, 2, 2))), 4, r"writes value 2, which is not a tensor")
    refuse(save(with_value(2, SymInt())), 4, r"reads value 2 before anything wrote it")


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ((1,) * 9, r"rank 9 is over 8"),
        ((2**31, 1), r"bad dim 2147483648 .*dims\[0\]"),
        ((2**30, 2**30, 2**30), r"dims .* overflow 2\^63 bytes"),
    ],
)
def test_rank_and_dims(save: Save, dims: tuple[int, ...], message: str) -> None:
    refuse(save(with_value(3, VkTensor("float32", dims))), 5, message + r".*VkGraph\.values\[3\]|" + message)


def test_rank_and_dims_of_the_program(save: Save) -> None:
    def sized(dims: tuple[int, ...]) -> Program:
        program = add_program()
        method: Method = program.methods[0]
        tensor = method.values[0]
        assert isinstance(tensor, pte.Tensor)
        values = (dataclasses.replace(tensor, dims=dims, dim_order=()), *method.values[1:])
        return dataclasses.replace(program, methods=(dataclasses.replace(method, values=values),))

    refuse(save(sized((1,) * 9)), 5, r"rank 9 is over 8 .*execution_plan\[0\]\.values\[0\]\.sizes")
    refuse(save(sized((4, -8))), 5, r"bad sizes \[4, -8\]")
    refuse(save(sized((2**31 - 1,) * 3)), 5, r"bad sizes")


def test_memory_object_out_of_range(save: Save) -> None:
    tensor = dataclasses.replace(F32, mem_obj_id=2**31 - 1)
    refuse(save(with_value(3, tensor)), 5, r"mem_obj_id 2147483647 is out of range: the graph has 5 values")
