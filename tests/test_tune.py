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

from webgpu_run.bench import tuning
from webgpu_run.errors import DeviceError
from webgpu_run.gpu import tune
from webgpu_run.gpu.device import Device
from webgpu_run.gpu.executor import Executor
from webgpu_run.ops.limits import GPU, PLAIN, SHORT, SOFTWARE, WIDE, Limits
from webgpu_run.ops.linear_q4gsw import _case
from webgpu_run.ops.spec import load_all
from webgpu_run.runtime.open import load

from helpers import opcheck
from helpers.graphs import args_of, with_limits

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
        ({"a": [1.0], "b": [0.0]}, "a"),  # no time
        ({"a": [0.0], "b": [1.0]}, "b"),
        ({"a": [float("nan")], "b": [1.0]}, "b"),
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
    assert tune.candidates(software(device)) == (SOFTWARE, SHORT, PLAIN)
    assert tune.candidates(with_limits(device, software=True, profile=WIDE)) == (WIDE, PLAIN)
    assert tune.candidates(with_limits(device, software=True, profile=PLAIN)) == (PLAIN, GPU)
    found = tune.candidates(with_limits(device, software=False, profile=GPU, max_invocations=128))
    assert found[0] == GPU
    assert len({p.name for p in found}) == len(found) > 2
    assert all(p.lanes * p.splits <= 128 for p in found)


@pytest.mark.parametrize(
    ("times", "best"),
    [
        ([[2.0, 8.0], [2.0, 8.1], [2.1]], "software"),
        ([[2.0, 8.0], [2.0, 7.9], [2.1]], "software"),  # hardly faster
        ([[2.0, 8.0], [2.0, 7.5], [2.1]], "software-short"),
        ([[2.0, 8.0], [2.0, 7.5], [1.0]], "software-plain"),  # one row decides about subgroups
        ([[2.0, 8.0], [2.0, 7.5], [1.7]], "software-short"),  # but must be far faster without
        ([[2.0, 8.0], [2.0], [2.1]], "software"),  # eight rows failed with short code
        ([[2.0], [2.0, 8.0], [2.1]], "software-short"),  # or with long code
        ([[2.0], [2.0], [2.1]], "software"),
        ([[], [], [2.1]], "software-plain"),
    ],
)
def test_one_row_and_eight_decide_on_software(times: list[list[float]], best: str, device: Device) -> None:
    names = [p.name for p in tune.candidates(software(device))]
    assert tune.decide(software(device), rounds(dict(zip(names, times, strict=True)))) == best


def test_gpu_kernels_on_a_software_adapter_without_subgroups(device: Device) -> None:
    """No cache in a texture is lost there, so clearly faster is enough."""
    plain = with_limits(device, software=True, profile=PLAIN)
    assert tune.decide(plain, rounds({"software-plain": [2.0], "gpu": [1.7]})) == "gpu"
    assert tune.decide(plain, rounds({"software-plain": [2.0], "gpu": [1.9]})) == "software-plain"


def gpu(device: Device, **limits: Any) -> Device:
    made = with_limits(device, software=False, profile=GPU, max_invocations=256, **limits)
    made.timestamps = True
    return made


def test_each_class_of_shapes_decides(device: Device) -> None:
    """Wide weights choose the lanes of a strip, narrow ones the size of a workgroup, whatever the others' times are."""
    times = {p.name: [[4.0] * 5 for _ in range(6)] for p in tune.candidates(gpu(device))}
    assert tune.decide(gpu(device), times) == "gpu"
    for column in (0, 2, 3, 5):
        times["gpu-16x16"][column] = [1.0] * 5
        times["gpu-8x16"][column] = [0.5] * 5  # narrow strips are the same in this profile: an outlier
    for column in (1, 4):
        times["gpu-32x4"][column] = [2.0] * 5
    assert tune.decide(gpu(device), times) == "gpu-32x8"
    reasons = {(name, i) for name in times for i in range(6) if tune.serves(gpu(device), name, "gpu-32x8", i)}
    assert reasons == {("gpu-16x16", i) for i in (0, 2, 3, 5)} | {("gpu-32x4", i) for i in (1, 4)}
    without = gpu(device)
    without.timestamps = False  # one time for all shapes, so they decide together
    assert tune.decide(without, {"gpu": [[4.0] * 5] * 2, "gpu-16x4": [[2.0] * 5] * 2}) == "gpu-16x4"


def test_classes_tell_the_candidates_apart(device: Device) -> None:
    """At the shapes that are measured, each candidate that a class compares is another kernel."""
    for wide in (False, True):
        n = max(n for i, (_, n) in enumerate(tune._SHAPES) if tune.is_wide(i) == wide)
        found = [p for p in tune.candidates(gpu(device)) if tune._has_a_say(p, GPU, wide)]
        kernels = {few_consts(1, 2048, n, dataclasses.replace(gpu(device).limits, profile=p)) for p in found}
        assert len(kernels) == len(found) == 3


def few_consts(m: int, k: int, n: int, limits: Limits) -> tuple[Any, ...]:
    case = _case(m, k, n, 32)
    op = load_all()["et_vk.linear_q4gsw.default"]
    return op.plan(args_of(op, case), limits).steps[-1].consts


@pytest.mark.parametrize("name", ["gpu-8x8", "gpu-8x32", "gpu-32x2", "gpu-32x8"])
def test_profiles_that_no_candidate_is(name: str, device: Device) -> None:
    """What two classes can decide together is right too, with weights that are wide enough for it."""
    profile = tune.profiles(gpu(device))[name]
    case = dataclasses.replace(_case(4, 64, 16384, 32, 1), tol=1e-5)
    machine = gpu(device, max_workgroup_bytes=16384)
    machine.limits = dataclasses.replace(machine.limits, profile=profile)
    opcheck.check_case(load_all()["et_vk.linear_q4gsw.default"], case, machine)


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
    rows = tune._row_counts(device)
    shapes = (tune._SOFTWARE_SHAPES if device.limits.software else tune._SHAPES) if device.timestamps else (1,)
    assert [len(t) for t in times.values()] == [len(rows) * len(shapes)]
    assert all(ms > 0 for t in times.values() for row in t for ms in row)


@pytest.mark.parametrize("run", [2, 12, 13])
def test_a_profile_that_fails_in_between_is_not_chosen(
    run: int, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At some run of a trial, of which there are eleven for each number of rows; the others are measured on."""
    count, execute = 0, Executor.execute

    def failing(executor: Executor, *args: Any, **named: Any) -> Any:
        nonlocal count
        count += executor.engine.limits.profile == SHORT
        if executor.engine.limits.profile == SHORT and count >= run:
            raise DeviceError("out of GPU memory")
        return execute(executor, *args, **named)

    monkeypatch.setattr(Executor, "execute", failing)
    monkeypatch.setattr(tune, "_BEYOND_CPU_CACHES", 1 << 20)
    made = software(device)
    if not made.limits.subgroups:
        pytest.skip("the adapter has no subgroups of eight")
    times = tune.measure(made, tune.candidates(made))
    assert {name: len(t) for name, t in times.items()} == {
        "software": 2,
        "software-short": int(run > 11),
        "software-plain": 1,
    }


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
    calls = timed(monkeypatch, {device.limits.profile.name: [1.0]})
    opened = copy.copy(device)
    monkeypatch.setattr("webgpu_run.gpu.tune.open_device", lambda choice: opened)
    load(FIXTURE, device=device)
    load(FIXTURE, tune=False)
    assert not calls
    load(FIXTURE)
    assert len(calls) == 1
    assert isinstance(opened.limits, Limits)


def test_the_table_shows_what_was_measured(
    device: Device, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the first candidate has no time, or failed with eight rows; ratios are to the first that has one."""
    monkeypatch.setattr(tuning, "open_device", lambda *args, **named: software(device))
    for times, ratios in (
        ([[2.0], [1.0, 8.0], [4.0]], [1, 0.5, 1, 2]),
        ([[0.0, 1.0], [4.0, 0.5], [2.0]], [0, 1, 1, 0.5, 0.5]),
        ([[0.0], [0.0], [0.0]], [None, None, None]),
    ):
        timed(monkeypatch, dict(zip(("software", "software-short", "software-plain"), times, strict=True)))
        assert tuning.run_tune(device=None, form="jsonl", out=None, quiet=True) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [row["ratio"] for row in rows] == ratios
        assert [row["test"].split(",")[0] for row in rows] == [
            name for t in times for name, _ in zip(("1 row", "8 rows"), t, strict=False)
        ]
