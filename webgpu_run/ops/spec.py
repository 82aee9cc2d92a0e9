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
from .schema import Param, parse


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
class Op:
    """An op under one of its names. The decorator `op` makes them; `load_all` finds them by name."""

    name: str  # as files have it, like "aten.add.Tensor"; names that start with "wr." are ours, made by fusion
    params: tuple[Param, ...]
    outs: tuple[str, ...]
    out_kind: str  # tensor, list or symint
    plan: PlanFn
    reference: Reference | None = None  # outputs in float64, from Args and the data of all tensors by name
    pack: PackFn | None = None  # constants in the layout that the kernels read
    resources: Callable[[Args, Limits], Mapping[str, Resource]] | None = None
    alias: str | None = None  # the output shares this argument's memory, if it may
    reads_data: str | None = None  # the plan reads the data of this input, on the host
    make: Callable[[Case, np.random.Generator], dict[str, Array]] | None = None  # test data that is not random
    cases: tuple[Case, ...] = ()
    remember: Reference | None = None  # caches after the call, where the op allocates them itself
    profiles: tuple[Profile, ...] = PROFILES  # machines that the op has kernels for; tests hold it to that
    out_dtypes: tuple[tuple[str, ...], ...] = (("float",),)

    def sized(self, count: int) -> Op:
        """The op with `count` outputs, if the schema leaves their number to the call (`-> [out*]`)."""
        if self.outs != ("out*",):
            return self
        return replace(self, outs=tuple(f"out{i}" for i in range(count)), out_dtypes=self.out_dtypes * count)

    def param(self, name: str) -> Param:
        """The declaration of a tensor argument; of w2, that of the list w."""
        by_name = {p.name: p for p in self.params}
        return by_name[name] if name in by_name else by_name[name.rstrip("0123456789")]

    def named(self, *roles: str) -> list[str]:
        """Names of the arguments with one of these roles, in order."""
        return [p.name for p in self.params if p.role in roles]

    @property
    def short(self) -> str:
        """The name without namespace and overload: `et_vk.linear_q4gsw.default` is `linear_q4gsw`."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 2 or parts[0] == "wr" else parts[0]


REGISTRY: dict[str, Op] = {}


def op(names: str, schema: str, **kw: Any) -> Callable[[PlanFn], PlanFn]:
    """Register the decorated plan under each of the given names."""
    parsed = parse(schema)
    outs, dtypes = tuple(out.name for out in parsed.outs), tuple(out.dtypes for out in parsed.outs)

    def add(plan: PlanFn) -> PlanFn:
        for name in names.split():
            REGISTRY[name] = Op(name, parsed.params, outs, parsed.out_kind, plan, out_dtypes=dtypes, **kw)
        return plan

    return add


@functools.cache
def load_all() -> Mapping[str, Op]:
    """Every op of the package, by serialized name."""
    from .. import ops

    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{module.name}")
    return REGISTRY
