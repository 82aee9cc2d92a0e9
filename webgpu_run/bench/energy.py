"""Energy by what the machine itself reports: RAPL of the processor, a battery in use, and nvidia-smi.

A source has the joules since its start. RAPL counts them. A battery and nvidia-smi report power, which is multiplied by
the time since the last reading. Sources that do not exist, or that this user may not read, are left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

SYSFS = "WEBGPU_BENCH_SYSFS"  # environment variable: where sysfs is, if not in /sys
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,power.draw", "--format=csv,noheader,nounits", "--loop-ms=100")
FRESH = 2.0  # seconds: power that was reported longer ago is not used


class EnergySource(Protocol):
    """Something that reports energy."""

    name: str

    def joules(self) -> float | None:
        """Since the start; None if it does not report any more."""


class Rapl:
    """Counters of processor packages and their memory, in microjoules. Each wraps at a range of its own."""

    name = "RAPL"

    def __init__(self, zones: Sequence[Path]) -> None:
        self._zones = [(zone / "energy_uj", int((zone / "max_energy_range_uj").read_text("utf-8"))) for zone in zones]
        self._last = [int(file.read_text("utf-8")) for file, _ in self._zones]
        self._total = 0

    @classmethod
    def found(cls, sysfs: Path) -> Rapl | None:
        """All zones named package or dram: the others are parts of these, or the whole machine."""
        places = sorted((sysfs / "class" / "powercap").glob("*-rapl:*"))
        zones = [zone for zone in places if _text(zone / "name").startswith(("package", "dram"))]
        try:
            return cls(zones) if zones else None
        except (OSError, ValueError):
            return None  # since 2020 the counters are readable for root only, because they reveal what others compute

    def joules(self) -> float | None:
        for i, (file, most) in enumerate(self._zones):
            try:
                now = int(file.read_text("utf-8"))
            except (OSError, ValueError):
                return None
            self._total += now - self._last[i] if now >= self._last[i] else now + most - self._last[i]
            self._last[i] = now
        return self._total / 1e6


class Power:
    """A source that reports watts."""

    def __init__(self, name: str, watts: Callable[[], float | None]) -> None:
        self.name, self._watts = name, watts
        self._at, self._total = time.monotonic(), 0.0

    def joules(self) -> float | None:
        watts, now = self._watts(), time.monotonic()
        if watts is None:
            return None
        self._total += watts * (now - self._at)
        self._at = now
        return self._total


def battery_watts(sysfs: Path) -> float | None:
    """What all batteries give together; None if none of them is in use."""
    total = 0.0
    for battery in sorted((sysfs / "class" / "power_supply").glob("*")):
        if _text(battery / "type") != "Battery" or _text(battery / "status") != "Discharging":
            continue
        try:
            if (battery / "power_now").exists():
                total += abs(int(_text(battery / "power_now"))) / 1e6
            else:
                current, voltage = (int(_text(battery / f"{what}_now")) for what in ("current", "voltage"))
                total += abs(current) * voltage / 1e12
        except ValueError:
            return None
    return total or None


class PowerLines:
    """The last of the lines "name, watts" that a program prints for the device with this name, again and again."""

    def __init__(self, command: Sequence[str], device: str) -> None:
        self._device, self._watts, self._at = device, 0.0, 0.0
        self._first = threading.Event()
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        threading.Thread(target=self._read, daemon=True).start()
        self._first.wait(FRESH)

    def watts(self) -> float | None:
        return self._watts if time.monotonic() - self._at < FRESH else None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            name, _, watts = line.rpartition(",")
            try:
                if name.strip() in self._device:
                    self._watts, self._at = float(watts), time.monotonic()
                    self._first.set()
            except ValueError:
                continue  # "[N/A]"
        self._first.set()


class Meter:
    """The sources that report energy on this machine."""

    def __init__(self, device: str, sysfs: Path | None = None) -> None:
        """`device` is the name of the adapter."""
        root = sysfs or Path(os.environ.get(SYSFS) or "/sys")
        self._lines: PowerLines | None = None
        found: list[EnergySource | None] = [Rapl.found(root)]
        if battery_watts(root) is not None:
            found.append(Power("battery", lambda: battery_watts(root)))
        if "NVIDIA" in device and shutil.which(NVIDIA_SMI[0]):
            self._lines = PowerLines(NVIDIA_SMI, device)
            if self._lines.watts() is not None:
                found.append(Power("nvidia-smi", self._lines.watts))
        self.sources = [source for source in found if source]

    def read(self) -> dict[str, float]:
        """Joules since the start, by source."""
        readings = {source.name: source.joules() for source in self.sources}
        return {name: joules for name, joules in readings.items() if joules is not None}

    def close(self) -> None:
        if self._lines:
            self._lines.close()


def used(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Joules between two readings, by source."""
    return {name: after[name] - joules for name, joules in before.items() if name in after}


def whole(joules: dict[str, float]) -> float | None:
    """What the machine used: by its battery, which feeds everything; otherwise processor and GPU together."""
    return joules["battery"] if "battery" in joules else sum(joules.values()) if joules else None


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except OSError:
        return ""
