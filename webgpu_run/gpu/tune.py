"""Chooses an adapter's profile (its kernel variants): measured once on 4-bit linears, then remembered on disk.

Each linear has weights of its own, together more than a cache holds: what is measured is reading memory, as in a model.
On GPUs each class of shapes decides on what matters to it: wide weights on the lanes of a strip, narrow weights, whose
strips always have few lanes, on the invocations of a workgroup.
A remembered choice belongs to an adapter, its driver, this version and the text of the kernels. If the file is missing,
old, corrupt or can't be written, the next load measures again.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product, starmap
from operator import methodcaller
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
from ..ops.limits import GPU, PLAIN, SHORT, WIDE, Profile
from ..ops.q4_layout import WORKGROUPS
from ..shapes import Array
from ..version import __version__
from .adapters import Adapter
from .callstats import CallStats
from .device import Device, open_device
from .executor import Executor

Shape = tuple[int, int]  # k and n of a linear
Times = dict[str, list[list[float]]]
_Chain = tuple[VkGraph, Sequence[bytes]]

DEFAULT, MEASURED, REMEMBERED = "default", "measured", "remembered"
ROWS = (1, 4)  # decode, and a few rows of a batch; tiles, for more, are the same in all profiles
_SOFTWARE_ROWS = (1, 8)  # with 8 rows, a processor's instruction cache matters
_CLEARLY = 0.9  # another profile must be faster than the expected one by this factor
_FAR = 0.8  # one that would lose KV caches in textures by this factor
_NOTICEABLY = 0.97  # a variant of the same kernels by this factor
_NEARLY_ALL = 0.8  # in this fraction of the rounds
_ROUNDS = 10
_MAX_ENTRIES = 64  # of the file
_SHAPES = ((2048, 2048), (2048, 16384), (16384, 2048))  # k x n; each is the next one's input
_LANES, _INVOCATIONS = (8, 16, 32), (64, 128, 256)  # of the widest strips, and of a workgroup of q4_few.wgsl
_SOFTWARE_SHAPES = ((1024, 1024),)
_BEYOND_CACHES = 160 << 20  # bytes of weights; caches of GPUs have up to 128 MiB
_BEYOND_CPU_CACHES = 32 << 20
_GROUP, _LINEAR = 32, "et_vk.linear_q4gsw.default"


def candidates(device: Device) -> tuple[Profile, ...]:
    """The profiles to measure; the one that is expected to be fastest comes first."""
    first = device.limits.profile
    if device.limits.software:  # compiling is slow there, so only these are tried
        return {PLAIN: (first, GPU), WIDE: (first, PLAIN)}.get(first, (first, SHORT, PLAIN))
    size = first.lanes * first.splits
    others = [(lanes, size) for lanes in _LANES] + [(first.lanes, n) for n in _INVOCATIONS]
    return tuple(dict.fromkeys((first, *(p for p in starmap(_variants(device), others) if p))))


def profiles(device: Device) -> dict[str, Profile]:
    """All profiles that tuning can choose, by name."""
    found = candidates(device)
    if not device.limits.software:
        found += tuple(p for p in starmap(_variants(device), product(_LANES, _INVOCATIONS)) if p)
    return {p.name: p for p in found}


def _variants(device: Device) -> Callable[[int, int], Profile | None]:
    """The adapter's profile with other lanes and invocations; None if a workgroup can't have that many."""
    first = device.limits.profile

    def variant(lanes: int, size: int) -> Profile | None:
        if size > device.limits.max_invocations or (lanes, size) == (first.lanes, first.lanes * first.splits):
            return None
        return replace(first, name=f"gpu-{lanes}x{size // lanes}", lanes=lanes, splits=size // lanes)

    return variant


def open_tuned(choice: str | None = None, *, tune: bool = True) -> Device:
    """The device that `choice` names, or the best one; with `tune` it has its best profile."""
    device = open_device(choice)
    if tune:
        tune_device(device)
    return device


def tune_device(device: Device) -> None:
    """Give the device its best profile: the remembered one, or one measured now."""
    known = profiles(device)
    name, device.tuned = remembered(device.adapter), REMEMBERED
    if name not in known:
        times = measure(device, candidates(device))
        name, device.tuned = decide(device, times), MEASURED
        if name is None:
            device.tuned = DEFAULT
            return
        remember(device, name, times)
    device.limits = replace(device.limits, profile=known[name])


def remember(device: Device, name: str, times: Times) -> None:
    """Write the choice and the medians that led to it."""
    medians = {k: [round(statistics.median(r), 3) for r in t] for k, t in times.items()}
    write(cache_file(), key_of(device.adapter), {"profile": name, "of": columns(device), "ms": medians})


def columns(device: Device) -> list[str]:
    """What the times of `measure` are of."""
    software = device.limits.software
    shapes = [f"{k}x{n}" for k, n in (_SOFTWARE_SHAPES if software else _SHAPES)]
    if not device.timestamps:
        shapes = [" and ".join(shapes)]
    rows = _row_counts(device)
    return [f"{count} {'row' if count == 1 else 'rows'}, {shape}" for count in rows for shape in shapes]


def _row_counts(device: Device) -> tuple[int, ...]:
    if not device.limits.software:
        return ROWS
    return _SOFTWARE_ROWS if SHORT in candidates(device) else _SOFTWARE_ROWS[:1]


def decide(device: Device, times: Times) -> str | None:
    """The profile that each class of shapes agrees to, from the times of all candidates."""
    if device.limits.software:
        return _decide_software(times, _CLEARLY if device.limits.profile == PLAIN else _FAR)
    best = choose(times)
    known = profiles(device)
    if best is None or not device.timestamps:
        return best
    found = {}
    for wide in (False, True):
        of_class = {n: t for n, t in times.items() if _has_a_say(known[n], device.limits.profile, wide)}
        kept = {n: [ms for i, ms in enumerate(t) if is_wide(i) == wide] for n, t in of_class.items()}
        found[wide] = known[choose(kept) or best]
    size = found[False].lanes * found[False].splits
    fits = (p.name for p in known.values() if (p.lanes, p.lanes * p.splits) == (found[True].lanes, size))
    return next(fits, best)


def _decide_software(times: Times, least: float) -> str | None:
    """One row decides between the kinds of kernels, eight rows on the length of the code.

    (With one row, the profiles with long and with short code have the same code.)
    """
    best = choose({name: t[:1] for name, t in times.items()}, least)
    rest = {name: t[1:] for name, t in times.items() if t[1:]}
    return choose(rest, _NOTICEABLY) or best if rest and best != PLAIN.name else best


def is_wide(column: int) -> bool:
    """Whether a column of the times is of a weight that fills the widest strips."""
    return _SHAPES[column % len(_SHAPES)][1] >= WORKGROUPS * 4 * max(_LANES)


def _has_a_say(profile: Profile, first: Profile, wide: bool) -> bool:
    """Whether a class compares this candidate: wide weights compare lanes, narrow ones sizes of a workgroup."""
    return profile.lanes * profile.splits == first.lanes * first.splits if wide else profile.lanes == first.lanes


def serves(device: Device, name: str, chosen: str, column: int) -> bool:
    """Whether the times of this candidate, in this column, are the reason for the choice."""
    known, first = profiles(device), device.limits.profile
    if device.limits.software or not device.timestamps:
        return name == chosen
    one, other, wide = known[name], known[chosen], is_wide(column)
    same = one.lanes == other.lanes if wide else one.lanes * one.splits == other.lanes * other.splits
    return same and _has_a_say(one, first, wide)


def choose(times: Mapping[str, Sequence[Sequence[float]]], least: float = _CLEARLY) -> str | None:
    """The first profile, unless another takes less than `least` of its time, and is faster in nearly every round.

    `times` are milliseconds by profile, number of rows and round. Asking for nearly every round keeps other load on the
    machine from deciding.
    """
    most = max(map(len, times.values()), default=0)
    whole = {name: t for name, t in times.items() if most and len(t) == most}  # the rest failed to compile or to run
    whole = {name: t for name, t in whole.items() if all(ms > 0 for row in t for ms in row)}
    first = next(iter(whole), None)
    best = first
    for name in list(whole)[1:]:
        ratios = [
            [y / x for x, y in zip(a, b, strict=True)] for a, b in zip(whole[str(first)], whole[name], strict=True)
        ]
        rounds = [statistics.geometric_mean(r) for r in zip(*ratios, strict=True)]
        if sum(r < 1 for r in rounds) >= _NEARLY_ALL * len(rounds) and statistics.median(rounds) < least:
            best, least = name, statistics.median(rounds)
    return best


def measure(device: Device, profiles: Sequence[Profile]) -> Times:
    """Milliseconds of the linears of each shape, by profile, number of rows and shape, and round.

    Times are the device's own where it has timestamps. Otherwise they are those of the host, for all shapes together.
    """
    software = device.limits.software
    shapes, beyond = (_SOFTWARE_SHAPES, _BEYOND_CPU_CACHES) if software else (_SHAPES, _BEYOND_CACHES)
    counts = _row_counts(device)
    weights = {shape: _weight(*shape) for shape in shapes}
    repeats = math.ceil(beyond / sum(w.nbytes for w, _ in weights.values()))
    chain = _chain(max(counts), shapes * repeats, weights)
    trials: dict[str, _Trial] = {}
    for profile in profiles:
        with contextlib.suppress(RunError):  # a profile that does not compile or does not fit is not chosen
            trials[profile.name] = _Trial(device, profile, chain, len(shapes))
    times: Times = {p.name: [] for p in profiles}
    for rows in counts:
        if software and rows > 1:  # one row has decided about subgroups
            trials = {name: trial for name, trial in trials.items() if name != PLAIN.name}
        _each(trials, methodcaller("make_ready", rows))
        for _ in range(_ROUNDS):  # alternating, so that other load on the machine slows all of them
            _each(trials, methodcaller("run"))
        for name, trial in trials.items():
            times[name] += trial.times
    return times


def _each(trials: dict[str, _Trial], call: Callable[[_Trial], None]) -> None:
    """Call each trial. One that fails is dropped, so its profile is not chosen."""
    for name, trial in list(trials.items()):
        try:
            call(trial)
        except RunError:
            del trials[name]


class _Trial:
    """A chain planned for one profile. `times` are the milliseconds of its runs with some number of rows, by shape."""

    def __init__(self, device: Device, profile: Profile, chain: _Chain, shapes: int) -> None:
        other = copy.copy(device)  # shares the pipelines, but plans for another profile
        other.limits = replace(device.limits, profile=profile)
        vk, constants = chain
        engine = Engine(Graph(vk, lambda i: Span.of(constants[i])), other.limits)
        self.executor = Executor(engine, other)
        self.columns = shapes if device.timestamps else 1
        x = vk.values[vk.input_ids[0]]
        assert isinstance(x, VkTensor)
        self.k = x.dims[-1]

    def make_ready(self, rows: int) -> None:
        self.times: list[list[float]] = [[] for _ in range(self.columns)]
        self.executor.make_ready([np.ones((1, rows, self.k), np.float32)], CallStats())
        self.executor.execute(CallStats())  # the first run is slower

    def run(self) -> None:
        stats, start = CallStats(), time.perf_counter()
        self.executor.execute(stats, timed=True)
        if len(self.times) == 1:
            self.times[0].append((time.perf_counter() - start) * 1e3)
            return
        for i, times in enumerate(self.times):
            times.append(sum(d.gpu_ns for d in stats.timed if d.node % len(self.times) == i) / 1e6)


def _weight(k: int, n: int) -> tuple[Array, Array]:
    weight = np.random.default_rng(0).integers(0, 256, (n, k // 2)).astype(np.uint8)
    return weight, np.full((k // _GROUP, n), 1 / k, np.float32)


def _chain(rows: int, shapes: Sequence[Shape], weights: Mapping[Shape, tuple[Array, Array]]) -> _Chain:
    """Linears one after the other. Each has weights of its own, though those of one shape have the same content."""
    values: list[Any] = [_GROUP, None, VkTensor("float32", (1, rows, shapes[0][0]))]
    calls: list[OperatorCall] = []
    constants: list[bytes] = []
    for shape in shapes:
        x, first = len(values) - 1, len(values)
        for array in weights[shape]:
            values.append(VkTensor(str(array.dtype), array.shape, constant_id=len(constants)))
            constants.append(array.tobytes())
        values.append(VkTensor("float32", (1, rows, shape[1])))
        calls.append(OperatorCall(len(calls), _LINEAR, (x, first, first + 1, 0, 1, first + 2)))
    kept = tuple(Constant(len(data), key=str(i)) for i, data in enumerate(constants))
    return VkGraph("0", tuple(calls), tuple(values), (2,), (len(values) - 1,), kept), constants


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
    return " | ".join((*adapter.key, __version__, _kernels_hash()))


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
