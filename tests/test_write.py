"""What is written reads back equal, in every form a file can have."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from webgpu_run.errors import FormatError, UsageError
from webgpu_run.formats import pte, pte_writer
from webgpu_run.formats.vkgraph import Constant
from webgpu_run.formats.vkgraph_writer import program_of

from helpers.samples import FIXTURES, WEIGHT, add_graph, add_program, every_kind, plain


@pytest.mark.parametrize("header", [24, 32])
@pytest.mark.parametrize("inline", [False, True])
def test_every_kind_reads_back_equal(header: int, inline: bool) -> None:
    program = every_kind()
    data = pte_writer.dumps(program, header=header, inline=inline)
    assert data[8:12] == b"eh00"
    assert data[12] == header
    assert plain(pte.loads(data)) == plain(program)


def test_without_extended_header() -> None:
    graph = dataclasses.replace(add_graph(), constants=(Constant(128, offset=16),))
    program = program_of(graph, [WEIGHT])
    data = pte_writer.dumps(program, header=0, inline=True)
    assert data[8:12] != b"eh00"
    assert plain(pte.loads(data)) == plain(program)


def test_headerless_file_keeps_cpu_constants() -> None:
    program = every_kind()
    program = dataclasses.replace(program, methods=program.methods[-1:], named={})
    assert plain(pte.loads(pte_writer.dumps(program, header=0, inline=True))) == plain(program)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_fixture_round_trip(path: Path) -> None:
    program = pte.load(path)
    again = pte.loads(pte_writer.dumps(program))  # external weights come in as named data
    assert plain(again) == plain(program)
    assert again.metadata == program.metadata


def test_comparison_sees_a_difference() -> None:
    assert plain(add_program()) != plain(add_program(version="1"))
    assert plain(add_program()) != plain(add_program(chain=add_graph().chain[:1], output_ids=(3,)))


def test_external_data() -> None:
    program = add_program()
    named = {key: span.read() for key, span in program.named.items()}
    data = pte_writer.dumps(dataclasses.replace(program, named={}))
    with pytest.raises(FormatError, match="no data named"):
        pte.loads(data)
    loaded = pte.loads(data, [pte_writer.ptd(named)])
    assert loaded.methods[0].delegates[0].constant(0).read() == WEIGHT


def test_external_data_has_the_layout_of_real_files() -> None:
    real = next((Path(__file__).parent / "fixtures").glob("*.ptd")).read_bytes()
    ours = pte_writer.ptd({"a": b"1234", "b": b"5"})
    assert real[4:24] == ours[4:24]  # identifiers, header length and the offset that the header pushes things to
    with pytest.raises(FormatError, match=r"segments end at .*cut short"):
        pte.loads(pte_writer.dumps(add_program()), [ours[:-1]])


def test_metadata() -> None:
    program = pte.loads(pte_writer.dumps(every_kind()))
    assert program.metadata == {"name": "m", "flags": [True, 2.5]}
    assert [method.name for method in program.entry_points] == ["forward", "other"]
    assert program.method().name == "forward"
    with pytest.raises(FormatError, match=r"no method 'encode': the file has forward, other"):
        program.method("encode")


def test_write_is_all_or_nothing(tmp_path: Path) -> None:
    target = tmp_path / "m.pte"
    pte_writer.write(target, add_program())
    assert plain(pte.load(target)) == plain(add_program())
    with pytest.raises(UsageError):
        pte_writer.write(target, add_program(), header=0)
    assert [path.name for path in tmp_path.iterdir()] == ["m.pte"]
    assert plain(pte.load(target)) == plain(add_program())
