"""What an op is, and how a module of this package declares one. Start here.

An op is declared by decorating its plan:

    @op("aten.relu.default", "x -> out", reference=..., cases=(Case({"x": (5, 3)}),))
    def relu(a: Args, limits: Limits) -> Plan: ...

- The schema (see schema.py) lists the arguments and outputs, with their roles and dtypes.
- The plan (see plan.py) decides everything about a call: output dims, kernels, uniform values, grids. It is a pure
  function of `Args` and `Limits`. The graph calls it with the largest shapes when a model is loaded, and with the live
  shapes when these change, so there is no second computation of sizes that could differ from the first.
- The reference computes the outputs with numpy in float64, as PyTorch defines the op. Tests and `--check` use it.
- The cases are shapes and attributes that the tests run on the adapter.

Kernels are WGSL files in wgsl/, which a plan names.
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
    """The arguments of one call: what a plan and a reference see of them.

    `args["x"]` is the live dims of tensor x, and `"bias" in args` says whether an optional tensor was given.
    `max_dims` and `dtypes` have the outputs too. `attrs` has the values of all other arguments by name, and `slots` the
    number of the slot from which kernels read a position.
    """

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
    """A constant as its kernel reads it: words for a storage buffer, or rows of 16-byte texels for a texture."""

    data: Array
    texture: bool = False


@dataclass(frozen=True, slots=True)
class Resource:
    """GPU memory that belongs to an op.

    Scratch is shared by all nodes and has arbitrary contents when a call starts. State, such as a KV cache, belongs to
    one node, is zero at first, and persists from call to call.
    """

    nbytes: int
    state: bool = False
    texture: tuple[int, int, int] | None = None  # width, height and number of layers
    texel: str = "rgba32float"


@dataclass(frozen=True, slots=True)
class Case:
    """A test case: the largest dims of the tensors, the attributes, and live dims to resize to, one after another.

    `live` may also name attributes that are known only at call time, with the value that they have then.
    Tensors are float32 if `dtypes` does not say otherwise. `tol` is the largest error that is accepted, as a part of
    the largest value of its row.
    """

    dims: Mapping[str, Dims]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    live: tuple[Mapping[str, Any], ...] = ()
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
