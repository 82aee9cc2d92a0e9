"""Device memory of a graph: activations at their largest size, packed constants, state (KV caches) and scratch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import RunError
from ..graph.budget import SLACK, activation_sizes, largest
from ..graph.graph import GPU_DTYPE, Graph, Node
from ..graph.memory import Memory
from ..graph.planner import Engine
from ..ops.spec import Args, Packed, Resource
from ..shapes import ITEMSIZE, Dims, prod
from .device import TEXEL_BYTES, Device, Image

ProgressCallback = Callable[[str, int, int], None]  # what, done, total
_LEAST = 1 << 16  # smallest binding in bytes: smaller ones would only make more bind groups


class Residency:
    """Buffers and textures of one graph. None of them ever moves; only constants may still be uploaded after build."""

    def __init__(
        self,
        engine: Engine,
        device: Device,
        progress: ProgressCallback | None = None,
        uploads: dict[Any, Any] | None = None,
    ) -> None:
        self.graph: Graph = engine.graph
        self.device, self.limits = device, device.limits
        self.memory = Memory(self.graph, activation_sizes(engine))
        activations = [device.buffer(n, "activation") for n in self.memory.sizes]
        self.buffers: dict[int, Any] = {root: activations[b] for root, b in self.memory.place.items()}
        self.state: list[Any] = []
        self.images: list[Image] = []  # state kept in textures
        self.owned: dict[tuple[int, str], Any] = {}  # (node, binding) -> packed constant, state or scratch
        self._scratch: dict[tuple[int, str], Resource] = {}
        self._packed_constants: dict[Any, Any] = {}
        # Packed constants on the device by their contents; graphs of the same weights may share them.
        self.uploads: dict[Any, Any] = {} if uploads is None else uploads
        self._load(progress)

    def find(self, node: Node, name: str) -> Any:
        """The buffer or texture behind a kernel's binding."""
        if (node.index, name) in self.owned:
            return self.owned[(node.index, name)]
        if name in node.tensors:
            return self.source(node.tensors[name])
        if name in node.written:
            return self.source(node.written[name])
        raise RunError(f"{node.label}: no argument {name}")

    def extent(self, node: Node, name: str, live: Mapping[int, Dims]) -> int:
        """Bytes to bind of the buffer that `find` returns: its size in a graph built at these dims, rounded up to a
        power of two so that few bind groups are needed. Only bound ranges are cleared, so on a software adapter the
        unused rest of a buffer takes no memory.
        """
        size: int = self.find(node, name).size
        if (node.index, name) in self._scratch:
            need = self._at(node, name, live).nbytes
        elif (node.index, name) in self.owned:
            return size
        else:
            v = node.tensors[name] if name in node.tensors else node.written[name]
            if self.graph.is_constant(v):
                return size
            need = prod(live[v]) * 4 + SLACK
        return min(size, max(_LEAST, 1 << (need - 1).bit_length()))

    def layers(self, node: Node, name: str, live: Mapping[int, Dims]) -> int:
        """Layers to bind of an image that is scratch; 0 for an image that is state."""
        size = self._at(node, name, live).texture if (node.index, name) in self._scratch else None
        return 1 << (size[2] - 1).bit_length() if size else 0

    def _at(self, node: Node, name: str, live: Mapping[int, Dims]) -> Resource:
        assert node.op.resources
        return node.op.resources(node.args_at(live), self.limits)[name]

    def source(self, v: int) -> Any:
        """The buffer that holds a tensor. A constant is uploaded at its first use, as f32 or i32."""
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

    @property
    def state_nbytes(self) -> int:
        """Bytes that persist between calls: the KV caches."""
        images = sum(prod(i.texture.size) * TEXEL_BYTES[i.texture.format] for i in self.images)
        return int(sum(buffer.size for buffer in self.state)) + images

    def reset(self) -> None:
        """Zero the state that persists between calls."""
        if self.state:
            self.device.zero(self.state)
        for image in self.images:
            self.device.fill_image(image)

    def _load(self, progress: ProgressCallback | None) -> None:
        graph = self.graph
        packing = [n for n in graph.nodes if n.op.pack or n.op.resources]
        packing.sort(
            key=self._stored_bytes, reverse=True
        )  # packing needs temporary copies: largest first, while memory is still free
        for done, node in enumerate(packing):
            if progress:
                progress("weights", done, len(packing))
            args = node.args_at({})
            if node.op.pack:
                self._pack(node, args)
            for name, resource in (node.op.resources(args, self.limits) if node.op.resources else {}).items():
                if resource.state:
                    self.owned[(node.index, name)] = self._state(node, name, resource)
                else:
                    self._scratch[(node.index, name)] = resource
        # Dispatches run in order and no scratch outlives its node, so all nodes share one resource per name.
        shared = largest((name, resource) for (_, name), resource in self._scratch.items())
        scratch = {name: self._make_scratch(name, resource) for name, resource in shared.items()}
        self.owned |= {(index, name): scratch[name] for index, name in self._scratch}
        for v, tensor in graph.tensors.items():
            if tensor.mutable and tensor.constant >= 0:
                self.source(v)
        if progress and packing:
            progress("weights", len(packing), len(packing))

    def _make_scratch(self, name: str, resource: Resource) -> Any:
        if resource.texture:
            return self.device.image(*resource.texture, f"scratch {name}", resource.texel)
        return self.device.buffer(resource.nbytes, f"scratch {name}")

    def _stored_bytes(self, node: Node) -> int:
        """Bytes of the constants that a node packs."""
        graph = self.graph
        constants = [graph.tensors[v] for v in node.tensors.values() if node.op.pack and graph.is_constant(v)]
        return sum(prod(t.max_dims) * ITEMSIZE[t.dtype] for t in constants)

    def _pack(self, node: Node, args: Args) -> None:
        """Pack and upload a node's constants. Equal inputs are packed once, equal results are uploaded once."""
        graph = self.graph
        assert node.op.pack
        raw = {n: v for n, v in node.tensors.items() if graph.is_constant(v)}
        ids = tuple((n, graph.tensors[graph.tensors[v].root].constant) for n, v in raw.items())
        key = (node.op.pack, ids, tuple(sorted((k, str(v)) for k, v in node.attrs.items())))
        if key not in self._packed_constants:
            packed = node.op.pack(args, {n: graph.constant(v) for n, v in raw.items()}, self.limits)
            self._packed_constants[key] = {name: self._upload(name, item) for name, item in packed.items()}
        for name, resource in self._packed_constants[key].items():
            self.owned[(node.index, name)] = resource

    def _upload(self, name: str, packed: Packed) -> Any:
        data = np.ascontiguousarray(packed.data)
        digest = (packed.texture, data.shape, hashlib.blake2b(data.view(np.uint8).data, digest_size=16).digest())
        if digest not in self.uploads:
            if packed.texture:
                self.uploads[digest] = self.device.texture(data, f"constant {name}")
            else:
                self.uploads[digest] = buffer = self.device.buffer(data.nbytes, f"constant {name}")
                self.device.write(buffer, data)
        return self.uploads[digest]

    def _state(self, node: Node, name: str, resource: Resource) -> Any:
        if resource.texture:
            image = self.device.image(*resource.texture, f"{node.op.short} {name}", resource.texel)
            self.images.append(image)
            return image
        buffer = self.device.buffer(resource.nbytes, f"{node.op.short} {name}")
        self.state.append(buffer)
        return buffer
