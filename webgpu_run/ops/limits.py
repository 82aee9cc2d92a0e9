"""What a plan may assume of the machine: the limits of its adapter, and the profile that chooses kernel variants."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Profile:
    """Which variants of the kernels an adapter gets. gpu/tune.py measures which profile is fastest.

    A strip is a part of a 4-bit weight, up to `lanes` x 4 columns. GPUs have more than one split: `lanes` x `splits`
    are the invocations of a workgroup of q4_few.wgsl, and a narrow weight gets fewer lanes and more splits (q4_gpu.py).
    """

    name: str = "gpu"
    lanes: int = 16  # invocations side by side in the widest strip, four columns each
    splits: int = 8  # invocations that share these columns, each with a part of k; 1 on software adapters
    images: bool = False  # weights are storage textures, not sampled textures
    shuffle: bool = False  # activations and attention scores go through subgroup operations (at least 8 lanes)
    image_cache: bool = False  # KV caches are textures; needs shuffle
    workgroup: int = 64  # invocations per workgroup of kernels that reduce rows
    tiled: bool = True  # matrices with many rows go through tiles in workgroup memory
    fill: int = 256  # workgroups that keep the adapter busy; attention splits a long context to reach it
    rows: int = 4  # most per workgroup of q4_strips.wgsl: more rows share the unpacked weights, but need longer code

    @property
    def groups(self) -> int:
        """Groups of eight lanes that fill a vector of a software adapter, for kernels that work with eight."""
        return self.lanes // 8

    @property
    def row_lanes(self) -> int:
        """Invocations per workgroup of softmax and layer_norm. Eight are one vector of a software adapter."""
        return 8 if self.images else 64


GPU = Profile()
SOFTWARE = Profile(
    "software", 8, 1, images=True, shuffle=True, image_cache=True, workgroup=32, tiled=False, fill=1, rows=8
)
SHORT = replace(SOFTWARE, name="software-short", rows=4)  # for processors with a small instruction cache
WIDE = replace(SHORT, name="software-wide", lanes=16)  # for vectors of 16 lanes; long code is no faster there
PLAIN = Profile("software-plain", 8, 1, images=True, workgroup=32, tiled=False, fill=1)  # without subgroups
PROFILES = (GPU, SOFTWARE, SHORT, WIDE, PLAIN)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an adapter (sizes in bytes) and its profile. The defaults are those every WebGPU device has."""

    max_workgroups: int = 65535  # per dimension of a grid
    max_invocations: int = 256  # per workgroup
    max_workgroup_bytes: int = 16384
    max_binding: int = 128 << 20  # of a storage buffer
    max_uniform: int = 65536
    uniform_align: int = 256
    storage_align: int = 256
    max_texture: int = 8192  # width and height
    max_layers: int = 256  # of a texture
    subgroups: bool = False  # of at least 8 lanes
    f16: bool = False
    dot4: bool = False  # dot4I8Packed, a product of four bytes, is one instruction
    software: bool = False  # the adapter is a CPU
    profile: Profile = GPU
    kv: str = "f32"  # or "f16": how KV caches are stored
