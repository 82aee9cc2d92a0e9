"""The VkGraph inside a Vulkan delegate, as plain frozen dataclasses.

A value is one of: None (Null), bool, int, float, str, VkTensor, IntList, DoubleList, BoolList, ValueList, SymInt.
The exporter deduplicates scalars that compare equal (1, 1.0 and True), so readers must accept int, float and bool
interchangeably.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VkTensor:
    """A tensor. `dims` are upper bounds; `constant_id` is negative if the tensor is not a constant."""

    dtype: str  # numpy name: float32, float16, int32, int8, uint8, bool
    dims: tuple[int, ...]
    constant_id: int = -1
    mem_obj_id: int = -1
    staging_dtype: str | None = None  # dtype on the host; None means the same as `dtype`
    storage: str = "DEFAULT_STORAGE"
    layout: str = "DEFAULT_LAYOUT"


@dataclass(frozen=True, slots=True)
class SymInt:
    """A symbolic integer. Its value is set in each call."""

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
    """Ids of other values. Used for multi-output ops, dynamic view shapes and index lists."""

    items: tuple[int, ...]


Value = None | bool | int | float | str | VkTensor | SymInt | IntList | DoubleList | BoolList | ValueList


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One op of the chain. Arguments are value ids; the last one is the output."""

    node_id: int
    name: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """Where the bytes of a constant are: at `offset` in the delegate's constants, or in the named data under `key`."""

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
