"""webgpu-bench op --of: a model's own linears, by shape and route, against the nearer limit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from webgpu_run.formats import pte
from webgpu_run.gpu.device import Device
from webgpu_run.gpu.roofline import Roofline, measure_again

from helpers.command import HERE, Result, execute

FIXTURES = HERE / "fixtures"


def op(*args: str | Path) -> Result:
    return execute(sys.executable, "-m", "webgpu_run.cli.bench", "op", *args)


def rows_of(*args: str | Path) -> list[dict[str, Any]]:
    result = op(*args, "-r", "2", "-o", "jsonl")
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def weights(name: str) -> list[tuple[int, int]]:
    """N and K of every 4-bit linear, from the file's own graph, which nothing has fused."""
    graph = pte.load(FIXTURES / f"{name}.pte").method().delegates[0].graph
    assert graph is not None
    calls = [call for call in graph.chain if call.name == "et_vk.linear_q4gsw.default"]
    dims = [graph.values[call.args[1]].dims for call in calls]  # type: ignore[union-attr]
    return [(n, 2 * half) for n, half in dims]


def test_every_linear_of_the_model_has_its_rows() -> None:
    found = weights("tiny_qwen25")
    ids, dim = found[-1]
    layers = len(found) // 7
    q, k, v, o, gate, up, down = found[:7]
    want = {(dim, q[0] + k[0] + v[0]): layers, o[::-1]: layers, (dim, gate[0] + up[0]): layers, down[::-1]: layers}
    rows = rows_of("--of", FIXTURES / "tiny_qwen25.pte", "-p", "1,5")
    got = {(row["m"], row["k"], row["n"]): row["count"] for row in rows}
    # logits of the last token only
    assert got == {(m, *shape): count for m in (1, 5) for shape, count in want.items()} | {(1, dim, ids): 1}
    for row in rows:
        m, k_, n = row["m"], row["k"], row["n"]
        assert row["route"].startswith("gemv" if m == 1 else "gemm")
        assert row["flops"] == 2 * m * k_ * n
        assert row["bytes"] >= n * k_ // 2 + n * k_ // 32 * 4 + 4 * m * (k_ + n)
        assert len(row["samples"]) == (4 if n == ids else 2)
        limit = row["limit"]
        amount = row["bytes"] if limit["what"] == "memory" else row["flops"]
        assert limit["least_us"] == pytest.approx(amount / limit["rate"] / 1e3, rel=1e-3)
        assert row["roofline_share"] == pytest.approx(limit["least_us"] / row["median"], rel=1e-3)


@pytest.mark.parametrize("name", ["tiny_mixed", "tiny_static", "tiny_8da4w", "tiny_fp32"])
def test_other_kinds_of_models(name: str) -> None:
    rows = rows_of("--of", FIXTURES / f"{name}.pte", "--no-roofline")
    assert rows
    assert all(row["median"] > 0 and row["limit"] is None for row in rows)


def test_usage() -> None:
    assert op().code == 2
    assert op("linear_q4gsw", "--of", FIXTURES / "tiny_dyn.pte").code == 2
    assert op("sigmoid", "-p", "4").code == 2
    result = op("--of", FIXTURES / "tiny_dyn.pte", "-p", "4096")
    assert result.code == 2
    assert "at most 127" in result.err


def roof(**changes: Any) -> Roofline:
    reads = {"storage vec4": {1 << 20: 4.0, 8 << 20: 3.0}, "storage texture": {1 << 20: 9.0, 8 << 20: 5.0}}
    given: dict[str, Any] = {
        "reads": reads, "copy": {1 << 20: 2.0, 8 << 20: 6.0}, "uniform": 1.0, "f32": 10.0, "f16": None,
        "dispatch_us": 1.0, "encode_us": 1.0, "submit_us": 1.0, "readback_us": 1.0,
    }  # fmt: skip
    return Roofline(**{**given, **changes})


def test_the_limit_is_the_fastest_way_and_is_named() -> None:
    assert roof().memory(1000) == (9.0, "storage texture, 1 MiB")
    assert roof().memory(2 << 20) == (6.0, "copy, 8 MiB")  # 1 MiB says nothing of more
    assert roof().memory(1 << 40) == (6.0, "copy, 8 MiB")
    assert roof().ideal_ns([(90, 1), (9, 500)], 1000) == 10 + 50


def test_of_two_measurements_each_figure_is_the_better_one() -> None:
    both = roof(f32=20.0, submit_us=2.0).or_better(roof(copy={1 << 20: 7.0, 8 << 20: 1.0}, dispatch_us=0.5))
    assert both == roof(f32=20.0, copy={1 << 20: 7.0, 8 << 20: 6.0}, dispatch_us=0.5)


@pytest.mark.parametrize("way", ["copy", "storage vec4", "texture rgba32uint"])
def test_the_limit_is_measured_again_and_never_falls(way: str, device: Device) -> None:
    """Only the limits of the working set: its fastest way to read, at its size, and arithmetic."""
    rates = dict.fromkeys((1 << 20, 8 << 20), 1e-6)
    ways = {name: dict(rates) for name in ("copy", "storage vec4", "texture rgba32uint")}
    ways[way][8 << 20] = 2e-6
    low = roof(copy=ways["copy"], reads={n: r for n, r in ways.items() if n != "copy"}, f32=1e-6)
    again = measure_again(device, low, 2 << 20)
    assert again.f32 > 1e-3
    assert again.memory(2 << 20)[1] == f"{way}, 8 MiB"
    assert again.memory(2 << 20)[0] > 1e-3
    high = roof(copy=rates, reads={"storage vec4": {1 << 20: 1e9, 8 << 20: 1e9}}, f32=1e9)
    assert measure_again(device, high, 2 << 20) == high
