"""Damaged copies of files: eight ways to damage bytes at random, and how far a damaged file comes without a device."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import numpy as np

from webgpu_run.debug.inspect import inspect
from webgpu_run.errors import RunError
from webgpu_run.formats import pte, pte_writer
from webgpu_run.formats.vkgraph_writer import program_of
from webgpu_run.gpu.device import Device
from webgpu_run.graph.lower import planned
from webgpu_run.ops.limits import GPU, PLAIN, SOFTWARE, Limits
from webgpu_run.runtime.model import Model

from helpers import graphs
from helpers.samples import add_program, every_kind

MAGIC = sorted({2**n + d for n in (0, 1, 2, 3, 7, 8, 16, 24, 30, 31, 32, 63, 64) for d in (-1, 0)})
LARGEST_INPUT = 1 << 24  # elements


class Sample:
    """A file to damage, and where in it damage is likely to matter: everything but its weights."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name, self.data = name, data
        program = pte.loads(data)
        self.spans = [(0, min(program.program_size, len(data)))]
        for method in program.methods:
            for delegate in method.delegates:
                blob = delegate.blob
                self.spans.append((blob.offset, min(blob.offset + blob.nbytes, blob.offset + (1 << 16), len(data))))

    def place(self, rng: random.Random, align: int = 1) -> int:
        """A byte, nearly always one that is no weight."""
        start, end = rng.choice(self.spans) if rng.random() < 0.95 else (0, len(self.data))
        return min(rng.randrange(start, max(end, start + 1)) // align * align, len(self.data) - align)


Edit = Callable[[bytearray, Sample, random.Random, list[Sample]], None]


def flip(data: bytearray, sample: Sample, rng: random.Random, samples: list[Sample]) -> None:
    at = sample.place(rng)
    data[at] ^= 1 << rng.randrange(8)


def splice(data: bytearray, sample: Sample, rng: random.Random, samples: list[Sample]) -> None:
    """Overwrite bytes with those of some file."""
    other = rng.choice(samples)
    at, source, size = sample.place(rng, 4), other.place(rng, 4), 4 * rng.randint(1, 16)
    part = other.data[source : source + size][: len(data) - at]
    data[at : at + len(part)] = part


def duplicate(data: bytearray, sample: Sample, rng: random.Random, samples: list[Sample]) -> None:
    """Repeat a part of the file: in place of what follows it, or before that."""
    at, size = sample.place(rng, 4), 4 * rng.randint(1, 16)
    part = bytes(data[at : at + size])
    end = at + len(part)
    data[end : end + (len(part) if rng.random() < 0.7 else 0)] = part


def swap(data: bytearray, sample: Sample, rng: random.Random, samples: list[Sample]) -> None:
    """Exchange two 32-bit words."""
    a, b = sample.place(rng, 4), sample.place(rng, 4)
    data[a : a + 4], data[b : b + 4] = data[b : b + 4], data[a : a + 4]


def magic(data: bytearray, sample: Sample, rng: random.Random, samples: list[Sample]) -> None:
    """Write a number at which checks tend to be off by one."""
    size = rng.choice((1, 2, 4, 4, 4, 8))
    at = sample.place(rng, size)
    data[at : at + size] = (rng.choice(MAGIC) & (1 << 8 * size) - 1).to_bytes(size, "little")


def off_by_one(data: bytearray, sample: Sample, rng: random.Random, samples: list[Sample]) -> None:
    """One more or one less of what may be a length: a small word."""
    for _ in range(50):
        at = sample.place(rng, 4)
        (value,) = struct.unpack_from("<I", data, at)
        if 0 < value < 1 << 16:
            struct.pack_into("<I", data, at, value + rng.choice((-1, 1)))
            return


def truncate(data: bytearray, sample: Sample, rng: random.Random, samples: list[Sample]) -> None:
    del data[max(sample.place(rng), 1) :]


def insert(data: bytearray, sample: Sample, rng: random.Random, samples: list[Sample]) -> None:
    at = sample.place(rng)
    data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 4, 8, 16)))


EDITS: tuple[Edit, ...] = (flip, splice, duplicate, swap, magic, off_by_one, truncate, insert)
IN_PLACE = EDITS[:2] + EDITS[3:6]


def mutant(k: int, samples: list[Sample]) -> tuple[str, Sample, bytes]:
    """Mutant k: its strategy, the file that it was, and its bytes. One in four has more than one edit."""
    rng = random.Random(k)
    edit, sample = EDITS[k % len(EDITS)], samples[k // len(EDITS) % len(samples)]
    data = bytearray(sample.data)
    for more in [rng.choice(IN_PLACE) for _ in range(rng.randint(1, 3))] if rng.random() < 0.25 else []:
        more(data, sample, rng, samples)
    edit(data, sample, rng, samples)
    return edit.__name__, sample, bytes(data)


def small_samples() -> list[Sample]:
    """Programs made here: few bytes that are all structure, so that many of them can be tried."""
    found = [
        Sample("add", pte_writer.dumps(add_program())),
        Sample("every kind", pte_writer.dumps(every_kind(), inline=True)),
    ]
    builders = {"residual": graphs.residual(), "two inputs": graphs.two_inputs(), "symbolic": graphs.symbolic()}
    builders["transformer"] = graphs.transformer(seq=6, context=12, dim=32, heads=2, kv_heads=1, hidden=32, layers=1)
    for name, b in builders.items():
        vk = b.vk()
        constants = [b.bytes_of(i).read() for i in range(len(vk.constants))]
        found.append(Sample(name, pte_writer.dumps(program_of(vk, constants, dynamic=True))))
    return found


def judge(data: bytes, k: int) -> str:
    """Read, inspect, fuse and plan; how far it came."""
    try:
        program = pte.loads(data)
    except RunError as error:
        return type(error).__name__
    profile = (GPU, SOFTWARE, PLAIN)[k % 3]
    limits = Limits(profile=profile, subgroups=profile is SOFTWARE, software=profile is not GPU)
    try:
        inspect(program, limits)
        for method in program.methods:
            for delegate in method.delegates:
                planned(delegate, limits)
                planned(delegate, limits, fuse=False)
    except RunError as error:
        return f"read, then {type(error).__name__}"
    return "planned"


def judge_run(data: bytes, device: Device, *, fuse: bool) -> str:
    """Read, load and run twice, with zeros as inputs; how far it came."""
    try:
        program = pte.loads(data)
    except RunError:
        return "not read"
    try:
        model = Model(program, device, fuse=fuse)
        for rows in (3, 1):
            inputs = []
            for spec in model.inputs:
                dims = spec.dims if spec.dynamism == "static" else tuple(min(d, rows) for d in spec.dims)
                if np.prod(dims, dtype=np.float64) > LARGEST_INPUT:
                    return "too large to run"
                inputs.append(np.zeros(dims, spec.dtype if spec.dtype in np.sctypeDict else "float32"))
            model.run(inputs)
    except RunError as error:
        return f"read, then {type(error).__name__}"
    return "run"
