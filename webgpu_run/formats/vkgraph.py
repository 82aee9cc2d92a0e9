"""The VkGraph inside a Vulkan delegate, as plain frozen dataclasses.

A value is one of: None (Null), bool, int, float, str, VkTensor, IntList, DoubleList, BoolList, ValueList, SymInt.
Scalars arrive deduplicated by the exporter, so readers must accept int, float and bool interchangeably.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VkTensor:
    """A tensor: `dims` are upper bounds; `constant_id` < 0 when it is not a constant."""

    dtype: str  # numpy name: float32, float16, int32, int8, uint8, bool
    dims: tuple[int, ...]
    constant_id: int = -1
    mem_obj_id: int = -1
    staging_dtype: str | None = None  # what the host sees; None: same as dtype
    storage: str = "DEFAULT_STORAGE"
    layout: str = "DEFAULT_LAYOUT"


@dataclass(frozen=True, slots=True)
class SymInt:
    """A symbolic integer: its value is set per call."""

    init: int = 0


@dataclass(frozen=True, slots=True)
class IntList:
    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DoubleList:
    items: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BoolList:
    items: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class ValueList:
    """Ids of other values: multi-output ops, dynamic view shapes, index lists."""

    items: tuple[int, ...]


Value = None | bool | int | float | str | VkTensor | SymInt | IntList | DoubleList | BoolList | ValueList


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One op of the chain; the last arg is the output."""

    node_id: int
    name: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """Where a constant's bytes are: inline at `offset` of the delegate's bytes, or under `key` in named data."""

    length: int
    offset: int | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class VkGraph:
    version: str
    chain: tuple[OperatorCall, ...]
    values: tuple[Value, ...]
    input_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    constants: tuple[Constant, ...]
