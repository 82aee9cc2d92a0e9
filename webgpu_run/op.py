"""What an op is: a schema, one pure `plan`, a float64 `reference`, and test cases.

`plan` is the only place where an output dim, a uniform, a route or a grid is computed: build calls it with the largest
shapes, resize with the live ones. It is integer arithmetic on `Args` and `Limits` and needs no GPU.
"""

from __future__ import annotations

import functools
import importlib
import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from . import kernel as kernels
from .errors import ShapeError, UnsupportedError
from .kernel import Consts
from .shapes import Dims, ceil_div

Grid = tuple[int, int, int]
Array = np.ndarray[Any, np.dtype[Any]]
STAGED_ROWS = 64  # of a layer of an image that rows are copied into


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


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a tensor that a step binds, in bytes."""

    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Stage:
    """Rows of a tensor that are first copied into an image, a layer of `STAGED_ROWS` after the other."""

    source: str
    image: str
    rows: int
    width: int  # texels a row


@dataclass(frozen=True, slots=True)
class Step:
    """One dispatch: a kernel with its compile-time constants, uniform values and grid."""

    kernel: str
    params: tuple[tuple[str, int | float | tuple[int, ...]], ...]
    grid: Grid
    consts: Consts = ()
    windows: tuple[tuple[str, Window], ...] = ()
    rename: tuple[tuple[str, str], ...] = ()  # kernel binding -> arg, where one kernel serves several args
    work: tuple[int, int] = (0, 0)  # (bytes moved, floating-point operations), for reports
    stage: Stage | None = None  # before the dispatch

    def uniform(self) -> bytes:
        return _packed(self.kernel, self.params)


@functools.lru_cache(maxsize=65536)
def _packed(name: str, params: tuple[tuple[str, int | float | tuple[int, ...]], ...]) -> bytes:
    return kernels.load(name).pack(dict(params))


@dataclass(frozen=True, slots=True)
class Bound:
    """A SymInt that kernels read from its slot must stay within [0, high]."""

    arg: str
    high: int
    what: str


@dataclass(frozen=True, slots=True)
class Reach:
    """A node's images hold `unit` positions a layer and are bound up to the one of position `arg` + `rows`."""

    arg: str
    rows: int
    unit: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All that one node does for one set of live shapes."""

    outs: tuple[Dims, ...] = ()
    steps: tuple[Step, ...] = ()
    route: str = ""
    bounds: tuple[Bound, ...] = ()
    sym: int | None = None
    reach: Reach | None = None


class Args:
    """What a plan sees of a node: live and largest dims, dtypes, attributes, slots of SymInts that kernels read."""

    __slots__ = ("attrs", "dims", "dtypes", "max_dims", "slots")

    def __init__(
        self,
        dims: Mapping[str, Dims],
        attrs: Mapping[str, Any] | None = None,
        *,
        max_dims: Mapping[str, Dims] | None = None,
        dtypes: Mapping[str, str] | None = None,
        slots: Mapping[str, int] | None = None,
    ) -> None:
        self.dims = dims
        self.attrs = attrs or {}
        self.max_dims = max_dims or dims
        self.dtypes = dtypes or {}
        self.slots = slots or {}

    def __contains__(self, name: str) -> bool:
        return name in self.dims

    def __getitem__(self, name: str) -> Dims:
        return self.dims[name]

    def get(self, name: str) -> Dims | None:
        return self.dims.get(name)

    def int(self, name: str) -> int:
        return int(self.attrs[name])

    def num(self, name: str, default: float = 0.0) -> float:
        value = self.attrs.get(name)
        return default if value is None else float(value)


@dataclass(frozen=True, slots=True)
class Packed:
    """A constant made ready for its kernel: bytes for a storage buffer, or rows of 16-byte texels for a texture."""

    data: Array
    texture: bool = False


@dataclass(frozen=True, slots=True)
class Resource:
    """GPU memory an op owns for itself: scratch (shared, any content) or state (persistent, zero at start)."""

    nbytes: int
    state: bool = False
    texture: tuple[int, int, int] | None = None  # width, height, layers of an image
    texel: str = "rgba32float"


@dataclass(frozen=True, slots=True)
class Case:
    """A test case: dims of tensor args, attributes, and the live sizes worth trying (applied by the test to `vary`)."""

    dims: Mapping[str, Dims]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    live: tuple[Mapping[str, Dims], ...] = ()
    dtypes: Mapping[str, str] = field(default_factory=dict)
    tol: float = 1e-5


PlanFn = Callable[[Args, Limits], Plan]
Reference = Callable[..., Sequence[Array] | Array]
PackFn = Callable[[Args, Mapping[str, Array], Limits], Mapping[str, Packed]]


@dataclass(frozen=True, slots=True)
class Param:
    """One argument of a schema."""

    name: str
    kind: str  # tensor, tensors, int, num, bool, str, ints, shape, sym, slot, any
    optional: bool = False
    constant: bool = False
    mutable: bool = False


@dataclass(frozen=True, slots=True)
class Op:
    """A registered op."""

    name: str
    params: tuple[Param, ...]
    outs: tuple[str, ...]
    out_kind: str  # tensor, list, symint
    plan: PlanFn
    reference: Reference | None = None
    pack: PackFn | None = None
    resources: Callable[[Args, Limits], Mapping[str, Resource]] | None = None
    alias: str | None = None  # the output is this arg's memory
    reads_data: str | None = None  # the plan reads this input's host data
    make: Callable[[Case, np.random.Generator], dict[str, Array]] | None = None
    cases: tuple[Case, ...] = ()
    remember: Reference | None = None  # what the caches hold afterwards, where they are memory of the op's own

    def sized(self, count: int) -> Op:
        """With so many outputs, where the schema leaves their number to the call (`-> [out*]`)."""
        return replace(self, outs=tuple(f"out{i}" for i in range(count))) if self.outs == ("out*",) else self

    @property
    def short(self) -> str:
        """The name without namespace and overload: `et_vk.linear_q4gsw.default` is `linear_q4gsw`."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 2 or parts[0] == "wr" else parts[0]


REGISTRY: dict[str, Op] = {}


def schema(text: str) -> tuple[tuple[Param, ...], tuple[str, ...], str]:
    """Parse `x weight! bias? eps:num pos:slot -> out` (see ops/ for the forms in use)."""
    left, right = (s.strip() for s in text.split("->"))
    params = []
    for i, word in enumerate(left.split()):
        name, _, kind = word.partition(":")
        optional = word.endswith("?")
        kind = kind.rstrip("?") or "tensor"
        flags = name[len(name.rstrip("?!*")) :]
        name = name.rstrip("?!*")
        if name == "_":
            name, kind = f"_{i}", "any"
        params.append(Param(name, kind, optional or "?" in flags, "!" in flags, "*" in flags))
    if right.startswith("["):
        return tuple(params), tuple(right.strip("[]").split(",")), "list"
    name, _, kind = right.partition(":")
    return tuple(params), (name,), kind or "tensor"


def op(names: str, args: str, **kw: Any) -> Callable[[PlanFn], PlanFn]:
    """Register the decorated plan under each of the given names."""
    params, outs, out_kind = schema(args)

    def add(plan: PlanFn) -> PlanFn:
        for name in names.split():
            REGISTRY[name] = Op(name, params, outs, out_kind, plan, **kw)
        return plan

    return add


@functools.cache
def load_all() -> Mapping[str, Op]:
    """Every op of the package, by serialized name."""
    from . import ops

    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{module.name}")
    return REGISTRY


def fold(groups: int, limits: Limits, what: str = "dispatch") -> Grid:
    """A grid of at least `groups` workgroups; kernels count them as `wid.y * num_workgroups.x + wid.x`."""
    top = limits.max_workgroups
    if groups <= top:
        return (groups, 1, 1)
    rows = ceil_div(groups, top)
    if rows > top:
        raise ShapeError(f"{what}: {groups} workgroups are over the adapter's limit of {top} x {top}")
    return (ceil_div(groups, rows), rows, 1)


def row_parts(rows: int, row_nbytes: int, limits: Limits) -> list[tuple[int, int]]:
    """(first row, number of rows) of the fewest parts that a binding holds and that start where one may."""
    if rows * row_nbytes <= limits.max_binding:
        return [(0, rows)]
    unit = limits.storage_align // math.gcd(limits.storage_align, row_nbytes)
    most = limits.max_binding // row_nbytes // unit * unit
    need(most > 0, f"a row of {row_nbytes:,} bytes is over the {limits.max_binding:,} that the adapter binds")
    return [(first, min(most, rows - first)) for first in range(0, rows, most)]


def need(ok: bool, message: str) -> None:
    """Refuse a shape."""
    if not ok:
        raise ShapeError(message)


def unsupported(ok: bool, message: str) -> None:
    """Refuse a form of the op that has no kernel."""
    if not ok:
        raise UnsupportedError(message)
