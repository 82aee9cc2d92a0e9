"""The state of a model, its KV caches, as bytes: read from the device, and written back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UnsupportedError
from ..gpu.device import TEXEL_BYTES, Device, Image
from ..shapes import ceil_div, prod
from .model import Model
from .runner import Runner


@dataclass(frozen=True, slots=True)
class Part:
    """One cache. If it has the positions in order, only those in use are read and written."""

    name: str
    device: Device
    resource: Any  # a buffer, or an Image
    positions: int = 0  # of a buffer, or of a layer of an Image; 0 if they are not known

    @property
    def nbytes(self) -> int:
        """Bytes of the whole part."""
        if isinstance(self.resource, Image):
            texture = self.resource.texture
            return int(prod(texture.size)) * TEXEL_BYTES[texture.format]
        return int(self.resource.size)

    @property
    def layout(self) -> str:
        """What the bytes mean to the kernels that read them."""
        if isinstance(self.resource, Image):
            return f"{self.name} {self.resource.texture.format} {list(self.resource.texture.size)}"
        return f"{self.name} {self.nbytes} {self.positions}"

    def read(self, used: int) -> bytes:
        """The bytes that hold the first `used` positions, perhaps with some after them."""
        if isinstance(self.resource, Image):
            layers = self.resource.used
            layers = min(layers, ceil_div(used, self.positions)) if self.positions else layers
            return bytes(self.device.read_image(self.resource, layers)) if layers else b""
        nbytes = self.nbytes // self.positions * used if self.positions else self.nbytes
        return self.device.read(self.resource, nbytes) if nbytes else b""

    def can_hold(self, nbytes: int) -> bool:
        """Whether `write` takes this number of bytes."""
        if isinstance(self.resource, Image):
            layer = self.nbytes // self.resource.texture.size[2]
            return 0 <= nbytes <= self.nbytes and nbytes % layer == 0
        row = self.nbytes // self.positions if self.positions else self.nbytes
        return 0 <= nbytes <= self.nbytes and nbytes % row == 0

    def write(self, data: memoryview) -> None:
        """Write back what `read` returned."""
        if isinstance(self.resource, Image):
            self.device.write_image(self.resource, data)
        else:
            self.device.write(self.resource, data)


def parts(model: Model) -> list[Part]:
    """The caches of a model, in a fixed order."""
    if model.interpreter.keeps_state:
        raise UnsupportedError("the model keeps state outside its delegates, which cannot be saved")
    return [part for i, runner in enumerate(model.runners) for part in _parts(model, i, runner)]


def _parts(model: Model, index: int, runner: Runner) -> Iterator[Part]:
    """The caches of a delegate. Fused attention has the positions of its own in order."""
    resident, graph = runner.executor.resident, runner.graph
    known: dict[int, tuple[str, int]] = {}  # name and positions
    for (i, name), resource in resident.owned.items():
        node, reach = graph.nodes[i], runner.engine.plans[i].reach
        if isinstance(resource, Image):
            known[id(resource)] = "", reach.unit if reach else 0
        elif node.op.remember and name in node.tensors:
            known[id(resource)] = f" {node.op.short} {name}", graph.tensors[node.tensors[name]].max_dims[1]
    for k, resource in enumerate((*resident.state, *resident.images)):
        name, positions = known.get(id(resource), ("", 0))
        yield Part(f"{index}.{k}{name}", model.device, resource, positions)


def restore(caches: Sequence[Part], data: Sequence[memoryview]) -> None:
    """Write back the bytes of all parts."""
    for part, content in zip(caches, data, strict=True):
        if content:
            part.write(content)
