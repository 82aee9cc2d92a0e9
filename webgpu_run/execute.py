"""Runs a planned graph on a device: memory, constants, the parameter arena, and one command stream a call."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import kernel as kernels
from .device import Device
from .errors import RunError
from .graph import GPU_DTYPE, SLOTS, Graph, Node
from .op import Args, Array, Packed, Plan, Resource, Step
from .resize import Delta, Engine
from .shapes import align, prod

Progress = Callable[[str, int, int], None]  # what, done, total


@dataclass(slots=True)
class Dispatch:
    """One measured dispatch."""

    node: int
    op: str
    kernel: str
    route: str
    grid: tuple[int, int, int]
    gpu_ns: int
    work: tuple[int, int]
    dims: tuple[int, ...] = ()  # live dims of the node's first output
    begin_ns: int = 0  # on the device's own clock


@dataclass(slots=True)
class CallStats:
    """Where one call's time went."""

    host_ns: int = 0  # everything but waiting for the device
    wait_ns: int = 0
    compile_ns: int = 0  # planning and making pipelines, part of host_ns
    gpu_ns: int = 0  # sum of dispatches, when timed
    arena_bytes: int = 0
    upload_bytes: int = 0
    read_bytes: int = 0
    dispatches: int = 0
    timed: list[Dispatch] = field(default_factory=list)


@dataclass(slots=True)
class _Command:
    pipeline: Any
    group: Any
    grid: tuple[int, int, int]
    node: int
    step: Step
    params_at: int  # where its uniforms are in the arena
    objects: tuple[Any, Any]  # keeps the wgpu objects behind the handles alive


class Memory:
    """Which roots share a buffer: greedy by lifetime, so that no live tensor is ever overwritten."""

    def __init__(self, graph: Graph, sizes: Mapping[int, int]) -> None:
        last: dict[int, int] = {}
        for node in graph.nodes:
            for v in (*node.tensors.values(), *node.outs):
                if v in graph.tensors:
                    last[graph.tensors[v].root] = node.index
        own = {graph.tensors[v].root for v in (*graph.input_ids, *graph.output_ids) if v in graph.tensors}
        self.place: dict[int, int] = {}  # root -> buffer
        self.sizes: list[int] = []
        free: list[int] = []

        def take(root: int, shared: bool) -> None:
            size = sizes[root]
            fits = [b for b in free if shared]
            if fits:  # the smallest that holds it, else the largest, grown
                best = min(fits, key=lambda b: (self.sizes[b] < size, abs(self.sizes[b] - size)))
                free.remove(best)
                self.sizes[best] = max(self.sizes[best], size)
                self.place[root] = best
            else:
                self.place[root] = len(self.sizes)
                self.sizes.append(size)

        for root in sorted(own):
            if graph.tensors[root].constant < 0:
                take(root, False)
        for node in graph.nodes:
            roots = [graph.tensors[v].root for v in node.outs if v in graph.tensors]
            for root in roots:
                if root not in self.place and graph.tensors[root].constant < 0:
                    take(root, True)
            for v in {*node.tensors.values(), *node.outs}:
                root = graph.tensors[v].root if v in graph.tensors else -1
                if root in self.place and root not in own and last[root] == node.index and self.place[root] not in free:
                    free.append(self.place[root])


class Executor:
    """GPU state of one graph: buffers at their largest, bind groups made once, the arena, the command list."""

    def __init__(self, engine: Engine, device: Device, progress: Progress | None = None) -> None:
        self.engine, self.graph, self.device = engine, engine.graph, device
        graph = self.graph
        self.limits = device.limits
        sizes = {
            v: prod(t.max_dims) * 4 + 1024 for v, t in graph.tensors.items() if t.root == v and t.constant < 0
        }  # 1 KiB of slack: kernels that bind a row as a uniform read whole vectors
        for node, plan in zip(graph.nodes, engine.plans, strict=True):
            for step in plan.steps:
                for name, window in step.windows:
                    v = node.tensors.get(name)
                    root = graph.tensors[v].root if v is not None else -1
                    if root in sizes:
                        sizes[root] = max(sizes[root], window.offset + window.nbytes)
        self.memory = Memory(graph, sizes)
        made = [device.buffer(n, "activation") for n in self.memory.sizes]
        self.buffers: dict[int, Any] = {root: made[b] for root, b in self.memory.place.items()}
        self.state: list[Any] = []
        self._resources: dict[tuple[int, str], Any] = {}
        self._packs: dict[Any, Any] = {}
        self._constants: dict[Any, Any] = {}
        self._load(progress)
        self._slot_bytes = 4 * SLOTS
        self._arena_at: list[int] = []
        least = max(4 * device.limits.uniform_align, 256)  # other routes of a node may need more than its first plan
        at = align(self._slot_bytes, device.limits.uniform_align)
        for plan in engine.plans:
            self._arena_at.append(at)
            at += max(least, sum(self._params_room(step) for step in plan.steps))
        self.arena = np.zeros(at, np.uint8)
        self._arena_buffer = device.buffer(at, "parameters")
        self._written = np.zeros(0, np.uint8)
        self._groups: dict[Any, Any] = {}
        self._lists: list[list[_Command]] = [[] for _ in graph.nodes]
        self._commands: list[_Command] = []
        self._stale = True
        self._pending: dict[int, list[_Command]] = {}
        self._staging: dict[int, Any] = {}
        self._queries: Any = None
        self.readbacks: tuple[int, ...] = graph.output_ids

    # -- constants -----------------------------------------------------------------------------------------------

    def _load(self, progress: Progress | None) -> None:
        graph = self.graph
        packing = [n for n in graph.nodes if n.op.pack or n.op.resources]
        for done, node in enumerate(packing):
            if progress:
                progress("weights", done, len(packing))
            args = self._static_args(node)
            if node.op.pack:
                self._pack(node, args)
            if node.op.resources:
                for name, resource in node.op.resources(args, self.limits).items():
                    self._resources[(node.index, name)] = self._resource(node, name, resource)
        for v, tensor in graph.tensors.items():
            if tensor.mutable and tensor.constant >= 0:
                self._constant_buffer(v)
        if progress and packing:
            progress("weights", len(packing), len(packing))

    def _static_args(self, node: Node) -> Args:
        tensors = self.graph.tensors
        dims = {name: tensors[v].max_dims for name, v in node.tensors.items()}
        dims |= {name: tensors[v].max_dims for name, v in zip(node.op.outs, node.outs, strict=True) if v in tensors}
        return Args(dims, node.attrs, dtypes={name: tensors[v].dtype for name, v in node.tensors.items()}, slots=node.slots)

    def _pack(self, node: Node, args: Args) -> None:
        """Packed constants of a node; equal inputs are packed once, equal results are uploaded once."""
        graph = self.graph
        assert node.op.pack
        raw = {n: v for n, v in node.tensors.items() if graph.is_constant(v)}
        ids = tuple((n, graph.tensors[graph.tensors[v].root].constant) for n, v in raw.items())
        key = (node.op.pack, ids, tuple(sorted((k, str(v)) for k, v in node.attrs.items())))
        if key not in self._packs:
            packed = node.op.pack(args, {n: graph.constant(v) for n, v in raw.items()}, self.limits)
            self._packs[key] = {name: self._upload(name, item) for name, item in packed.items()}
        for name, resource in self._packs[key].items():
            self._resources[(node.index, name)] = resource

    def _upload(self, name: str, packed: Packed) -> Any:
        data = np.ascontiguousarray(packed.data)
        digest = (packed.texture, data.shape, hashlib.blake2b(data.view(np.uint8).data, digest_size=16).digest())
        if digest not in self._constants:
            if packed.texture:
                self._constants[digest] = self.device.texture(data, f"constant {name}")
            else:
                self._constants[digest] = buffer = self.device.buffer(data.nbytes, f"constant {name}")
                self.device.write(buffer, data)
        return self._constants[digest]

    def _resource(self, node: Node, name: str, resource: Resource) -> Any:
        if resource.state:
            buffer = self.device.buffer(resource.nbytes, f"{node.op.short} {name}")
            self.state.append(buffer)
            return buffer
        key = ("scratch", name)  # dispatches of one pass run in order, so all nodes may share it
        size = max(resource.nbytes, 16)
        if key not in self._constants or self._constants[key].size < size:
            self._constants[key] = self.device.buffer(size, f"scratch {name}")
        return self._constants[key]

    def _constant_buffer(self, v: int) -> Any:
        """A constant as kernels read it without packing: floats as f32, integers as i32."""
        root = self.graph.tensors[v].root
        if root not in self.buffers:
            data = self.graph.constant(root)
            data = data.astype(GPU_DTYPE[data.dtype.name], copy=False)
            buffer = self.device.buffer(data.nbytes, f"constant {root}")
            self.device.write(buffer, data)
            self.buffers[root] = buffer
            if self.graph.tensors[root].mutable:
                self.state.append(buffer)
        return self.buffers[root]

    # -- commands ------------------------------------------------------------------------------------------------

    def prepare(self, delta: Delta) -> None:
        """Pipelines and bind groups for new plans; raises before anything is committed."""
        self._pending = {i: self._make(self.graph.nodes[i], plan) for i, plan in delta.plans.items()}

    def commit(self) -> None:
        for i, commands in self._pending.items():
            self._lists[i] = commands
            for command in commands:
                data = command.step.uniform()
                self.arena[command.params_at : command.params_at + len(data)] = np.frombuffer(data, np.uint8)
        if self._pending:
            self._stale = True
        self._pending = {}

    def _make(self, node: Node, plan: Plan) -> list[_Command]:
        commands = []
        end = self._arena_at[node.index]
        for step in plan.steps:
            if 0 in step.grid:
                continue
            at, end = end, end + self._params_room(step)
            if end - self._arena_at[node.index] > self._room(node.index):
                raise RunError(f"{node.label}: the uniforms of {len(plan.steps)} dispatches are over their room")
            kernel = kernels.load(step.kernel)
            pipeline = self.device.pipeline(kernel, step.consts)
            key = (node.index, at, step.kernel, step.windows, step.rename)
            group = self._groups.get(key)
            if group is None:
                group = self.device.bind_group(kernel, step.consts, self._bindings(node, at, step, kernel))
                self._groups[key] = group
            commands.append(
                _Command(pipeline._internal, group._internal, step.grid, node.index, step, at, (pipeline, group))
            )
        return commands

    def _params_room(self, step: Step) -> int:
        return align(len(step.uniform()), self.limits.uniform_align)

    def _room(self, index: int) -> int:
        at = self._arena_at
        return (at[index + 1] if index + 1 < len(at) else self.arena.nbytes) - at[index]

    def _bindings(self, node: Node, params_at: int, step: Step, kernel: kernels.Kernel) -> list[Any]:
        windows, rename = dict(step.windows), dict(step.rename)
        out = []
        for binding in kernel.bindings(step.consts):
            name = rename.get(binding.name, binding.name)
            if name == "params":
                size = kernel.params.itemsize if kernel.params is not None else 16
                out.append((self._arena_buffer, params_at, size))
                continue
            if name == "slots":
                out.append((self._arena_buffer, 0, self._slot_bytes))
                continue
            resource = self._find(node, name)
            if binding.kind in ("texture", "image"):
                out.append(resource)
                continue
            window = windows.get(name)
            if window:
                if window.offset + window.nbytes > resource.size:
                    raise RunError(f"{node.label}: the window of {name} ends past its buffer")
                out.append((resource, window.offset, window.nbytes))
            else:
                size = resource.size
                if binding.kind != "uniform" and size > self.limits.max_binding:
                    raise RunError(f"{node.label}: {name} is {size:,} bytes, a binding holds {self.limits.max_binding:,}")
                out.append((resource, 0, size))
        return out

    def _find(self, node: Node, name: str) -> Any:
        if (node.index, name) in self._resources:
            return self._resources[(node.index, name)]
        if name in node.tensors:
            v = node.tensors[name]
        elif name in node.op.outs:
            v = node.outs[node.op.outs.index(name)]
        else:
            raise RunError(f"{node.label}: no argument {name}")
        root = self.graph.tensors[v].root
        if root in self.buffers:
            return self.buffers[root]
        return self._constant_buffer(v)

    # -- calls ---------------------------------------------------------------------------------------------------

    def upload(self, inputs: Sequence[Array], stats: CallStats) -> None:
        """Live bytes of the inputs; 64-bit ones are narrowed."""
        for v, array in zip(self.graph.input_ids, inputs, strict=True):
            root = self.graph.tensors[v].root
            data = np.ascontiguousarray(array, GPU_DTYPE[self.graph.tensors[v].dtype])
            if data.nbytes and root in self.buffers:
                self.device.write(self.buffers[root], data)
                stats.upload_bytes += data.nbytes

    def write_arena(self, stats: CallStats) -> None:
        """One write of what changed since the last one, or none."""
        values = np.asarray(self.engine.slot_values(), np.int32).view(np.uint8)
        self.arena[: values.nbytes] = values
        lo, hi = 0, self.arena.size
        if self._written.size:
            diff = np.flatnonzero(self.arena != self._written)
            if not diff.size:
                return
            lo, hi = int(diff[0]) & ~3, align(int(diff[-1]) + 1, 4)
        self.device.write(self._arena_buffer, self.arena[lo:hi], lo)
        if not self._written.size:
            self._written = np.zeros_like(self.arena)
        self._written[lo:hi] = self.arena[lo:hi]  # only now: a write that failed is tried again by the next call
        stats.arena_bytes += hi - lo

    def commands(self) -> list[_Command]:
        if self._stale:
            self._commands = [c for commands in self._lists for c in commands]
            self._stale = False
        return self._commands

    def execute(self, stats: CallStats, *, timed: bool = False) -> list[Array]:
        """Run the current plans; outputs at their live shapes."""
        device, handle = self.device, self.device.handle
        commands = self.commands()
        stats.dispatches = len(commands)
        encoder = handle.create_command_encoder()
        if timed and device.timestamps:
            self._encode_timed(encoder, commands)
        else:
            self._encode(encoder, commands)
        reads = []
        for v in self.readbacks:
            tensor = self.graph.tensors[v]
            nbytes = prod(self.engine.live[v]) * 4
            if nbytes:
                source = self._source(v)
                if v not in self._staging:
                    self._staging[v] = device.buffer(prod(tensor.max_dims) * 4, "readback", read=True)
                encoder.copy_buffer_to_buffer(source, 0, self._staging[v], 0, align(nbytes, 4))
            reads.append((v, nbytes))
            stats.read_bytes += nbytes
        device.check()
        with device._errors("submit"):
            handle.queue.submit([encoder.finish()])
        start = time.perf_counter_ns()
        outs = []
        for v, nbytes in reads:
            outs.append(self._read(v, nbytes))
        if not reads:
            device.wait()
        stats.wait_ns += time.perf_counter_ns() - start
        if timed and device.timestamps:
            self._collect(commands, stats)
        return outs

    def _source(self, v: int) -> Any:
        root = self.graph.tensors[v].root
        return self.buffers[root] if root in self.buffers else self._constant_buffer(v)

    def _read(self, v: int, nbytes: int) -> Array:
        tensor = self.graph.tensors[v]
        dims = self.engine.live[v]
        gpu = np.dtype(GPU_DTYPE[tensor.dtype])
        if not nbytes:
            return np.zeros(dims, gpu)
        staging = self._staging[v]
        with self.device._errors("readback"):
            staging.map_sync("READ", 0, align(nbytes, 8))
            data = np.frombuffer(staging.read_mapped(0, align(nbytes, 8), copy=False), gpu, nbytes // 4).reshape(dims).copy()
            staging.unmap()
        return data

    def _encode(self, encoder: Any, commands: Sequence[_Command]) -> None:
        """One pass through wgpu's C handles: a third of the cost of its Python objects, with errors raised by finish()."""
        from wgpu.backends.wgpu_native import ffi, lib

        compute = encoder.begin_compute_pass()
        handle, null = compute._internal, ffi.NULL
        set_pipeline, set_group, dispatch = (
            lib.wgpuComputePassEncoderSetPipeline,
            lib.wgpuComputePassEncoderSetBindGroup,
            lib.wgpuComputePassEncoderDispatchWorkgroups,
        )
        last = None
        for c in commands:
            if c.pipeline is not last:
                set_pipeline(handle, c.pipeline)
                last = c.pipeline
            set_group(handle, 0, c.group, 0, null)
            dispatch(handle, *c.grid)
        compute.end()

    def _encode_timed(self, encoder: Any, commands: Sequence[_Command]) -> None:
        """A pass a dispatch, each between two timestamps."""
        use = self.device.wgpu.BufferUsage
        if self._queries is None:
            self._queries = self.device.handle.create_query_set(type="timestamp", count=4096)
            self._resolved = self.device.handle.create_buffer(size=4096 * 8, usage=use.QUERY_RESOLVE | use.COPY_SRC)
        n = min(len(commands), 2048)
        for i, c in enumerate(commands):
            writes = {"query_set": self._queries, "beginning_of_pass_write_index": 2 * i, "end_of_pass_write_index": 2 * i + 1}
            compute = encoder.begin_compute_pass(timestamp_writes=writes) if i < n else encoder.begin_compute_pass()
            compute.set_pipeline(c.objects[0])
            compute.set_bind_group(0, c.objects[1])
            compute.dispatch_workgroups(*c.grid)
            compute.end()
        if n:
            encoder.resolve_query_set(self._queries, 0, 2 * n, self._resolved, 0)

    def _collect(self, commands: Sequence[_Command], stats: CallStats) -> None:
        n = min(len(commands), 2048)
        if not n:
            return
        ticks = np.frombuffer(self.device.handle.queue.read_buffer(self._resolved, 0, n * 16), np.uint64).reshape(n, 2)
        for c, (begin, end) in zip(commands, ticks, strict=False):
            node = self.graph.nodes[c.node]
            ns = max(0, int(end) - int(begin))
            stats.timed.append(
                Dispatch(
                    c.node,
                    node.op.short,
                    c.step.kernel,
                    self.engine.plans[c.node].route,
                    c.step.grid,
                    ns,
                    c.step.work,
                    self.engine.live.get(node.outs[0], ()),
                    int(begin),
                )
            )
            stats.gpu_ns += ns

    def execute_node(self, index: int) -> None:
        """Run one node alone; in order, these give what `execute` gives."""
        commands = self._lists[index]
        if commands:
            encoder = self.device.handle.create_command_encoder()
            self._encode(encoder, commands)
            self.device.check()
            with self.device._errors("submit"):
                self.device.handle.queue.submit([encoder.finish()])

    def read(self, v: int) -> Array:
        """What a tensor holds now, at its live shape; memory is shared, so only until another tensor is written there."""
        dims, dtype = self.engine.live[v], np.dtype(GPU_DTYPE[self.graph.tensors[v].dtype])
        count = prod(dims)
        if not count:
            return np.zeros(dims, dtype)
        self.device.check()
        with self.device._errors("readback"):
            data = self.device.handle.queue.read_buffer(self._source(v), 0, count * 4)
        return np.frombuffer(data, dtype, count).reshape(dims)

    def reset(self) -> None:
        """Zero what persists between calls."""
        if self.state:
            self.device.zero(self.state)
