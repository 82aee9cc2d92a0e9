"""Adapters that were measured on this machine: their limits and rooflines, remembered on disk.

`webgpu-bench` writes them whenever it measures a roofline, and `--inspect` predicts from them without opening a device.
"""

from __future__ import annotations

import datetime
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..ops.limits import Limits, Profile
from .device import Device
from .roofline import Roofline
from .tune import cache_file, read, write


@dataclass(frozen=True, slots=True)
class KnownAdapter:
    name: str
    backend: str
    date: str  # of the last measurement
    limits: Limits
    max_buffer: int
    roofline: Roofline


def _file() -> Path | None:
    tuned = cache_file()
    return tuned.with_name("adapters.json") if tuned else None


def remember(device: Device, roof: Roofline) -> None:
    """Keep the better of this measurement and those before, figure by figure, because other load makes them worse."""
    a = device.adapter
    key = " | ".join((a.name, a.backend, a.driver))
    before = _known(read(_file()).get(key, {}))
    if before:
        roof = roof.or_better(before.roofline)
    entry = {
        "name": a.name,
        "backend": a.backend,
        "date": datetime.date.today().isoformat(),
        "limits": asdict(device.limits),
        "max_buffer": device.max_buffer,
        "roofline": roof.as_dict(),
    }
    write(_file(), key, entry)


def known_adapters() -> list[KnownAdapter]:
    """All remembered adapters; entries of another version may be unreadable and are left out."""
    return [adapter for entry in read(_file()).values() if (adapter := _known(entry))]


def _known(entry: dict[str, Any]) -> KnownAdapter | None:
    try:
        limits = {**entry["limits"], "profile": Profile(**entry["limits"]["profile"])}
        return KnownAdapter(
            str(entry["name"]),
            str(entry["backend"]),
            str(entry["date"]),
            Limits(**limits),
            int(entry["max_buffer"]),
            Roofline.from_dict(entry["roofline"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
