"""Chooses an adapter's profile (its kernel variants): measured once on a 4-bit linear, then remembered on disk.

A remembered choice belongs to an adapter, its driver, this version and the text of the kernels. If the file is missing,
old, corrupt or can't be written, the next load measures again.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..assets import wgsl_dir
from ..console import outfile
from ..errors import RunError
from ..formats.source import Span
from ..formats.vkgraph import Constant, OperatorCall, VkGraph, VkTensor
from ..graph.graph import Graph
from ..graph.planner import Engine
from ..ops import wgsl
from ..ops.limits import GPU, PLAIN, Profile
from ..shapes import Array
from ..version import __version__
from .adapters import Adapter
from .callstats import CallStats
from .device import Device, open_device
from .executor import Executor

DEFAULT, MEASURED, REMEMBERED = "default", "measured", "remembered"
ROWS = (1, 32)  # decode, and a chunk of a prefill
_CLEARLY = 0.9  # another profile must be faster than the expected one by this factor
_NEARLY_ALL = 0.8  # in this fraction of the rounds
_ROUNDS = 10
_MAX_ENTRIES = 64  # of the file
_GROUP, _LINEAR = 32, "et_vk.linear_q4gsw.default"


def candidates(device: Device) -> tuple[Profile, ...]:
    """The profiles that this adapter can run; the one that is expected to be fastest comes first."""
    first = device.limits.profile
    if device.limits.software:  # compiling is slow there, so only two are tried
        return (first, GPU if first == PLAIN else PLAIN)
    shapes = ((8, 16), (16, 16), (32, 4))  # lanes x splits: columns per workgroup, and how k is divided
    most = device.limits.max_invocations
    return (first, *(replace(first, name=f"gpu-{a}x{b}", lanes=a, splits=b) for a, b in shapes if a * b <= most))


def open_tuned(choice: str | None = None, *, tune: bool = True) -> Device:
    """The device that `choice` names, or the best one; with `tune` it has its best profile."""
    device = open_device(choice)
    if tune:
        tune_device(device)
    return device


def tune_device(device: Device) -> None:
    """Give the device its best profile: the remembered one, or one measured now."""
    known = {p.name: p for p in candidates(device)}
    name, device.tuned = remembered(device.adapter), REMEMBERED
    if name not in known:
        times = measure(device, tuple(known.values()))
        name, device.tuned = choose(times), MEASURED
        if name is None:
            device.tuned = DEFAULT
            return
        write(
            cache_file(),
            key_of(device.adapter),
            {"profile": name, "ms": {k: [round(statistics.median(r), 3) for r in t] for k, t in times.items()}},
        )
    device.limits = replace(device.limits, profile=known[name])


def choose(times: Mapping[str, Sequence[Sequence[float]]]) -> str | None:
    """The first profile, unless another is clearly faster, and is faster in nearly every round.

    `times` are milliseconds by profile, number of rows and round. Asking for nearly every round keeps other load on the
    machine from deciding.
    """
    most = max(map(len, times.values()), default=0)
    whole = {name: t for name, t in times.items() if most and len(t) == most}  # the rest failed to compile or to fit
    first = next(iter(whole), None)
    best, least = first, _CLEARLY
    for name in list(whole)[1:]:
        ratios = [
            [y / x for x, y in zip(a, b, strict=True)] for a, b in zip(whole[str(first)], whole[name], strict=True)
        ]
        rounds = [statistics.geometric_mean(r) for r in zip(*ratios, strict=True)]
        if sum(r < 1 for r in rounds) >= _NEARLY_ALL * len(rounds) and statistics.median(rounds) < least:
            best, least = name, statistics.median(rounds)
    return best


def measure(device: Device, profiles: Sequence[Profile]) -> dict[str, list[list[float]]]:
    """Milliseconds of a chain of linears, by profile, number of rows and round."""
    software = device.limits.software
    size, depth = (1024, 4) if software else (2048, 16)  # large enough that profiles differ on a GPU
    weight = np.random.default_rng(0).integers(0, 256, (size, size // 2)).astype(np.uint8)
    scales = np.full((size // _GROUP, size), 1 / size, np.float32)
    times: dict[str, list[list[float]]] = {p.name: [] for p in profiles}
    for rows in ROWS[:1] if software else ROWS:  # a software driver compiles a kernel for many rows for seconds
        vk = _chain(rows, depth, weight, scales)
        trials: dict[str, _Trial] = {}
        for profile in profiles:
            with contextlib.suppress(RunError):  # a profile that does not compile or does not fit is not chosen
                trials[profile.name] = _Trial(device, profile, vk, (weight, scales))
        for _ in range(_ROUNDS):  # alternating, so that other load on the machine slows all of them
            for trial in trials.values():
                trial.run()
        for name, trial in trials.items():
            times[name].append(trial.times)
    return times


class _Trial:
    """A chain planned for one profile, ready to run. `times` are the milliseconds of its runs."""

    def __init__(self, device: Device, profile: Profile, vk: VkGraph, constants: Sequence[Array]) -> None:
        other = copy.copy(device)  # shares the pipelines, but plans for another profile
        other.limits = replace(device.limits, profile=profile)
        engine = Engine(Graph(vk, lambda i: Span.of(constants[i].tobytes())), other.limits)
        self.executor, self.stats = Executor(engine, other), CallStats()
        self.times: list[float] = []
        x = vk.values[vk.input_ids[0]]
        assert isinstance(x, VkTensor)
        self.executor.make_ready([np.ones(x.dims, np.float32)], self.stats)
        self.executor.execute(self.stats)  # the first run is slower

    def run(self) -> None:
        start = time.perf_counter()
        self.executor.execute(self.stats)
        self.times.append((time.perf_counter() - start) * 1e3)


def _chain(rows: int, depth: int, weight: Array, scales: Array) -> VkGraph:
    """One square linear, repeated, so that a run takes longer than its submission."""
    n = weight.shape[0]
    fixed = (
        VkTensor("uint8", weight.shape, constant_id=0),
        VkTensor("float32", scales.shape, constant_id=1),
        _GROUP,
        None,
    )
    values = (*fixed, *(VkTensor("float32", (1, rows, n)) for _ in range(depth + 1)))
    first = len(fixed)
    calls = tuple(OperatorCall(i, _LINEAR, (first + i, 0, 1, 2, 3, first + i + 1)) for i in range(depth))
    constants = (Constant(weight.nbytes, key="w"), Constant(scales.nbytes, key="s"))
    return VkGraph("0", calls, values, (first,), (first + depth,), constants)


# -- on disk -----------------------------------------------------------------------------------------------------------


def cache_file() -> Path | None:
    """The file of remembered choices, in $XDG_CACHE_HOME or ~/.cache; None if there is no home directory."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    except RuntimeError:
        return None
    return root / "webgpu-run" / "tune.json" if os.path.isabs(base) or root.parent.is_dir() else None


def key_of(adapter: Adapter) -> str:
    """The key of a choice: adapter, driver, version and kernels."""
    return " | ".join((adapter.name, adapter.backend, adapter.driver, __version__, _kernels_hash()))


def remembered(adapter: Adapter) -> str | None:
    """The profile that was measured before on this adapter."""
    name = read(cache_file()).get(key_of(adapter), {}).get("profile")
    return name if isinstance(name, str) else None


@functools.cache
def _kernels_hash() -> str:
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(wgsl_dir().glob("linear_q4gsw_*.wgsl")):
        digest.update(wgsl.load(path.stem).source.encode())
    return digest.hexdigest()


def read(path: Path | None) -> dict[str, dict[str, Any]]:
    """The file's entries; empty if it can't be read or was not written by `write`."""
    try:
        data = json.loads(path.read_text("utf-8")) if path else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return {k: v for k, v in data.items() if isinstance(v, dict)} if isinstance(data, dict) else {}


def write(path: Path | None, key: str, entry: Mapping[str, Any]) -> None:
    """Add an entry and drop the oldest beyond the limit. Readers see either the old file or the new one."""
    if path is None:
        return
    entries = {k: v for k, v in read(path).items() if k != key}
    entries[key] = dict(entry)
    text = json.dumps(dict(list(entries.items())[-_MAX_ENTRIES:]), indent=1)
    with contextlib.suppress(OSError, RunError):
        path.parent.mkdir(parents=True, exist_ok=True)
        outfile.write(path, text.encode())
