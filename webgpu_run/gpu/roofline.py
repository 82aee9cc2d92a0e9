"""The roofline of an adapter: its highest rates and lowest costs, measured with kernels of our own."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..ops import wgsl
from ..ops.wgsl import Consts
from ..shapes import align
from .device import Device

SIZES = (1 << 20, 8 << 20, 64 << 20)  # working sets that fit a core's cache, a shared cache, and only memory
ENOUGH_S = 0.02  # a measured batch lasts at least this long
TRIES = 5  # batches; the fastest counts, because other load only makes them slower
PATIENCE_S = 0.25  # no further try after this time
_WIDTH = 4096  # texels per row
_LOOPS = 512

Tell = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Roofline:
    """Rates in GB/s and GFLOP/s (bytes and operations per nanosecond), costs in microseconds."""

    reads: Mapping[str, Mapping[int, float]]  # way of reading -> bytes of the working set -> GB/s
    copy: Mapping[int, float]  # bytes read and written
    uniform: float  # every lane reads the same bytes, and each read counts
    f32: float
    f16: float | None  # None if the adapter has no f16
    dispatch_us: float
    encode_us: float  # recording one dispatch, on the host
    submit_us: float
    readback_us: float  # submit, wait and 4 bytes back

    def memory(self, nbytes: int) -> tuple[float, str]:
        """The highest GB/s for a working set of this size over all ways to read, and the name of that way."""
        sizes = [s for s in self.copy if s >= nbytes] or [
            max(self.copy)
        ]  # a rate for a larger set is possible for a smaller one too
        ways = (("copy", self.copy), *self.reads.items())
        return max((rates[s], f"{way}, {_size(s)}") for way, rates in ways for s in sizes)

    def ideal_ns(self, works: Iterable[tuple[int, int]], working_set: int) -> float:
        """The least time for dispatches of (bytes, operations), each bound by memory or by arithmetic."""
        rate, _ = self.memory(working_set)
        return sum(max(nbytes / rate, flops / self.f32) for nbytes, flops in works)

    def or_better(self, other: Roofline) -> Roofline:
        """The better figure of two measurements, one by one: other load only makes a figure worse."""

        def best(a: Mapping[int, float], b: Mapping[int, float]) -> dict[int, float]:
            return {size: max(rate, b[size]) for size, rate in a.items()}

        return Roofline(
            {way: best(rates, other.reads[way]) for way, rates in self.reads.items()},
            best(self.copy, other.copy),
            max(self.uniform, other.uniform),
            max(self.f32, other.f32),
            None if self.f16 is None or other.f16 is None else max(self.f16, other.f16),
            min(self.dispatch_us, other.dispatch_us),
            min(self.encode_us, other.encode_us),
            min(self.submit_us, other.submit_us),
            min(self.readback_us, other.readback_us),
        )

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Roofline:
        """The inverse of `as_dict`."""
        sized = {way: {int(s): float(v) for s, v in rates.items()} for way, rates in d["read_gb_s"].items()}
        copy = {int(s): float(v) for s, v in d["copy_gb_s"].items()}
        f16 = None if d["f16_gflop_s"] is None else float(d["f16_gflop_s"])
        costs = (float(d[f"{name}_us"]) for name in ("dispatch", "encode", "submit", "readback"))
        return cls(sized, copy, float(d["uniform_gb_s"]), float(d["f32_gflop_s"]), f16, *costs)

    def rows(self) -> list[tuple[str, float, str]]:
        """(name, value, unit) rows for a table."""
        out: list[tuple[str, float, str]] = []
        for size in sorted(self.copy):
            out.append((f"copy storage vec4, {_size(size)}", self.copy[size], "GB/s"))
            out += [(f"read {way}, {_size(size)}", rates[size], "GB/s") for way, rates in self.reads.items()]
        out += [("read uniform, all lanes alike", self.uniform, "GB/s"), ("FMA f32", self.f32, "GFLOP/s")]
        if self.f16 is not None:
            out.append(("FMA f16", self.f16, "GFLOP/s"))
        costs = (self.dispatch_us, self.encode_us, self.submit_us, self.readback_us)
        names = ("empty dispatch", "encode of a dispatch", "submit", "submit and readback")
        return [*out, *((name, us, "µs") for name, us in zip(names, costs, strict=True))]

    def as_dict(self) -> dict[str, Any]:
        return {
            "read_gb_s": {way: {str(s): round(v, 3) for s, v in rates.items()} for way, rates in self.reads.items()},
            "copy_gb_s": {str(s): round(v, 3) for s, v in self.copy.items()},
            "uniform_gb_s": round(self.uniform, 3),
            "f32_gflop_s": round(self.f32, 3),
            "f16_gflop_s": None if self.f16 is None else round(self.f16, 3),
            "dispatch_us": round(self.dispatch_us, 3),
            "encode_us": round(self.encode_us, 3),
            "submit_us": round(self.submit_us, 3),
            "readback_us": round(self.readback_us, 3),
        }


def _size(nbytes: int) -> str:
    return f"{nbytes >> 20} MiB"


class _Lab:
    """One kernel with its resources, dispatched many times in one pass."""

    def __init__(
        self, device: Device, name: str, resources: Sequence[Any], consts: Consts = (), **params: float
    ) -> None:
        self.device = device
        kernel = wgsl.load(name)
        bound = list(resources)
        if kernel.params is not None:
            uniform = device.buffer(16, "parameters")
            device.write(uniform, kernel.pack(params))
            bound.insert(0, (uniform, 0, kernel.params.itemsize))
        self.pipeline = device.pipeline(kernel, consts)
        self.group = device.bind_group(kernel, consts, bound)

    def encode(self, groups: int, times: int) -> Any:
        encoder = self.device.handle.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(self.pipeline)
        compute.set_bind_group(0, self.group)
        for _ in range(times):
            compute.dispatch_workgroups(groups)
        compute.end()
        return encoder

    def batch(self, groups: int, times: int) -> float:
        """Seconds from the submission to its end."""
        encoder = self.encode(groups, times)
        start = time.perf_counter()
        self.device.submit(encoder)
        self.device.wait()
        return time.perf_counter() - start

    def ns(self, groups: int, idle_s: float) -> float:
        """Nanoseconds per dispatch, from a batch long enough that waiting for it does not matter."""
        times, took = 1, self.batch(groups, 1)
        if took < PATIENCE_S:  # otherwise the first batch is accurate enough, although it also compiled
            took = self.batch(groups, 1)
        while took - idle_s < ENOUGH_S / 2 and times < 4096:
            times *= 2 if took - idle_s <= 0 else max(2, min(16, round(ENOUGH_S / (took - idle_s))))
            took = self.batch(groups, times)
        best, end = took, time.perf_counter() + PATIENCE_S
        for _ in range(TRIES):
            if time.perf_counter() > end:
                break
            best = min(best, self.batch(groups, times))
        return max(best - idle_s, best * 0.05) / times * 1e9


def measure(device: Device, tell: Tell | None = None) -> Roofline:
    """Measure the adapter. Takes a few seconds; the fastest of several workgroup sizes counts."""
    before = device.allocated
    steps = len(SIZES) * 4 + 4
    done = iter(range(1, steps + 1))

    def step() -> None:
        if tell:
            tell("roofline", next(done), steps)

    idle = min(_Lab(device, "roofline_empty", ()).batch(1, 1) for _ in range(20))
    workgroups = _workgroups(device)
    plain = (
        workgroups[-1:] if device.limits.software else workgroups
    )  # there every size is slow and takes long to measure

    def fastest(once: Callable[[int], float], workgroups: Sequence[int] = workgroups) -> float:
        return max(once(size) for size in workgroups)

    reads: dict[str, dict[int, float]] = {}
    copy: dict[int, float] = {}
    for size in SIZES:
        if size > device.limits.max_binding:
            continue
        copy[size] = fastest(lambda wg: _storage(device, "roofline_copy", size, wg, idle), plain)  # noqa: B023
        step()
        storage = fastest(lambda wg: _storage(device, "roofline_read", size, wg, idle), plain)  # noqa: B023
        reads.setdefault("storage vec4", {})[size] = storage
        step()
        for way, consts in _TEXTURES.items():
            texture = fastest(lambda wg: _texture(device, size, wg, consts, idle))  # noqa: B023
            reads.setdefault(way, {})[size] = texture
            step()
    uniform = fastest(lambda wg: _uniform(device, wg, idle))
    step()
    f32 = _fma(device, "f32", idle)
    step()
    f16 = _fma(device, "f16", idle) if device.limits.f16 else None
    step()
    costs = _costs(device)
    step()
    device.allocated = before  # all of it is free again
    return Roofline(reads, copy, uniform, f32, f16, *costs)


def measure_again(device: Device, roof: Roofline, nbytes: int) -> Roofline:
    """The roofline with the limits of a working set measured once more: its fastest way to read, and f32 arithmetic.

    Called between the measurements of an op, so that both meet the same other load.
    """
    before = device.allocated
    idle = min(_Lab(device, "roofline_empty", ()).batch(1, 1) for _ in range(20))
    way, _, text = roof.memory(nbytes)[1].rpartition(", ")
    size = next(s for s in SIZES if _size(s) == text)
    reads, copy = {name: dict(rates) for name, rates in roof.reads.items()}, dict(roof.copy)
    for workgroup in _workgroups(device):
        if way in _TEXTURES:
            rate = _texture(device, size, workgroup, _TEXTURES[way], idle)
        else:
            rate = _storage(device, "roofline_copy" if way == "copy" else "roofline_read", size, workgroup, idle)
        rates = copy if way == "copy" else reads[way]
        rates[size] = max(rates[size], rate)
    device.allocated = before
    return replace(roof, reads=reads, copy=copy, f32=max(roof.f32, _fma(device, "f32", idle)))


def _workgroups(device: Device) -> tuple[int, int]:
    """The workgroup sizes of which the faster one counts."""
    return (8, 32) if device.limits.software else (64, 256)


_TEXTURES: Mapping[str, Consts] = {
    "texture rgba32uint": (("IMAGES", 0),),
    "storage texture rgba32uint": (("IMAGES", 1),),
}


def _storage(device: Device, name: str, size: int, workgroup: int, idle: float) -> float:
    per = 16 if device.limits.software else 4
    groups = size // 16 // workgroup // per
    wide = name == "roofline_copy"
    x, out = device.buffer(size), device.buffer(size if wide else groups * workgroup * 4)
    lab = _Lab(device, name, [(x, 0, x.size), (out, 0, out.size)], (("WG", workgroup),), per=per)
    return (size * 2 if wide else size) / lab.ns(groups, idle)


def _texture(device: Device, size: int, workgroup: int, consts: Consts, idle: float) -> float:
    width = min(_WIDTH, device.limits.max_texture)
    height = size // 16 // width
    view = device.texture(np.zeros((height, width, 4), np.uint32))
    out = device.buffer(height * workgroup * 4)
    lab = _Lab(
        device, "roofline_texture", [(view,), (out, 0, out.size)], (("WG", workgroup), *consts), per=width // workgroup
    )
    return size / lab.ns(height, idle)


def _uniform(device: Device, workgroup: int, idle: float) -> float:
    size = min(device.limits.max_uniform, 65536)
    groups = 64
    x, out = device.buffer(size), device.buffer(groups * workgroup * 4)
    lab = _Lab(
        device, "roofline_uniform", [(x, 0, size), (out, 0, out.size)], (("WG", workgroup), ("SIZE", size // 16))
    )
    return size * groups * workgroup / lab.ns(groups, idle)


def _fma(device: Device, kind: str, idle: float) -> float:
    workgroup, groups = (8, 512) if device.limits.software else (64, 4096)
    out = device.buffer(groups * workgroup * 4)
    consts = (("WG", workgroup), ("T", kind), ("F16", int(kind == "f16")))
    lab = _Lab(device, "roofline_fma", [(out, 0, out.size)], consts, loops=_LOOPS, scale=0.5)
    return 128 * _LOOPS * workgroup * groups / lab.ns(groups, idle)


def _costs(device: Device) -> tuple[float, float, float, float]:
    """Microseconds of an empty dispatch, of recording one, of a submission, and of a readback."""
    lab = _Lab(device, "roofline_empty", ())
    few, many = 16, 2064
    lab.batch(1, many)
    longer = min(lab.batch(1, many) for _ in range(TRIES)) - min(lab.batch(1, few) for _ in range(TRIES))
    encode, submit, readback = [], [], []
    staging = device.buffer(16, read=True)
    source = device.buffer(16)
    for _ in range(20):
        start = time.perf_counter()
        encoder = lab.encode(1, 200)
        encode.append((time.perf_counter() - start) / 200)
        device.submit(encoder)
        device.wait()
        encoder = lab.encode(1, 1)
        encoder.copy_buffer_to_buffer(source, 0, staging, 0, align(4, 8))
        start = time.perf_counter()
        submission = device.submit(encoder)
        submit.append(time.perf_counter() - start)
        device.read_mapped(staging, submission, np.dtype(np.int32), (1,))
        readback.append(time.perf_counter() - start)
    middle = (statistics.median(samples) * 1e6 for samples in (encode, submit, readback))
    return max(0.0, longer) / (many - few) * 1e6, *middle  # type: ignore[return-value]
