"""Fused and unfused models on the adapter: the same logits, for every dynamic fixture and every kind of adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webgpu_run.gpu.device import Device
from webgpu_run.ops.limits import GPU, PLAIN, Profile
from webgpu_run.runtime.open import load
from webgpu_run.shapes import Array

from helpers.fusing import attention
from helpers.graphs import run, with_limits

FIXTURES = Path(__file__).parent / "fixtures"
STATIC = ("tiny_static", "tiny_nosdpa")
DYNAMIC = tuple(sorted(p.stem for p in FIXTURES.glob("tiny_*.pte") if p.stem not in STATIC))
CORE = {"uniform_align": 256, "max_workgroup_bytes": 16384, "max_invocations": 256, "max_texture": 8192}
_plain: dict[tuple[str, bool], dict[tuple[int, int], Array]] = {}


def calls(name: str, device: Device, *, fused: bool, most: int) -> dict[tuple[int, int], Array]:
    """Logits of calls of 1, 9, the largest and 5 more tokens, then one, as (length, position)."""
    data = sorted(FIXTURES.glob("*.ptd")) if name == "tiny_ptd" else ()
    model = load(FIXTURES / f"{name}.pte", data=data, device=device, fuse=fused)
    longest = min(model.inputs[0].dims[1], most)
    tokens = np.random.default_rng(1).integers(0, 200, (1, longest))
    plan = ((1, 0), (longest, 0), (9, 0), (5, 9), (1, 14))
    return {(n, pos): model.run([tokens[:, :n], np.array([pos])])[0] for n, pos in plan}


def agree(name: str, device: Device, most: int = 10**6) -> None:
    if (name, most < 10**6) not in _plain:
        _plain[name, most < 10**6] = calls(name, device, fused=False, most=most)
    want, got = _plain[name, most < 10**6], calls(name, device, fused=True, most=most)
    for key, logits in want.items():
        worst = float(np.abs(got[key] - logits).max() / np.ptp(logits))
        # where activations are rounded to 8 bits, the last bit of a norm can turn a rounding the other way
        limit = 2e-2 if name in ("tiny_8da4w", "tiny_tutorial", "tiny_mixed") else 1e-5
        assert worst <= limit, f"{key}: fused logits are off by {worst:.1e} of the range"


@pytest.mark.parametrize("name", DYNAMIC)
def test_fused_is_unfused(name: str, device: Device) -> None:
    agree(name, device)


@pytest.mark.parametrize(
    ("name", "profile", "limits"),
    [
        ("tiny_short", PLAIN, {}),
        ("tiny_qwen25", PLAIN, {}),
        ("tiny_dyn", PLAIN, CORE),
        ("tiny_short", GPU, {}),
        ("tiny_tied", GPU, CORE),
    ],
    ids=lambda v: getattr(v, "name", "core" if v else "own") if not isinstance(v, str) else v,
)
def test_fused_for_other_adapters(name: str, profile: Profile, limits: dict[str, int], device: Device) -> None:
    """The routes that other adapters would get, some with no more than the limits that WebGPU promises."""
    agree(name, with_limits(device, profile=profile, **limits), most=31)


@pytest.mark.parametrize("form", [{"keep": "rq"}, {"start": "zero"}], ids=str)
def test_half_fused_attention(form: dict[str, Any], device: Device) -> None:
    """Forms that keep a part of what fusion could take: the numbers of the graph as written."""
    rng = np.random.default_rng(2)
    inputs = [rng.standard_normal((1, 5, n, 8)).astype(np.float32) for n in (4, 2, 2)]
    given = [*inputs, np.array([0, 0], np.int32)]
    outs = [run(attention(**form).runner(device, fuse=fused), given) for fused in (False, True)]
    for a, b in zip(*outs, strict=True):
        assert np.abs(a - b).max() <= 1e-5 * np.ptp(a)
