"""KV caches in half precision: half the memory, nearly the same logits, refused where there is no kernel for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import with_limits

from webgpu_run.device import Device
from webgpu_run.errors import UnsupportedError
from webgpu_run.model import Model, load
from webgpu_run.op import PLAIN, Array

FIXTURES = Path(__file__).parent / "fixtures"


def calls(model: Model) -> list[Array]:
    tokens = np.random.default_rng(6).integers(0, 200, (1, 27))
    plan = ((17, 0), (1, 17), (9, 18), (1, 27))
    return [model.run([tokens[:, :n], np.array([pos])])[0] for n, pos in plan]


def caches(model: Model) -> int:
    return sum(int(np.prod(i.texture.size)) * (8 if "16" in i.texture.format else 16) for i in images(model))


def images(model: Model) -> list:  # type: ignore[type-arg]
    return [i for runner in model.runners for i in runner.executor.resident.images]


@pytest.mark.parametrize("name", ["tiny_dyn", "tiny_qwen25", "tiny_tied"])
def test_half_the_bytes_nearly_the_logits(name: str, device: Device) -> None:
    if not device.limits.profile.image_cache:
        pytest.skip("caches are buffers on this adapter")
    full, half = (load(FIXTURES / f"{name}.pte", device=device, kv=kv) for kv in ("f32", "f16"))
    assert caches(half) * 2 == caches(full) > 0
    assert device.limits.kv == "f32"  # the device that was given is as it was
    errors = [np.abs(a - b).max() / np.ptp(a) for a, b in zip(calls(full), calls(half), strict=True)]
    assert 0 < max(errors) <= 2e-3
    assert np.argmax(calls(full)[-1]) == np.argmax(calls(half)[-1])


def test_reset_empties_half_caches(device: Device) -> None:
    if not device.limits.profile.image_cache:
        pytest.skip("caches are buffers on this adapter")
    model = load(FIXTURES / "tiny_dyn.pte", device=device, kv="f16")
    late = [np.array([[5]]), np.array([7])]
    first = model.run(late)[0].tobytes()
    calls(model)
    assert model.run(late)[0].tobytes() != first
    model.reset()
    assert model.run(late)[0].tobytes() == first


@pytest.mark.parametrize("fuse", [True, False])
def test_refused_without_texture_caches(fuse: bool, device: Device) -> None:
    with pytest.raises(UnsupportedError, match="--kv f32"):
        load(FIXTURES / "tiny_dyn.pte", device=with_limits(device, profile=PLAIN), fuse=fuse, kv="f16")
