"""`--inspect` as a user runs it: on every fixture, in every view, and on a file too big to read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from webgpu_run.debug.inspect import inspect
from webgpu_run.formats import pte, pte_writer
from webgpu_run.formats.pte import Program
from webgpu_run.formats.source import FileSource, Span
from webgpu_run.formats.vkgraph import Constant, OperatorCall, VkGraph, VkTensor
from webgpu_run.formats.vkgraph_writer import program_of
from webgpu_run.gpu.device import Device
from webgpu_run.graph import budget
from webgpu_run.ops.spec import Resource
from webgpu_run.runtime.model import Model

from helpers.command import webgpu_run
from helpers.samples import FIXTURES, add_program, every_kind

VIEWS = ("summary", "ops", "tensors", "values", "size")


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_ops_are_those_the_exporter_wrote(path: Path) -> None:
    wrote = json.loads(path.with_suffix(".ops.json").read_text())
    result = webgpu_run(path, "--inspect", "json")
    assert (result.code, result.err) == (0, "")
    report = json.loads(result.out)
    forward = next(method for method in report["methods"] if method["name"] == "forward")
    assert [{op["name"]: op["count"] for op in delegate["ops"]} for delegate in forward["delegates"]] == wrote[
        "delegates"
    ]
    assert {op["name"]: op["count"] for op in forward["kernels"]} == wrote["kernels"]
    assert report["metadata"] == wrote["metadata"]
    assert sum(report["sizes"].values()) == report["file_size"] == path.stat().st_size


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_summary_names_every_op(path: Path) -> None:
    result = webgpu_run(path, "--inspect")
    assert (result.code, result.err) == (0, "")
    wrote = json.loads(path.with_suffix(".ops.json").read_text())
    totals: Counter[str] = Counter()
    for delegate in wrote["delegates"]:
        totals.update(delegate)
    for name, count in totals.items():
        assert any(line.split()[1:3] == [name, str(count)] for line in result.out.splitlines()), name
    for name in (*wrote["kernels"], *wrote["metadata"], "128 MiB", "GPU memory"):
        assert name in result.out


@pytest.mark.parametrize("view", VIEWS)
def test_views(view: str, tmp_path: Path) -> None:
    path = tmp_path / "all.pte"
    pte_writer.write(path, every_kind())
    result = webgpu_run(path, "--inspect", view, env={"COLUMNS": "200"})
    assert (result.code, result.err) == (0, "")
    word = {
        "summary": "OtherBackend",
        "ops": "made.up_too",
        "tensors": "PACKED_INT8_4W",
        "values": "naïve",
        "size": "0x0",
    }
    assert word[view] in result.out
    assert "\x1b" not in result.out


def test_external_weights_are_found_beside_the_model(tmp_path: Path) -> None:
    program = add_program()
    path = tmp_path / "add.pte"
    pte_writer.write(path, Program(0, program.methods))
    alone = webgpu_run(path, "--inspect")
    assert alone.code == 3
    assert "no data named" in alone.err
    assert alone.err.endswith("hint: put the .ptd files beside the model, or name them: --data\n")
    apart = tmp_path / "elsewhere"
    apart.mkdir()
    weights = apart / "weights.ptd"
    weights.write_bytes(pte_writer.ptd({key: span.read() for key, span in program.named.items()}))
    assert webgpu_run(path, "--inspect", "--data", weights).code == 0
    (apart / "link.pte").symlink_to(path)
    assert webgpu_run(apart / "link.pte", "--inspect").code == 0
    weights.rename(tmp_path / "weights.ptd")
    assert webgpu_run(path, "--inspect").code == 0
    assert webgpu_run(apart / "link.pte", "--inspect").code == 0


def test_markup_in_a_file_is_only_text(tmp_path: Path) -> None:
    path = tmp_path / "markup.pte"
    graph = VkGraph("0", (OperatorCall(0, "[red]op[/]", (0, 1)),), (VkTensor("bool", (1,)),) * 2, (0,), (1,), ())
    pte_writer.write(path, program_of(graph, metadata={"[bold]key": "[/nothing]", "bell": "\x1b[31m\x07"}))
    for view in ("summary", "ops"):
        result = webgpu_run(path, "--inspect", view)
        assert (result.code, result.err) == (0, "")
        assert "[red]op[/]" in result.out
        assert "\x1b" not in result.out
        assert "\x07" not in result.out


@pytest.mark.parametrize("view", VIEWS)
def test_in_a_pipe_no_line_is_folded_or_padded(view: str) -> None:
    result = webgpu_run(FIXTURES[0].with_name("tiny_dyn.pte"), "--inspect", view)
    lines = result.out.splitlines()
    assert all(line == line.rstrip() for line in lines)
    if view == "ops":
        assert max(map(len, lines)) > 150
        assert not [line for line in lines if line.startswith(" " * 12)]  # what folded cells would have before them


def test_a_narrow_terminal(tmp_path: Path) -> None:
    path = tmp_path / "add.pte"
    pte_writer.write(path, add_program())
    for view in VIEWS:
        assert webgpu_run(path, "--inspect", view, env={"COLUMNS": "20", "TERM": "dumb", "LANG": "C"}).code == 0


def test_json_before_or_after_the_model(tmp_path: Path) -> None:
    path = tmp_path / "add.pte"
    pte_writer.write(path, add_program())
    env = {"XDG_CACHE_HOME": str(tmp_path)}  # no adapter was measured, so nothing depends on the memory that is free
    texts = {webgpu_run(*args, env=env).out for args in ((path, "--inspect", "json"), ("--inspect=json", path))}
    report = json.loads(texts.pop())
    assert not texts
    assert report["metadata"] == {"get_n": 3, "get_ids": [1, 2]}
    method = report["methods"][0]
    assert method["problem"] is None
    delegate = method["delegates"][0]
    assert delegate["ops"] == [{"name": "aten.add.Tensor", "count": 2, "supported": True}]
    rooms = 3 * (128 + budget.SLACK)
    assert delegate["memory"] == {"weights": 128, "caches": 0, "activations": rooms, "total": 128 + rooms}
    assert delegate["largest"]["nbytes"] == 128


@pytest.mark.parametrize("name", ["tiny_dyn", "tiny_tied", "tiny_fp32", "tiny_8da4w"])
def test_memory_is_what_is_allocated(name: str, device: Device) -> None:
    """But for the parameters and what is read back; a tied table and empty caches are not counted twice."""
    program = pte.load(FIXTURES[0].with_name(f"{name}.pte"))
    (method,) = inspect(program, device.limits).methods
    (delegate,) = method.delegates
    assert delegate.memory
    before = device.allocated
    model = Model(program, device)
    model.run([np.zeros((1, 1), np.int64), np.zeros(1, np.int64)])
    parameters = model.runners[0].executor.arena.data.nbytes
    assert delegate.memory.total == pytest.approx(device.allocated - before - parameters, rel=0.04)
    assert delegate.memory.caches == sum(r.nbytes for r in caches(model))


def caches(model: Model) -> Iterator[Resource]:
    for node in model.runners[0].graph.nodes:
        if node.op.resources:
            owned = node.op.resources(node.args_at({}), model.device.limits)
            yield from (r for r in owned.values() if r.state)


def test_memory_of_what_cannot_run_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "all.pte"
    pte_writer.write(path, every_kind())
    report = json.loads(webgpu_run(path, "--inspect", "json").out)
    assert [d["memory"] for m in report["methods"] for d in m["delegates"]] == [None, None]
    assert "GPU memory" not in webgpu_run(path, "--inspect").out


@dataclass(frozen=True)
class Nothing:
    """Any number of bytes that a test never reads."""

    size: int
    name: str = "nothing"

    def read(self, offset: int, nbytes: int) -> bytes:
        raise AssertionError("weights were read")


def big(nbytes: int) -> Program:
    """A program of one add whose constant has this many bytes."""
    dims = (nbytes // 4096, 1024)
    values = (VkTensor("float32", dims), VkTensor("float32", dims, constant_id=0), 1, VkTensor("float32", dims))
    call = OperatorCall(0, "aten.add.Tensor", (0, 1, 2, 3))
    graph = VkGraph("0", (call,), values, (0,), (3,), (Constant(nbytes, key="weights"),))
    program = program_of(graph, [b""])
    return Program(0, program.methods, named={"weights": Span(Nothing(nbytes), 0, nbytes)})


def write_sparse(path: Path, program: Program) -> None:
    """The file with holes where its weights would be."""
    layout = pte_writer.layout(program)
    with path.open("wb") as file:
        for offset, span in layout.parts:
            if not isinstance(span.source, Nothing):
                file.seek(offset)
                file.write(span.read())
        file.truncate(layout.size)


def test_opening_does_not_grow_with_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counted: list[int] = []
    real = FileSource.read
    monkeypatch.setattr(FileSource, "read", lambda self, at, n: (counted.append(n), real(self, at, n))[1])
    results, reads = [], []
    for nbytes in (4096, 700_000_000 // 4096 * 4096):
        path = tmp_path / f"{nbytes}.pte"
        write_sparse(path, big(nbytes))
        counted.clear()
        program = pte.load(path)
        reads.append(sum(counted))
        assert program.methods[0].delegates[0].constant(0).nbytes == nbytes
        results.append(webgpu_run(path, "--inspect", "json"))
        assert results[-1].code == 0
    small, large = results
    with capsys.disabled():
        told = ", ".join(
            f"{r.seconds:.2f} s, {r.peak / 1e6:.0f} MB, {n} bytes read" for r, n in zip(results, reads, strict=True)
        )
        print(f"\nopening 4 kB and 700 MB of weights: {told}")
    assert json.loads(large.out)["file_size"] > 699_000_000
    assert reads[1] < reads[0] + 256
    assert large.peak < small.peak + 4_000_000
    assert large.seconds < small.seconds * 2 + 1


def parameters(dim: int, hidden: int, kv: int, vocab: int, *, tables: int = 2) -> int:
    """Of two layers with three linears in the feed-forward part, and norms."""
    layer = 2 * dim * dim + 2 * kv * dim + 3 * dim * hidden + 2 * dim
    return 2 * layer + dim + tables * vocab * dim


@pytest.mark.parametrize(
    ("name", "count", "weights", "attention", "embedding"),
    [
        ("tiny_dyn", parameters(128, 256, 64, 512), {"4-bit, group 32": 16}, (2, 4, 2, 32, 128), (128, 512)),
        ("tiny_tied", parameters(128, 192, 64, 332, tables=1), {"4-bit, group 64": 15}, (2, 2, 1, 64, 128), (128, 332)),
        (
            "tiny_8da4w",
            parameters(96, 224, 32, 508),
            {"4-bit, group 32": 1, "4-bit, group 32, 8-bit activations": 15},
            (2, 6, 2, 16, 128),
            (96, 508),
        ),
    ],
)
def test_facts(
    name: str, count: int, weights: dict[str, int], attention: tuple[int, ...], embedding: tuple[int, int]
) -> None:
    """Parameters are counted as elements, not bytes; weights that the file has once are counted once."""
    path = FIXTURES[0].with_name(f"{name}.pte")
    found = json.loads(webgpu_run(path, "--inspect", "json").out)["methods"][0]["facts"]
    assert found["parameters"] == count
    assert found["weights"] == weights
    assert tuple(found["attention"].values()) == attention
    assert (found["width"], found["vocabulary"]) == embedding
    shown = webgpu_run(path, "--inspect").out
    assert f"parameters  {count:,}\n" in shown
    assert f"heads {attention[1]}, kv heads {attention[2]}, head dim {attention[3]}" in shown


def test_computed_weights_are_counted_one_by_one() -> None:
    """Weights that are computed at load, here from 8-bit ones, all begin at byte 0 of their own memory."""
    path = FIXTURES[0].parent / "zoo" / "linears_q8_dynamic.pte"
    found = json.loads(webgpu_run(path, "--inspect", "json").out)["methods"][0]["facts"]
    layers = ((64, 48), (48, 32), (32, 8))
    assert found["parameters"] == sum(inputs * outputs + outputs for inputs, outputs in layers)


@pytest.mark.parametrize(
    ("name", "weights", "attention"),
    [
        ("vit", {"float32": 8}, {"layers": 1, "heads": 4, "head_dim": 8}),
        ("linears_8da8w", {"8-bit": 3}, {}),
    ],
)
def test_facts_without_special_ops(name: str, weights: dict[str, int], attention: dict[str, int]) -> None:
    """Heads from the softmax, their width from the product after it; 8-bit weights that CPU kernels expand."""
    path = FIXTURES[0].parent / "zoo" / f"{name}.pte"
    found = json.loads(webgpu_run(path, "--inspect", "json").out)["methods"][0]["facts"]
    assert found["weights"] == weights
    assert {k: v for k, v in (found["attention"] or {}).items() if v is not None} == attention


def test_many_steps_are_counted() -> None:
    """A method of many steps is no list of all of them."""
    shown = webgpu_run(FIXTURES[0].parent / "zoo" / "linears_8da8w.pte", "--inspect").out
    (line,) = (line for line in shown.splitlines() if line.strip().startswith("runs "))
    assert "VulkanBackend ×" in line
    assert len(line) < 600
