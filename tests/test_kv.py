"""KV caches in half precision: half the memory, nearly the same logits, by every kind of kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webgpu_run.errors import UnsupportedError
from webgpu_run.gpu.device import Device
from webgpu_run.ops import attention, sdpa
from webgpu_run.ops.attention import _case
from webgpu_run.ops.limits import GPU, PLAIN
from webgpu_run.ops.spec import Case, load_all
from webgpu_run.runtime.model import Model
from webgpu_run.runtime.open import load
from webgpu_run.shapes import Array

from helpers import opcheck
from helpers.graphs import args_of, run, with_limits

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = ("tiny_dyn", "tiny_qwen25", "tiny_qwen3", "tiny_tied", "tiny_8da4w", "tiny_static")
KINDS: dict[str, dict[str, Any]] = {
    "own": {},
    "plain": {"profile": PLAIN, "subgroups": False},
    "gpu": {"profile": GPU},
    "gpu-no-subgroups": {"profile": GPU, "subgroups": False},
}


def calls(model: Model) -> list[Array]:
    tokens = np.random.default_rng(6).integers(0, 200, (1, 27))
    one_by_one = model.inputs[0].dynamism == "static"
    plan = [(1, pos) for pos in range(5)] if one_by_one else [(17, 0), (1, 17), (9, 18), (1, 27)]
    return [model.run([tokens[:, :n], np.array([pos])])[0] for n, pos in plan]


def check(name: str, device: Device) -> None:
    full, half = (load(FIXTURES / f"{name}.pte", device=device, kv=kv) for kv in ("f32", "f16"))
    assert half.cache_nbytes * 2 == full.cache_nbytes > 0
    assert device.limits.kv == "f32"  # the device that was given is as it was
    wanted, got = calls(full), calls(half)
    errors = [np.abs(a - b).max() / np.ptp(a) for a, b in zip(wanted, got, strict=True)]
    # where activations are rounded to 8 bits, a last bit can turn a rounding the other way
    assert 0 < max(errors) <= (2e-2 if name == "tiny_8da4w" else 2e-3)
    assert np.argmax(wanted[-1]) == np.argmax(got[-1])


@pytest.mark.parametrize("name", NAMES)
def test_half_the_bytes_nearly_the_logits(name: str, device: Device) -> None:
    check(name, device)


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "own"])
@pytest.mark.parametrize("name", ["tiny_dyn", "tiny_qwen25", "tiny_8da4w"])
def test_on_other_adapters(name: str, kind: str, device: Device) -> None:
    check(name, with_limits(device, **KINDS[kind]))


CASES = (
    _case(13, 40, 6, 2, 16, 27, 1, 5, halves=True),
    _case(3, 173, 9, 3, 64, 111, 1),
    _case(5, 17, 4, 4, 6, 3, 1),
    _case(43, 300, 9, 3, 64, 250, 12),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES, ids=["halves", "deep", "odd", "tiles"])
def test_only_the_cache_is_rounded(case: Case, kind: str, device: Device) -> None:
    """What attention gives is what float64 gives for keys and values rounded to halves, at every live shape."""
    op, device = load_all()["wr.attention"], with_limits(device, kv="f16", **KINDS[kind])
    runner = (one := opcheck.build(op, case)).builder.runner(device)
    assert op.remember
    assert op.reference
    for live in opcheck.lives(case):
        data = opcheck.arrays(op, case, live)
        args = args_of(op, case, live)
        runner.executor.reset()
        (got,) = run(runner, one.inputs(data))
        held = [c.astype(np.float32).astype(np.float16).astype(np.float64) for c in op.remember(args, data)]
        pos, rows = int(case.attrs["pos"]), args["xq"][1]
        q = attention._turned(args, data, pos)[0]
        wanted = sdpa.attention(q[0], held[0][0], held[1][0], pos, q.shape[3] ** -0.5)[None]
        assert got.shape == (1, rows, *args["xq"][2:])
        assert np.abs(got - wanted).max() <= 2e-4 * np.abs(wanted).max()  # a half's last bit turns at times
        exact = op.reference(args, data)[0]
        assert np.abs(got - exact).max() > 1e-6 * np.abs(exact).max()


def test_reset_empties_half_caches(device: Device) -> None:
    for kind in ("own", "gpu"):
        model = load(FIXTURES / "tiny_dyn.pte", device=with_limits(device, **KINDS[kind]), kv="f16")
        late = [np.array([[5]]), np.array([7])]
        first = model.run(late)[0].tobytes()
        calls(model)
        assert model.run(late)[0].tobytes() != first
        model.reset()
        assert model.run(late)[0].tobytes() == first


@pytest.mark.parametrize(("name", "fuse"), [("tiny_dyn", False), ("tiny_nosdpa", True)])
def test_refused_where_the_file_holds_the_cache(name: str, fuse: bool, device: Device) -> None:
    with pytest.raises(UnsupportedError, match="--kv f32"):
        load(FIXTURES / f"{name}.pte", device=device, fuse=fuse, kv="f16")


def test_auto_is_half_on_a_gpu_with_half_floats(device: Device) -> None:
    gpu = {"profile": GPU, "software": False}
    for changes, fuse, kv in (
        ({**gpu, "f16": True}, True, "f16"),
        ({**gpu, "f16": True}, False, "f32"),  # the file holds the cache
        ({**gpu, "f16": False}, True, "f32"),
        ({"software": True, "f16": True}, True, "f32"),
    ):
        model = load(FIXTURES / "tiny_dyn.pte", device=with_limits(device, **changes), fuse=fuse, kv="auto")
        assert model.device.limits.kv == kv
