"""What an op is: a schema, one pure `plan`, a float64 `reference`, and test cases.

`plan` is the only place where an output dim, a uniform, a route or a grid is computed: build calls it with the largest
shapes, resize with the live ones. It is integer arithmetic on `Args` and `Limits` and needs no GPU.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..shapes import Array, Dims
from .limits import PROFILES, Limits, Profile
from .plan import Plan


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
    profiles: tuple[Profile, ...] = PROFILES  # machines that the op has kernels for; tests hold it to that

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
    from .. import ops

    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{module.name}")
    return REGISTRY
