"""Which machine a plan is for: the limits of its adapter and the profile that chooses kernel variants."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """Which variants of the kernels an adapter gets; see tune.py for how one is chosen."""

    name: str = "gpu"
    lanes: int = 16  # of a strip of 4-bit weights, four columns each
    splits: int = 8  # lanes that share those columns, each with a part of k
    images: bool = False  # weights are read as storage textures, not sampled ones
    shuffle: bool = False  # x, and attention's scores, go round subgroups of at least 8
    image_cache: bool = False  # KV caches are textures (needs shuffle)
    workgroup: int = 64  # of the row-wise kernels
    tiled: bool = True  # many rows go through tiles in workgroup memory
    fill: int = 256  # workgroups that keep the adapter busy: attention deals the context out over as many


GPU = Profile()
SOFTWARE = Profile("software", 8, 1, images=True, shuffle=True, image_cache=True, workgroup=32, tiled=False, fill=1)
PLAIN = Profile("software-plain", 8, 1, images=True, workgroup=32, tiled=False, fill=1)  # without subgroups
PROFILES = (GPU, SOFTWARE, PLAIN)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan may use of the adapter, and what kind of machine it plans for."""

    max_workgroups: int = 65535
    max_invocations: int = 256
    max_workgroup_bytes: int = 16384
    max_binding: int = 128 << 20
    max_uniform: int = 65536
    uniform_align: int = 256
    storage_align: int = 256
    max_texture: int = 8192
    max_layers: int = 256  # of a texture
    subgroups: bool = False  # of at least 8 lanes
    f16: bool = False
    software: bool = False  # a CPU adapter
    profile: Profile = GPU
    kv: str = "f32"  # or f16: how KV caches are stored
