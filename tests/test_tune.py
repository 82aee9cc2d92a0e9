"""Tuning: the choice from measured times, the cache on disk, and corrupt cache files."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from webgpu_run.errors import DeviceError
from webgpu_run.gpu import tune
from webgpu_run.gpu.device import Device
from webgpu_run.ops.limits import GPU, PLAIN, SOFTWARE, Limits
from webgpu_run.runtime.open import load

from helpers.graphs import with_limits

FIXTURE = Path(__file__).parent / "fixtures" / "tiny_static.pte"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of our own; the path of the file in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "webgpu-run" / "tune.json"


def software(device: Device) -> Device:
    made = with_limits(device, software=True, profile=SOFTWARE)
    made.tuned = tune.DEFAULT
    return made


def rounds(times: dict[str, list[float]]) -> dict[str, list[list[float]]]:
    """As if every round took the same."""
    return {name: [[ms] * 5 for ms in t] for name, t in times.items()}


def timed(monkeypatch: pytest.MonkeyPatch, times: dict[str, list[float]]) -> list[int]:
    """Put these times in place of measuring; the list grows with every call."""
    calls: list[int] = []

    def measure(device: Device, profiles: Any) -> dict[str, list[list[float]]]:
        calls.append(1)
        return rounds(times)

    monkeypatch.setattr(tune, "measure", measure)
    return calls


@pytest.mark.parametrize(
    ("times", "best"),
    [
        ({"a": [1.0, 4.0], "b": [2.0, 1.0]}, "b"),  # twice as slow, four times as fast
        ({"a": [1.0, 2.9], "b": [2.0, 1.0]}, "b"),
        ({"a": [1.0, 1.0], "b": [0.95, 1.0]}, "a"),  # not clearly
        ({"a": [1.0, 1.0], "b": [0.5, 0.9]}, "b"),
        ({"a": [1.0], "b": [2.0, 1.0]}, "b"),  # a failed at many rows
        ({"a": [], "b": [3.0]}, "b"),
        ({"a": [], "b": []}, None),
        ({}, None),
    ],
)
def test_choice(times: dict[str, list[float]], best: str | None) -> None:
    assert tune.choose(rounds(times)) == best


@pytest.mark.parametrize(
    ("second", "best"),
    [
        ([0.5, 0.6, 0.5, 3.0, 0.5], "b"),
        ([0.5, 3.0, 0.5, 3.0, 0.5], "a"),  # disturbed: better in three of five is not enough
        ([0.99, 0.5, 0.99, 0.99, 0.99], "a"),
    ],
)
def test_a_few_rounds_do_not_decide(second: list[float], best: str) -> None:
    assert tune.choose({"a": [[1.0] * 5], "b": [second]}) == best


def test_candidates(device: Device) -> None:
    assert tune.candidates(software(device)) == (SOFTWARE, PLAIN)
    assert tune.candidates(with_limits(device, software=True, profile=PLAIN)) == (PLAIN, GPU)
    found = tune.candidates(with_limits(device, software=False, profile=GPU, max_invocations=128))
    assert found[0] == GPU
    assert len({p.name for p in found}) == len(found) > 2
    assert all(p.lanes * p.splits <= 128 for p in found)


def test_measured_then_remembered(device: Device, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = timed(monkeypatch, {"software": [2.0], "software-plain": [1.0]})
    first, second = software(device), software(device)
    tune.tune_device(first)
    tune.tune_device(second)
    assert (first.limits.profile, first.tuned) == (PLAIN, tune.MEASURED)
    assert (second.limits.profile, second.tuned) == (PLAIN, tune.REMEMBERED)
    assert len(calls) == 1
    assert [p.name for p in home.parent.iterdir()] == ["tune.json"]  # nothing half-written is left
    assert tune.remembered(device.adapter) == "software-plain"


@pytest.mark.parametrize("part", ["name", "driver", "kernels", "version"])
def test_another_machine_measures_for_itself(
    part: str, device: Device, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = timed(monkeypatch, {"software": [2.0], "software-plain": [1.0]})
    tune.tune_device(software(device))
    other = software(device)
    if part in ("name", "driver"):
        other.adapter = dataclasses.replace(device.adapter, **{part: "another"})
    else:
        monkeypatch.setattr(tune, *(("_kernels_hash", lambda: "0") if part == "kernels" else ("__version__", "9")))
    tune.tune_device(other)
    assert len(calls) == 2
    assert len(json.loads(home.read_text())) == 2  # the first one is still there


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b'{"a": 1}', b"[" * 100_000, b"KEY:1", b'KEY:{"profile": 3}',
     b'KEY:{"profile": "no such"}', b'KEY:{"profile": ["software"]}', b"KEY:{}"],
)  # fmt: skip
def test_a_corrupt_file_is_measured_over(
    text: bytes, device: Device, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = timed(monkeypatch, {"software": [1.0], "software-plain": [2.0]})
    home.parent.mkdir()
    if text.startswith(b"KEY:"):
        text = b"{%s: %s}" % (json.dumps(tune.key_of(device.adapter)).encode(), text[4:])
    home.write_bytes(text)
    made = software(device)
    assert tune.remembered(device.adapter) is None or b"no such" in text
    tune.tune_device(made)
    assert (made.limits.profile, made.tuned, len(calls)) == (SOFTWARE, tune.MEASURED, 1)
    again = software(device)
    tune.tune_device(again)
    assert again.tuned == tune.REMEMBERED


@pytest.mark.parametrize("how", ["a file in the way", "a folder in the way", "read-only"])
def test_a_cache_that_cannot_be_written(how: str, device: Device, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "read-only" and os.geteuid() == 0:
        pytest.skip("root writes anywhere")
    timed(monkeypatch, {"software": [1.0], "software-plain": [2.0]})
    if how == "a file in the way":
        home.parent.write_text("")
    elif how == "a folder in the way":
        home.mkdir(parents=True)
    else:
        home.parent.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    made = software(device)
    tune.tune_device(made)
    assert made.tuned == tune.MEASURED
    if how == "a folder in the way":
        assert list(home.parent.iterdir()) == [home]


def test_a_home_that_is_not_there_is_not_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for home, there in ((tmp_path / "gone", False), (tmp_path, True)):
        monkeypatch.setenv("HOME", str(home))
        assert (tune.cache_file() is not None) == there
        tune.write(tune.cache_file(), "key", {"profile": "gpu"})
    assert [p.name for p in tmp_path.iterdir()] == [".cache"]


def test_no_home_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError

    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # not allowed to be
    monkeypatch.setattr(Path, "home", nowhere)
    assert tune.cache_file() is None
    assert tune.read(None) == {}
    tune.write(None, "a", {})


def test_old_entries_go(home: Path) -> None:
    for i in range(tune._MAX_ENTRIES + 3):
        tune.write(home, f"k{i}", {"profile": "gpu"})
    assert list(tune.read(home)) == [f"k{i}" for i in range(3, tune._MAX_ENTRIES + 3)]


def test_measuring(device: Device) -> None:
    """For real, with the profile this adapter has: a time for each number of rows that are tried."""
    times = tune.measure(device, (device.limits.profile,))
    rows = tune.ROWS[:1] if device.limits.software else tune.ROWS
    shapes = (tune._SOFTWARE_SHAPES if device.limits.software else tune._SHAPES) if device.timestamps else (1,)
    assert [len(t) for t in times.values()] == [len(rows) * len(shapes)]
    assert all(ms > 0 for t in times.values() for row in t for ms in row)


def test_each_linear_reads_weights_of_its_own() -> None:
    """Else a cache would hold them; and each is the next one's input."""
    shapes = ((64, 96), (96, 64)) * 3
    vk, constants = tune._chain(2, shapes, {shape: tune._weight(*shape) for shape in shapes})
    assert len({call.args[1] for call in vk.chain}) == len(vk.chain) == 6
    assert len(constants) == len(vk.constants) == 12
    assert [a.args[-1] for a in vk.chain[:-1]] == [b.args[0] for b in vk.chain[1:]]
    assert sum(w.nbytes for w, _ in (tune._weight(*s) for s in tune._SHAPES)) < tune._BEYOND_CACHES


def test_what_fails_is_not_chosen(device: Device, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise DeviceError("no")

    monkeypatch.setattr(tune, "_Trial", fail)
    made = software(device)
    tune.tune_device(made)
    assert (made.limits.profile, made.tuned) == (SOFTWARE, tune.DEFAULT)
    assert not home.exists()


def test_loading_tunes_only_a_device_of_its_own(device: Device, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is given keeps its profile; one opened by name is tuned unless that is turned off."""
    calls = timed(monkeypatch, {"software": [1.0]})
    opened = copy.copy(device)
    monkeypatch.setattr("webgpu_run.gpu.tune.open_device", lambda choice: opened)
    load(FIXTURE, device=device)
    load(FIXTURE, tune=False)
    assert not calls
    load(FIXTURE)
    assert len(calls) == 1
    assert isinstance(opened.limits, Limits)
