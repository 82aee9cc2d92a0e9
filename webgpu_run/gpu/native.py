"""What every call does, through wgpu's C functions: record, submit, wait, read back.

The only module that knows wgpu-py's private attributes; tests/test_native.py names them and says what to do when one is
gone. There are two reasons to go below wgpu-py's objects. Recording a dispatch through them takes three times as long.
And their map submits an empty command buffer and waits for the whole queue, so it would also wait for a step that is
queued ahead. Here a thread blocks in the driver until one submission is done, while the caller waits on a lock, which
Ctrl-C interrupts.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import queue
import re
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..errors import DeviceError

Copy = tuple[Any, int, Any, int, int]  # source buffer and offset, target buffer and offset, bytes
Staging = tuple[tuple[Any, Any, Any], ...]  # copies from rows of a buffer to layers of a texture
Offsets = tuple[int, Any]  # how many bindings of a bind group have a dynamic offset, and the offsets as a C array
# Handles of pipeline and bind group, grid, copies before it, dynamic offsets
RecordedDispatch = tuple[Any, Any, int, int, int, Staging, Offsets]
RecordedPass = tuple[Sequence[Copy], Iterable[RecordedDispatch], Sequence[Copy]]  # a pass, the copies before and after
AT_EXIT = 30.0  # seconds to wait for the device at the end of the process
LATE = 5.0  # seconds to wait for a map callback that wgpu-py's own polling thread has taken but not yet made


def handle(wrapped: Any) -> Any:
    """The C handle of one of wgpu-py's objects, valid as long as that object is alive."""
    return wrapped._internal


@functools.cache
def ensure_instance(*, gl: bool) -> None:
    """Create wgpu's instance, which lives as long as the process. A second one is created only if an instance without
    OpenGL exists and OpenGL is asked for.
    """
    from wgpu.backends.wgpu_native import _helpers, extras

    if _helpers._the_instance is None or gl:
        _helpers._the_instance = None
        extras.set_instance_extras(backends=["All" if gl else "Primary"])


@contextlib.contextmanager
def another_instance() -> Iterator[None]:
    """Adapters that are listed in this block belong to an instance of their own, which lives as long as their devices.

    Mesa's software driver runs one dispatch at a time for each instance.
    """
    from wgpu.backends.wgpu_native import _helpers, extras, lib

    first, _helpers._the_instance = _helpers._the_instance, None
    try:
        extras.set_instance_extras(backends=["Primary"])
        yield
    finally:
        if _helpers._the_instance is not None:
            lib.wgpuInstanceRelease(_helpers._the_instance)
        _helpers._the_instance = first


@functools.cache
def shorten_parsing() -> None:
    """Let cffi parse a C type with only those declarations that it names.

    For every type that is new to it, cffi parses the typedefs of all of WebGPU's headers again. A run meets about 50
    types, so without this more than half of the time from start to output would be parsing. The names are private to
    cffi: a version that has others is left as it is.
    """
    from wgpu.backends.wgpu_native import ffi

    parser: Any = getattr(ffi, "_parser", None)
    if not (hasattr(parser, "_declarations") and hasattr(parser, "parse_type")):
        return
    parse_with_all = parser.parse_type

    def parse_type(text: str) -> Any:
        every = parser._declarations
        words = re.findall(r"\w+", text)
        names = {f"{kind} {word}" for word in words for kind in ("typedef", "struct", "union", "enum")}
        parser._declarations = {name: every[name] for name in names & every.keys()}
        try:
            return parse_with_all(text)
        finally:
            parser._declarations = every

    parser.parse_type = parse_type


def instance() -> Any:
    """wgpu's instance, None before it is created."""
    from wgpu.backends.wgpu_native import _helpers

    return _helpers._the_instance


_was_forked = False


def check_process() -> None:
    """Refuse to use wgpu in a child of fork(): the driver's threads exist only in the parent, and a call would hang."""
    if _was_forked:
        raise DeviceError(
            "the GPU was in use before fork(), so this child process can't use it",
            hint='start processes with multiprocessing.get_context("spawn"), or fork before the first model is loaded',
        )


def _after_fork() -> None:
    global _was_forked
    _was_forked = _was_forked or instance() is not None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Mapping:
    """The map request that is being waited for, and its result. The callback of an abandoned request is ignored.

    `done` is a lock, released when the result is there. An Event is written in Python: a Ctrl-C inside it can leave its
    own lock taken for ever.
    """

    def __init__(self) -> None:
        self.serial, self.status, self.done = 0, 0, threading.Lock()

    def begin(self) -> int:
        self.serial += 1
        self.status = 0
        self.done = threading.Lock()
        self.done.acquire()
        return self.serial

    def set(self, serial: int, status: int) -> None:
        if serial == self.serial:
            self.status = status
            self.done.release()


_Requests = queue.SimpleQueue[tuple[Any, Any, threading.Lock] | None]


def _serve(poll: Any, requests: _Requests) -> None:
    """Wait for submissions, one after another; ends at None."""
    while request := requests.get():
        device, submission, done = request
        poll(handle(device), True, submission)
        done.release()
        del request, device, submission  # the device may be released while this thread waits for the next request


_waiters: weakref.WeakKeyDictionary[threading.Thread, _Requests] = weakref.WeakKeyDictionary()


@atexit.register
def _end_waiters() -> None:
    """Let submitted work finish before the process ends: a driver that is still compiling or computing while its
    library is taken down may crash or hang.
    """
    for waiter, requests in list(_waiters.items()):
        requests.put(None)
        waiter.join(AT_EXIT)


def _let_go(device: Any, requests: _Requests) -> None:
    """End the thread, and let the device be released with its last buffer. wgpu-py's device and its queue refer to the
    device, so these and a thread of wgpu-py would otherwise stay until the garbage collector runs.
    """
    requests.put(None)
    device._device = device.queue._device = None


class Native:
    """The device's queue, and the thread that waits for it, which ends with this object."""

    def __init__(self, device: Any) -> None:
        from wgpu.backends.wgpu_native import ffi, lib
        from wgpu.backends.wgpu_native._api import libf  # the functions of `lib`, with errors raised

        self._ffi, self._lib, self._libf = ffi, lib, libf
        self._void_pointer = ffi.typeof(ffi.NULL)
        self.lock = threading.RLock()  # held for a whole call: threads that share the device wait for each other
        self._wrapped = device
        self._device, self._queue = handle(device), handle(device.queue)
        self._mapping = mapping = _Mapping()

        def on_mapped(status: int, message: Any, serial: Any, unused: Any) -> None:
            mapping.set(int(ffi.cast("intptr_t", serial)), status)  # parsed by wgpu-py: a new name costs 12 ms

        self._callback = ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)", on_mapped)
        self._info = ffi.new("WGPUBufferMapCallbackInfo *")
        self._info.mode, self._info.callback = lib.WGPUCallbackMode_AllowProcessEvents, self._callback
        self._requests: _Requests = queue.SimpleQueue()
        # The thread has no reference to this object, which would keep it and the device alive.
        waiter = threading.Thread(target=_serve, args=(lib.wgpuDevicePoll, self._requests), daemon=True, name="waiter")
        waiter.start()
        _waiters[waiter] = self._requests
        weakref.finalize(self, _let_go, device, self._requests).atexit = False

    def submit(self, *commands: Any) -> Any:
        """Submit command buffers and all writes made so far. Returns the submission index, for `until`."""
        buffers = self._ffi.new("WGPUCommandBuffer[]", commands)
        index = self._libf.wgpuQueueSubmitForIndex(self._queue, len(commands), buffers)
        return self._ffi.new("WGPUSubmissionIndex *", index)

    def write(self, buffer: Any, offset: int, data: memoryview) -> None:
        """Copy bytes, a multiple of four, into a buffer; the next submission sees them."""
        with self._ffi.from_buffer(data) as pointer:  # released here, because an error's traceback would keep it alive
            self._libf.wgpuQueueWriteBuffer(self._queue, buffer._internal, offset, pointer, data.nbytes)

    def record(self, parts: Iterable[RecordedPass]) -> Any:
        """A command buffer with these passes; errors in it are raised when it is finished."""
        lib, null = self._lib, self._ffi.NULL
        encoder = self._ffi.gc(lib.wgpuDeviceCreateCommandEncoder(self._device, null), lib.wgpuCommandEncoderRelease)
        for before, dispatches, after in parts:
            self._copy(encoder, before)
            self._pass(encoder, dispatches)
            self._copy(encoder, after)
        return self._ffi.gc(self._libf.wgpuCommandEncoderFinish(encoder, null), lib.wgpuCommandBufferRelease)

    def _copy(self, encoder: Any, copies: Sequence[Copy]) -> None:
        for source, at, target, to, nbytes in copies:
            self._lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, source._internal, at, target._internal, to, nbytes)

    def _pass(self, encoder: Any, dispatches: Iterable[RecordedDispatch]) -> None:
        """One compute pass; staging copies split it, because copies can't be recorded inside a pass."""
        lib, null = self._lib, self._ffi.NULL
        one_pass = lib.wgpuCommandEncoderBeginComputePass(encoder, null)
        set_pipeline, set_group, dispatch, end, release = (
            lib.wgpuComputePassEncoderSetPipeline,
            lib.wgpuComputePassEncoderSetBindGroup,
            lib.wgpuComputePassEncoderDispatchWorkgroups,
            lib.wgpuComputePassEncoderEnd,
            lib.wgpuComputePassEncoderRelease,
        )
        last = None
        for pipeline, group, x, y, z, staging, (count, offsets) in dispatches:
            if staging:
                end(one_pass)
                release(one_pass)
                self.stage(encoder, staging)
                one_pass, last = lib.wgpuCommandEncoderBeginComputePass(encoder, null), None
            if pipeline is not last:
                set_pipeline(one_pass, pipeline)
                last = pipeline
            set_group(one_pass, 0, group, count, offsets)
            dispatch(one_pass, x, y, z)
        end(one_pass)
        release(one_pass)

    def offsets(self, count: int, offset: int) -> Offsets:
        """The same dynamic offset for `count` bindings."""
        return count, self._ffi.new("uint32_t[]", [offset] * count) if count else self._ffi.NULL

    def staging(self, buffer: Any, texture: Any, width: int, rows: int, height: int) -> Staging:
        """Copies of `rows` rows of texels from a buffer to a texture, `height` rows to a layer."""
        new, pitch, copies = self._ffi.new, width * 16, []
        for first in range(0, rows, height):
            live = min(height, rows - first)
            source = new("WGPUTexelCopyBufferInfo *")
            source.buffer = buffer._internal
            source.layout.offset, source.layout.bytesPerRow, source.layout.rowsPerImage = first * pitch, pitch, live
            target = new("WGPUTexelCopyTextureInfo *")
            target.texture, target.origin.z = texture._internal, first // height
            target.aspect = self._lib.WGPUTextureAspect_All
            copies.append((source, target, new("WGPUExtent3D *", (width, live, 1))))
        return tuple(copies)

    def stage(self, encoder: Any, staging: Staging) -> None:
        """Record the copies into an encoder, given as a C handle."""
        for copy in staging:
            self._lib.wgpuCommandEncoderCopyBufferToTexture(encoder, *copy)

    def until(self, submission: Any = None) -> None:
        """Block until this submission is done, or all submissions are."""
        done = threading.Lock()
        done.acquire()
        self._requests.put((self._wrapped, self._ffi.NULL if submission is None else submission, done))
        done.acquire()

    def read(self, buffer: Any, nbytes: int, submission: Any) -> bytes:
        """The first bytes of a staging buffer that this submission wrote.

        If this raises, the buffer may be mapped or waiting to be: it must not be used again.
        """
        mapping = self._mapping
        self._info.userdata1 = self._ffi.cast(self._void_pointer, mapping.begin())
        self._libf.wgpuBufferMapAsync(buffer._internal, self._lib.WGPUMapMode_Read, 0, nbytes, self._info[0])
        self.until(submission)
        mapping.done.acquire(timeout=LATE)
        if mapping.status != self._lib.WGPUMapAsyncStatus_Success:
            raise RuntimeError(f"a buffer can't be read (status {mapping.status})")
        pointer = self._libf.wgpuBufferGetMappedRange(buffer._internal, 0, nbytes)
        data = bytes(self._ffi.buffer(pointer, nbytes))
        self._libf.wgpuBufferUnmap(buffer._internal)
        return data
