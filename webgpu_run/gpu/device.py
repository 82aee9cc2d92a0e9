"""The wgpu device: limits, buffers, textures, pipelines, submission, and wgpu's errors as ours.

It keeps four rules, because wgpu aborts the process when one is broken: no buffer of size zero is created or bound, an
encoder is used once, a buffer in flight is neither mapped nor destroyed, and nothing is submitted to a lost device.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import DeviceError
from ..ops import wgsl
from ..ops.limits import GPU, PLAIN, SOFTWARE, WIDE, Limits
from ..ops.wgsl import Consts, Kernel
from ..shapes import Array, align
from .adapters import THREADS, Adapter, list_adapters, load_wgpu, pick
from .native import Native, RecordedPass, another_instance, check_process, handle

_FEATURES = ("timestamp-query", "shader-f16", "subgroup")
# Uploads go through staging memory that wgpu never frees: uploading in small parts, few at a time, keeps it small.
_PART, _STAGED = 128 << 10, 512 << 10
PER_TURN = ("slots", "how")  # bindings with a dynamic offset: every turn of a submission has its own, see turns.py
TEXEL_BYTES = {"rgba32float": 16, "rgba32uint": 16, "rgba16float": 8}


class _LostFlag(logging.Handler):
    """wgpu only logs the loss of a device; this remembers it."""

    lost = False

    def emit(self, record: logging.LogRecord) -> None:
        if "DEVICE LOST" in record.getMessage():
            self.lost = True


class Image:
    """A storage texture with layers; a call binds the first layers, up to the last one it needs."""

    def __init__(self, texture: Any) -> None:
        self.texture = texture
        self.used = 0  # layers that were ever bound; the others are still as the driver created them

    def view(self, layers: int) -> Any:
        layers = min(layers, self.texture.size[2])
        self.used = max(self.used, layers)
        return self.texture.create_view(dimension="2d-array", array_layer_count=layers)


def has_dot4(backend: str) -> bool:
    """Whether naga translates dot4I8Packed to an instruction, not to operations on single bytes.

    Metal has none, and Direct3D only above the shader model of wgpu's default compiler.
    """
    return backend == "Vulkan"


class Device:
    """A device and its caches of pipelines and bind group layouts."""

    def __init__(self, adapter: Adapter) -> None:
        self.wgpu = load_wgpu()
        self.adapter = adapter
        self.features = tuple(f for f in _FEATURES if f in adapter.features)
        self._lost = _LostFlag()
        log = logging.getLogger("wgpu")
        log.addHandler(self._lost)
        log.propagate = False
        with self._errors("the device can't be opened"):
            self.handle = adapter.handle.request_device_sync(required_features=list(self.features))
            self.native = Native(self.handle)
        weakref.finalize(self.native, log.removeHandler, self._lost)
        lim = self.handle.limits
        self.limits = Limits(
            max_workgroups=lim["max-compute-workgroups-per-dimension"],
            max_invocations=lim["max-compute-invocations-per-workgroup"],
            max_workgroup_bytes=lim["max-compute-workgroup-storage-size"],
            max_binding=lim["max-storage-buffer-binding-size"],
            max_uniform=lim["max-uniform-buffer-binding-size"],
            uniform_align=lim["min-uniform-buffer-offset-alignment"],
            storage_align=lim["min-storage-buffer-offset-alignment"],
            max_texture=lim["max-texture-dimension-2d"],
            max_layers=lim["max-texture-array-layers"],
            subgroups="subgroup" in self.features,
            f16="shader-f16" in self.features,
            dot4=has_dot4(adapter.backend),
            software=adapter.software,
        )
        self.max_buffer: int = lim["max-buffer-size"]
        self.timestamps = "timestamp-query" in self.features
        self.tuned = "default"  # how the profile was chosen, see tune.py
        self.allocated = 0  # bytes of all buffers and textures requested so far
        self._layouts: dict[tuple[tuple[int, str, bool], ...], Any] = {}
        self._pipelines: dict[tuple[str, Consts], Any] = {}
        self.compiled: set[int] = set()  # ids of pipelines that have run
        self._pending = 0
        lanes = self._subgroup_size()
        software = WIDE if lanes >= WIDE.lanes else SOFTWARE if lanes >= SOFTWARE.lanes else PLAIN
        profile = software if adapter.software else GPU
        self.limits = replace(self.limits, profile=profile, subgroups=lanes >= 8)

    def _subgroup_size(self) -> int:
        """Lanes per subgroup, measured; 0 if lanes are not in the order of invocations."""
        if not self.limits.subgroups:
            return 0
        kernel = wgsl.load("subgroup_size")
        out = self.buffer(256)
        encoder = self.handle.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(self.pipeline(kernel, ()))
        compute.set_bind_group(0, self.bind_group(kernel, (), [(out, 0, 256)]))
        compute.dispatch_workgroups(1)
        compute.end()
        self.submit(encoder)
        return int(np.frombuffer(self.read(out, 256), np.uint32).min())

    @property
    def name(self) -> str:
        return f"{self.adapter.name} ({self.adapter.backend})"

    @property
    def lock(self) -> threading.RLock:
        """Held for a whole call. Devices with other limits that are copies of this one share it."""
        return self.native.lock

    @property
    def has_one_thread(self) -> bool:
        """Whether this is Mesa's software driver and computes in one thread, see `adapters.suit`."""
        return self.adapter.software and "llvmpipe" in self.adapter.name and os.environ.get(THREADS) == "0"

    @property
    def overlaps(self) -> bool:
        """Whether the host can prepare a call while another runs. A software driver needs every core itself."""
        return not self.adapter.software or self.has_one_thread

    def twin(self) -> Device:
        """Another device on this adapter, with an instance of the driver of its own: both compute at the same time."""
        with another_instance():
            adapter = next((a for a in list_adapters(gl=False) if a.key == self.adapter.key), None)
            if adapter is None:
                raise DeviceError(f"a second device can't be opened on {self.name}")
            other = Device(adapter)
        other.limits, other.tuned = self.limits, self.tuned
        return other

    @property
    def pipeline_count(self) -> int:
        return len(self._pipelines)

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (self.wgpu.GPUError, RuntimeError, MemoryError, OverflowError) as err:
            text = " ".join(str(err).split()) or type(err).__name__
            if "memory" in text.lower() or "new thread" in text:  # a thread needs memory for its stack
                raise DeviceError(f"out of GPU memory: {what}") from err
            if self._lost.lost or "lost" in text.lower():
                raise DeviceError(f"the device was lost: {what}") from err
            raise DeviceError(f"{what}: {text[:400]}") from err

    def buffer(self, nbytes: int, what: str = "buffer", *, read: bool = False) -> Any:
        """A buffer for storage, uniforms and copies; with `read`, a staging buffer that the host can map."""
        size = max(16, align(nbytes, 16))
        if size > self.max_buffer:
            raise DeviceError(f"{what} needs {size:,} bytes, the adapter's largest buffer is {self.max_buffer:,}")
        use = self.wgpu.BufferUsage
        usage = use.MAP_READ | use.COPY_DST
        if not read:
            usage = use.STORAGE | use.UNIFORM | use.COPY_SRC | use.COPY_DST
        with self._errors(f"{what} of {size:,} bytes"):
            buffer = self.handle.create_buffer(size=size, usage=usage)
        self.allocated += size
        return buffer

    def write(self, buffer: Any, data: Array | bytes | memoryview, offset: int = 0) -> None:
        """Copy bytes into a buffer, padded to a multiple of 4; every buffer has room for the padding."""
        if isinstance(data, np.ndarray):
            data = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        view = memoryview(data)
        if not view.nbytes:
            return
        with self._errors("upload"):
            for at in range(0, view.nbytes, _PART):
                part = view[at : at + _PART]
                if part.nbytes % 4:
                    part = memoryview(bytes(part) + b"\0" * (-part.nbytes % 4))
                self.native.write(buffer, offset + at, part)
                self._flush(part.nbytes)

    def texture(self, rows: Array, what: str = "texture") -> Any:
        """An rgba32uint texture from [height, width, 4] uint32."""
        height, width = rows.shape[:2]
        if max(height, width) > self.limits.max_texture:
            raise DeviceError(
                f"{what}: {width} x {height} texels, the adapter's limit is {self.limits.max_texture} a side"
            )
        use = self.wgpu.TextureUsage
        with self._errors(f"{what} of {rows.nbytes:,} bytes"):
            texture = self.handle.create_texture(
                size=(width, height, 1),
                format="rgba32uint",
                usage=use.TEXTURE_BINDING | use.STORAGE_BINDING | use.COPY_DST,
            )
            step = max(1, _PART // (width * 16))
            for y in range(0, height, step):
                part = np.ascontiguousarray(rows[y : y + step])
                self.handle.queue.write_texture(
                    {"texture": texture, "origin": (0, y, 0)},
                    part,
                    {"bytes_per_row": width * 16, "rows_per_image": part.shape[0]},
                    (width, part.shape[0], 1),
                )
                self._flush(part.nbytes)
        self.allocated += rows.nbytes
        return texture.create_view()

    def image(self, width: int, height: int, layers: int, what: str = "image", texel: str = "rgba32float") -> Image:
        """A storage texture that kernels write and read, initially zero."""
        nbytes = width * height * layers * TEXEL_BYTES[texel]
        if max(height, width) > self.limits.max_texture or layers > self.limits.max_layers:
            most = f"{self.limits.max_texture} a side and {self.limits.max_layers} layers"
            raise DeviceError(f"{what}: {width} x {height} x {layers} texels, the adapter's limit is {most}")
        use = self.wgpu.TextureUsage
        with self._errors(f"{what} of {nbytes:,} bytes"):
            texture = self.handle.create_texture(
                size=(width, height, layers),
                format=texel,
                usage=use.STORAGE_BINDING | use.COPY_SRC | use.COPY_DST,  # copies are for comparing two runs
            )
        self.allocated += nbytes
        return Image(texture)

    def fill_image(self, image: Image, value: float = 0.0) -> None:
        """Set every texel of the layers that kernels may have written."""
        width, height, _ = image.texture.size
        pitch = width * TEXEL_BYTES[image.texture.format]
        row = np.full((height, width * 4), value, np.float32 if pitch == width * 16 else np.float16)
        layout = {"bytes_per_row": pitch, "rows_per_image": height}
        with self._errors("upload"):
            for layer in range(image.used):
                target = {"texture": image.texture, "origin": (0, 0, layer)}
                self.handle.queue.write_texture(target, row, layout, (width, height, 1))
                self._flush(row.nbytes)

    def write_image(self, image: Image, data: bytes | memoryview) -> None:
        """Set the texels of the first layers: the bytes that `read_image` returned for them."""
        width, height, _ = image.texture.size
        pitch = width * TEXEL_BYTES[image.texture.format]
        size, layout = pitch * height, {"bytes_per_row": pitch, "rows_per_image": height}
        with self._errors("upload"):
            for layer in range(len(data) // size):
                target = {"texture": image.texture, "origin": (0, 0, layer)}
                part = memoryview(data)[layer * size : (layer + 1) * size]
                self.handle.queue.write_texture(target, part, layout, (width, height, 1))
                self._flush(size)
        image.used = max(image.used, len(data) // size)

    def read_image(self, image: Image, layers: int | None = None) -> Any:
        """The texels of the first layers of an image, or of all, by layer, then by row."""
        width, height, most = image.texture.size
        layers = most if layers is None else layers
        with self._errors("readback"):
            self.check()
            layout = {"bytes_per_row": width * TEXEL_BYTES[image.texture.format], "rows_per_image": height}
            return self.handle.queue.read_texture({"texture": image.texture}, layout, (width, height, layers))

    def _flush(self, nbytes: int) -> None:
        """Submit pending uploads once they take enough staging memory: it is freed only after a submission."""
        self._pending += nbytes
        if self._pending >= _STAGED:
            self._pending = 0
            self.check()
            self.native.until(self.native.submit())

    def submit(self, encoder: Any) -> Any:
        """Finish one of wgpu-py's encoders and submit it. Returns the submission index."""
        self.check()
        self._pending = 0
        with self._errors("submit"):
            commands = encoder.finish()  # must stay alive until it is submitted
            return self.native.submit(handle(commands))

    def call(self, *parts: RecordedPass) -> Any:
        """Record and submit passes with the copies around them. Returns the submission index."""
        self.check()
        self._pending = 0
        with self._errors("submit"):
            return self.native.submit(self.native.record(parts))

    def read_mapped(self, staging: Any, submission: Any, dtype: np.dtype[Any], dims: tuple[int, ...]) -> Array:
        """What a submission copied to a staging buffer; waits for that submission only."""
        count = math.prod(dims)
        if not count:
            return np.zeros(dims, dtype)
        nbytes = align(count * dtype.itemsize, 8)
        self.check()
        with self._errors("readback"):
            data = self.native.read(staging, nbytes, submission)
        return np.frombuffer(data, dtype, count).reshape(dims)

    def read(self, buffer: Any, nbytes: int) -> bytes:
        """The first bytes of a buffer, after all submitted work is done."""
        self.check()
        with self._errors("readback"):
            return bytes(self.handle.queue.read_buffer(buffer, 0, nbytes))

    def wait(self) -> None:
        """Wait until all submitted work is done."""
        self.check()
        self.native.until()

    def until(self, submission: Any) -> None:
        """Wait until a submission is done."""
        self.check()
        self.native.until(submission)

    def zero(self, buffers: Sequence[Any]) -> None:
        """Fill buffers with zeros."""
        encoder = self.handle.create_command_encoder()
        for buffer in buffers:
            encoder.clear_buffer(buffer)
        self.submit(encoder)

    def check(self) -> None:
        """Refuse to go on if the device is lost: a submission to it would abort the process. Also after fork()."""
        check_process()
        if self._lost.lost:
            raise DeviceError("the device was lost", hint="a driver reset or a long dispatch can cause this; run again")

    def layout(self, kernel: Kernel, consts: Consts) -> Any:
        """The bind group layout that follows from the kernel's declarations."""
        bindings = tuple((b.index, b.kind, b.name in PER_TURN) for b in kernel.bindings(consts))
        if bindings not in self._layouts:
            forms: dict[str, dict[str, Any]] = {
                "read": {"buffer": {"type": "read-only-storage"}},
                "write": {"buffer": {"type": "storage"}},
                "uniform": {"buffer": {"type": "uniform"}},
                "texture": {"texture": {"sample_type": "uint"}},
            }
            access = {"read": "read-only", "write": "write-only"}
            for image in (kind for _, kind, _ in bindings if kind.startswith("image")):
                _, shape, texel, use = image.split()
                form = {"access": access[use], "format": texel, "view_dimension": shape}
                forms[image] = {"storage_texture": form}
            stage = self.wgpu.ShaderStage.COMPUTE
            entries = [{"binding": i, "visibility": stage, **forms[kind]} for i, kind, _ in bindings]
            for entry, (_, _, is_moved) in zip(entries, bindings, strict=True):
                if is_moved:
                    entry["buffer"] = {**entry["buffer"], "has_dynamic_offset": True}
            self._layouts[bindings] = self.handle.create_bind_group_layout(entries=entries)
        return self._layouts[bindings]

    def pipeline(self, kernel: Kernel, consts: Consts) -> Any:
        """The pipeline for (kernel, constants), created once."""
        key = (kernel.name, consts)
        pipeline = self._pipelines.get(key)
        if pipeline is None:
            with self._errors(f"kernel {kernel.name} does not compile"):
                module = self.handle.create_shader_module(code=kernel.text(consts), label=kernel.name)
                layout = self.handle.create_pipeline_layout(bind_group_layouts=[self.layout(kernel, consts)])
                pipeline = self.handle.create_compute_pipeline(
                    layout=layout, compute={"module": module, "entry_point": "main"}, label=kernel.name
                )
            self._pipelines[key] = pipeline
        return pipeline

    def bind_group(self, kernel: Kernel, consts: Consts, resources: Sequence[tuple[Any, ...]]) -> Any:
        """A bind group of resources in binding order: (buffer, offset, nbytes), (image, layers) or (texture view,)."""
        entries = []
        for b, (first, *part) in zip(kernel.bindings(consts), resources, strict=True):
            bound = first.view(*part) if isinstance(first, Image) else first
            if len(part) == 2:
                bound = {"buffer": first, "offset": part[0], "size": part[1]}
            entries.append({"binding": b.index, "resource": bound})
        with self._errors(f"kernel {kernel.name}: binding"):
            return self.handle.create_bind_group(layout=self.layout(kernel, consts), entries=entries)


def open_device(choice: str | None = None) -> Device:
    """A device on the adapter that `choice` names, or on the best adapter."""
    return Device(pick(choice))
