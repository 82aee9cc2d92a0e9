"""Will it fit? Memory, limits and speed that `--inspect` predicts for adapters that were measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from webgpu_run.debug.fit import fits
from webgpu_run.formats import pte
from webgpu_run.gpu.device import Device
from webgpu_run.gpu.known import KnownAdapter, known_adapters, remember
from webgpu_run.gpu.roofline import Roofline
from webgpu_run.runtime.model import Model

from helpers.command import HERE, webgpu_run

MODEL = HERE / "fixtures" / "tiny_dyn.pte"
ROOF = Roofline({"texture": {1 << 20: 8.0}}, {1 << 20: 4.0}, 10.0, 20.0, None, 5.0, 1.0, 50.0, 100.0)


def adapter(device: Device, roof: Roofline = ROOF) -> KnownAdapter:
    return KnownAdapter(device.adapter.name, device.adapter.backend, "today", device.limits, device.max_buffer, roof)


def test_adapters_are_remembered_at_their_best(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert known_adapters() == []
    remember(device, ROOF)
    (known,) = known_adapters()
    assert (known.name, known.limits, known.roofline) == (device.adapter.name, device.limits, ROOF)
    assert known.max_buffer == device.max_buffer
    remember(device, replace(ROOF, f32=10.0, dispatch_us=3.0))  # other programs made the arithmetic slower
    (known,) = known_adapters()
    assert known.roofline == replace(ROOF, dispatch_us=3.0)
    file = tmp_path / "webgpu-run" / "adapters.json"
    file.write_text(file.read_text().replace('"max_buffer"', '"max_bluffer"'))
    assert known_adapters() == []


def test_memory_is_what_a_load_allocates(device: Device) -> None:
    program = pte.load(MODEL)
    (fit,) = fits(program.method(), [adapter(device)], "f32")
    before = device.allocated
    model = Model(program, device)
    assert fit.nbytes == pytest.approx(device.allocated - before, rel=0.15)
    assert fit.exceeded == ()
    assert model.method.name == "forward"
    (half,) = fits(program.method(), [adapter(device)], "f16")
    assert half.nbytes < fit.nbytes


def test_speed_follows_from_the_roofline(device: Device) -> None:
    method = pte.load(MODEL).method()
    (fit,) = fits(method, [adapter(device)], "f32")
    decode, prefill = fit.speeds
    assert (decode.rows, prefill.rows) == (1, 64)
    assert prefill.flops > 30 * decode.flops
    for speed in fit.speeds:  # every dispatch is bound by one of both, so the time is between these
        costs = speed.dispatches * (5000 + 1000) + 100_000  # each dispatch and its encoding, and one readback
        least = max(speed.nbytes / 8, speed.flops / 20) + costs
        assert least <= speed.ms * 1e6 <= speed.nbytes / 8 + speed.flops / 20 + costs
        assert speed.per_second == pytest.approx(speed.rows / speed.ms * 1e3)
    slow = replace(ROOF, reads={"texture": {1 << 20: 0.8}}, copy={1 << 20: 0.4}, f32=2.0)
    slow = replace(slow, dispatch_us=50.0, encode_us=10.0, readback_us=1000.0)
    (slower,) = fits(method, [adapter(device, slow)], "f32")
    assert slower.speeds[0].ms == pytest.approx(10 * decode.ms)


def test_every_exceeded_limit_is_named(device: Device) -> None:
    small = adapter(device)
    small = replace(small, limits=replace(small.limits, max_binding=4096), max_buffer=8192)
    (fit,) = fits(pte.load(MODEL).method(), [small], "f32")
    assert fit.speeds == ()
    assert any("the adapter binds at most 4,096" in text for text in fit.exceeded)
    assert any("the adapter's largest buffer is 8,192" in text for text in fit.exceeded)


def test_inspect_shows_it(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    assert "webgpu-bench roofline measures" in webgpu_run(MODEL, "--inspect", env=env).out
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    remember(device, ROOF)
    text = webgpu_run(MODEL, "--inspect", env=env).out
    assert " fits · " in text
    assert text.count(" tokens/s at best") == 2
    report = json.loads(webgpu_run(MODEL, "--inspect", "json", env=env).out)
    (fit,) = report["methods"][0]["fit"]
    assert (report["schema"], fit["exceeded"], len(fit["speeds"])) == (2, [], 2)
