"""Joules per token, from files like those of sysfs, whose counters a thread of the test moves at a known power."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from webgpu_run.bench.energy import SYSFS, Meter, Power, PowerLines, Rapl, used, whole

from helpers.command import HERE, Result, execute

MODEL = HERE / "fixtures" / "tiny_dyn.pte"
RANGE = 2_000_000_000  # µJ


def zone(root: Path, place: str, name: str, microjoules: int, most: int = RANGE) -> Path:
    folder = root / "class" / "powercap" / place
    folder.mkdir(parents=True)
    (folder / "name").write_text(name + "\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text(f"{most}\n")
    return folder / "energy_uj"


def battery(root: Path, status: str, **files: int) -> None:
    folder = root / "class" / "power_supply" / "BAT0"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, value in {"type": "Battery", "status": status, **files}.items():
        (folder / name).write_text(f"{value}\n")


@contextmanager
def running(counter: Path, watts: float) -> Iterator[None]:
    """Move the counter as hardware does."""
    stop, start = threading.Event(), time.monotonic()

    def move() -> None:
        while not stop.wait(0.001):
            temporary = counter.with_suffix(".new")
            temporary.write_text(f"{int((time.monotonic() - start) * watts * 1e6)}\n")
            temporary.replace(counter)

    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def bench(sysfs: Path, *args: str) -> Result:
    command = (sys.executable, "-m", "webgpu_run.cli.bench", MODEL, "-p", "64", "-n", "32", "--no-roofline")
    return execute(*command, "-r", "5", "-w", "1", *args, env={**os.environ, SYSFS: str(sysfs)})


def test_zones_that_count_once(tmp_path: Path) -> None:
    """The package and its memory; the cores are part of the package, and psys has everything."""
    moved = [
        zone(tmp_path, "intel-rapl:0", "package-0", RANGE - 100_000),
        zone(tmp_path, "intel-rapl:0:1", "dram", 500_000),
        zone(tmp_path, "intel-rapl:1", "package-1", 0),
    ]
    others = [zone(tmp_path, "intel-rapl:0:0", "core", 0), zone(tmp_path, "intel-rapl:2", "psys", 0)]
    rapl = Rapl.found(tmp_path)
    assert rapl
    assert rapl.joules() == 0
    for file, value in zip(moved, (400_000, 700_000, 300_000), strict=True):  # the first one wraps: 0.5 J
        file.write_text(str(value))
    for file in others:
        file.write_text("900000")
    assert rapl.joules() == pytest.approx(0.5 + 0.2 + 0.3)
    moved[1].unlink()
    assert rapl.joules() is None


def test_power_of_a_battery(tmp_path: Path) -> None:
    battery(tmp_path, "Discharging", power_now=15_000_000)
    meter = Meter("llvmpipe", tmp_path)
    start, before = time.monotonic(), meter.read()
    time.sleep(0.1)
    after, seconds = meter.read(), time.monotonic() - start
    assert used(before, after)["battery"] == pytest.approx(15 * seconds, rel=0.1)
    battery(tmp_path, "Discharging", current_now=-2_000_000, voltage_now=11_000_000)
    before = meter.read()
    time.sleep(0.1)
    assert used(before, meter.read())["battery"] == pytest.approx(22 * 0.1, rel=0.3)
    battery(tmp_path, "Charging", power_now=15_000_000)
    assert meter.read() == {}
    assert Meter("llvmpipe", tmp_path).sources == []


def test_power_that_a_program_prints() -> None:
    """nvidia-smi is such a program; here it is one with its output."""
    lines = "NVIDIA A, [N/A]\\nNVIDIA B, 250.5\\nNVIDIA C 10, 70.25\\n"
    text = f"import time\nprint('{lines}', flush=True)\ntime.sleep(600)"
    read = PowerLines((sys.executable, "-c", text), "NVIDIA C 10/PCIe/SSE2")
    try:
        assert read.watts() == 70.25
        source = Power("nvidia-smi", read.watts)
        time.sleep(0.1)
        assert (source.joules() or 0) >= 7.025
        read._at -= 3  # a program that no longer prints
        assert source.joules() is None
    finally:
        read.close()
    assert PowerLines((sys.executable, "-c", "pass"), "NVIDIA C 10").watts() is None


def test_what_the_machine_used() -> None:
    assert whole({"RAPL": 2.0, "nvidia-smi": 3.0}) == 5.0
    assert whole({"RAPL": 2.0, "battery": 4.0}) == 4.0
    assert whole({}) is None


def test_joules_per_token(tmp_path: Path) -> None:
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 0)
    with running(counter, 40.0):
        result = bench(tmp_path, "--out", str(tmp_path / "a.jsonl"))
    assert result.code == 0, result.err
    assert "J/token" in result.out
    for row in map(json.loads, (tmp_path / "a.jsonl").read_text().splitlines()):
        energy = row["energy"]
        assert energy["by"] == ["RAPL"]
        assert len(energy["joules"]) == 5
        expected = 40.0 * sum(row["wall_ms"]) / 1e3
        assert sum(energy["joules"]) == pytest.approx(expected, rel=0.5, abs=0.4)
        assert energy["j_per_token"] == pytest.approx(sum(energy["joules"]) / 5 / row["tokens"], rel=1e-4)


def test_nothing_is_said_without_a_source(tmp_path: Path) -> None:
    result = bench(tmp_path, "-o", "json")
    assert result.code == 0, result.err
    assert [row["energy"] for row in json.loads(result.out)] == [None, None]
    assert "J/token" not in bench(tmp_path).out
