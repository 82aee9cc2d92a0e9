"""Files damaged at random or everywhere: each is read, or refused with our own error; nothing else escapes or hangs."""

from __future__ import annotations

import dataclasses
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webgpu_run.debug import inspect as inspection
from webgpu_run.errors import FormatError, RunError
from webgpu_run.formats import pte, pte_writer
from webgpu_run.formats.vkgraph import (
    BoolList,
    Constant,
    DoubleList,
    IntList,
    OperatorCall,
    SymInt,
    Value,
    ValueList,
    VkGraph,
    VkTensor,
)
from webgpu_run.formats.vkgraph_writer import program_of
from webgpu_run.gpu.device import Device

from helpers import file_mutants
from helpers.samples import FIXTURES, WEIGHT, add_program, every_kind, plain

SLOW = 1.0  # seconds that a single file may take
GROWTH = 64_000_000
DAMAGED = sorted((Path(__file__).parent / "fixtures" / "damaged").glob("*.pte"))
TWO = [path for path in FIXTURES if path.stem in ("tiny_dyn", "tiny_short")]


def prefixes(size: int) -> Iterator[int]:
    yield from range(min(size, 4096))
    yield from range(4096, size, 64)


@pytest.mark.parametrize("path", TWO, ids=lambda path: path.stem)
def test_every_prefix_is_refused(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = path.read_bytes()
    count = 0
    for size in prefixes(len(data)):
        with pytest.raises(FormatError):
            pte.loads(data[:size])
        count += 1
    assert count > 4096
    with capsys.disabled():
        print(f"\n{path.name}: {count} prefixes, all refused as a bad file")


def flips(byte: int) -> set[int]:
    return {byte ^ 1 << bit for bit in range(8)} | {0, 0xFF, byte + 1 & 0xFF, byte - 1 & 0xFF} - {byte}


def regions(data: bytes) -> list[int]:
    """Every byte of a file but its weights: header, program, delegate headers and graphs."""
    program = pte.loads(data)
    spans = [(0, program.program_size)]
    spans += [(d.blob.offset, d.blob.offset + d.blob.nbytes) for m in program.methods for d in m.delegates]
    return sorted({at for start, end in spans for at in range(start, min(end, len(data)))})


def all_flips(data: bytes) -> Iterator[tuple[int, int]]:
    return ((at, value) for at in regions(data) for value in sorted(flips(data[at])))


def some_flips(per_byte: float) -> Callable[[bytes], Iterator[tuple[int, int]]]:
    def pick(data: bytes) -> Iterator[tuple[int, int]]:
        chance = random.Random(1)
        for at in regions(data):
            options = sorted(flips(data[at]))
            for _ in range(int(per_byte) + (chance.random() < per_byte % 1)):
                yield at, chance.choice(options)

    return pick


CORRUPTIONS: list[tuple[str, Callable[[], bytes], Callable[[bytes], Iterator[tuple[int, int]]], int]] = [
    ("add", lambda: pte_writer.dumps(add_program()), all_flips, 18_000),
    ("every kind", lambda: pte_writer.dumps(every_kind(), inline=True), some_flips(5.5), 16_000),
    *((path.stem, path.read_bytes, some_flips(0.35), 7_000) for path in TWO),
    ("tiny_nosdpa", next(path for path in FIXTURES if path.stem == "tiny_nosdpa").read_bytes, some_flips(0.06), 2_500),
]

PARTS = 10
INSPECTED = ("add",)  # what can be read is also bound to ops, where that is quick


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("name", "make", "damage", "least"), [pytest.param(*row, id=row[0]) for row in CORRUPTIONS])
def test_single_byte_corruptions(
    name: str,
    make: Callable[[], bytes],
    damage: Callable[[bytes], Iterator[tuple[int, int]]],
    least: int,
    part: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = bytearray(make())
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    before = psutil.Process().memory_info().rss
    for at, value in itertools.islice(damage(bytes(data)), part, None, PARTS):
        kept, data[at] = data[at], value
        start = time.process_time()
        try:
            program = pte.loads(bytes(data))
            if name in INSPECTED:
                inspection.inspect(program)
            outcomes["read"] += 1
        except RunError as error:
            outcomes[type(error).__name__] += 1
        except BaseException as error:
            pytest.fail(f"byte {at:#x} = {value:#x}: {type(error).__name__}: {error}")
        slowest = max(slowest, time.process_time() - start)
        data[at] = kept
    grown = psutil.Process().memory_info().rss - before
    count = outcomes.total()
    with capsys.disabled():
        print(
            f"\n{name}, part {part}: {count} single-byte corruptions, {dict(outcomes)}, slowest {slowest * 1e3:.0f} ms"
        )
    assert count >= least // PARTS
    assert outcomes["FormatError"] > count / 10
    assert outcomes["read"] > count / 10
    assert slowest < SLOW
    assert grown < GROWTH


def test_corruptions_are_enough() -> None:
    assert sum(least for *_, least in CORRUPTIONS) >= 50_000


@pytest.mark.parametrize("path", DAMAGED, ids=lambda path: path.stem)
def test_files_that_once_escaped(path: Path) -> None:
    """Each made something other than our own error come out, or took seconds, when it was found."""
    for k in range(3):  # the profiles that are planned for
        start = time.process_time()
        file_mutants.judge(path.read_bytes(), k)
        assert time.process_time() - start < SLOW


@pytest.mark.parametrize("path", DAMAGED, ids=lambda path: path.stem)
def test_files_that_once_escaped_on_the_adapter(path: Path, device: Device) -> None:
    for fuse in (True, False):
        assert file_mutants.judge_run(path.read_bytes(), device, fuse=fuse) != "not read"


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(10))
def test_damaged_files(part: int) -> None:
    """A sample of what `tests/tools/fuzz_files.py` does: all its strategies, on all its small files."""
    samples = file_mutants.small_samples()
    assert len(samples) >= 6
    outcomes: Counter[str] = Counter()
    for k in range(480 * part, 480 * (part + 1)):
        strategy, sample, data = file_mutants.mutant(k, samples)
        start = time.process_time()
        try:
            outcomes[file_mutants.judge(data, k)] += 1
        except BaseException as error:
            pytest.fail(f"mutant {k}, {strategy} of {sample.name}: {type(error).__name__}: {error}")
        assert time.process_time() - start < SLOW
    assert outcomes["FormatError"] > 240
    assert outcomes["planned"] > 10


ids = st.integers(-2, 9)
dims = st.lists(st.sampled_from([0, 1, 2, 7, 2**16, 2**31 - 1, 2**31, 2**32 - 1]), max_size=9).map(tuple)
tensors = st.builds(
    VkTensor,
    dtype=st.sampled_from(["float32", "float16", "int8", "bool", "int64"]),
    dims=dims,
    constant_id=st.integers(-2, 3),
    mem_obj_id=st.sampled_from([-1, 0, 1, 8, 2**31 - 1]),
    staging_dtype=st.sampled_from([None, "float32"]),
)
good_tensors = st.builds(VkTensor, st.just("float32"), st.just((2, 3)), constant_id=st.integers(-1, 1))
i64 = st.integers(-(2**63), 2**63 - 1)
values: st.SearchStrategy[Value] = st.one_of(
    good_tensors,
    tensors,
    st.none(),
    st.booleans(),
    i64,
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.builds(SymInt, st.integers(-(2**31), 2**31 - 1)),
    st.builds(IntList, st.lists(i64, max_size=3).map(tuple)),
    st.builds(DoubleList, st.lists(st.floats(allow_nan=False), max_size=3).map(tuple)),
    st.builds(BoolList, st.lists(st.booleans(), max_size=3).map(tuple)),
    st.builds(ValueList, st.lists(ids, max_size=3).map(tuple)),
)
calls = st.builds(
    OperatorCall,
    st.integers(0, 9),
    st.sampled_from(["aten.add.Tensor", "et_vk.rms_norm.default", "sdpa_with_kv_cache.default", "nonsense"]),
    st.lists(ids, max_size=5).map(tuple),
)
graphs = st.builds(
    VkGraph,
    version=st.text(max_size=3),
    chain=st.lists(calls, max_size=4).map(tuple),
    values=st.lists(values, min_size=1, max_size=9).map(tuple),
    input_ids=st.lists(st.integers(0, 9), max_size=2).map(tuple),
    output_ids=st.lists(st.integers(0, 9), max_size=2).map(tuple),
    constants=st.lists(st.builds(Constant, st.integers(0, 128), st.integers(0, 64)), max_size=3).map(tuple),
)


@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs)
def test_any_graph_is_read_equal_or_refused(graph: VkGraph) -> None:
    outer = program_of(VkGraph("0", (), (), (), (), ()))
    method = outer.methods[0]
    constants = tuple(pte.Span.of(WEIGHT) for _ in graph.constants)
    delegate = dataclasses.replace(method.delegates[0], graph=graph, constants=constants)
    count = len(graph.input_ids) + len(graph.output_ids)
    chain = pte.Chain((), (), (pte.DelegateCall(0, (0,) * count),))
    method = dataclasses.replace(method, values=(None,), chains=(chain,), delegates=(delegate,))
    try:
        program = pte.loads(pte_writer.dumps(dataclasses.replace(outer, methods=(method,))))
        inspection.inspect(program)
    except RunError:
        return
    found = program.methods[0].delegates[0].graph
    tidy = tuple(
        dataclasses.replace(v, constant_id=max(v.constant_id, -1)) if isinstance(v, VkTensor) else v
        for v in graph.values
    )
    assert plain(found) == plain(dataclasses.replace(graph, values=tidy))
