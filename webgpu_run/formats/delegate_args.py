"""Which arguments of a delegate call are the inputs and outputs of its graph.

The exporter leaves an input out of the graph if no op reads it, and lists an output once even if the call returns it
several times. The call has an argument for each of them. Nothing in the file says which ones these are, so values are
recognised by type and dims, and by whether they exist before the call.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from .pte import EValue, Tensor
from .vkgraph import SymInt, Value, VkGraph, VkTensor

_NARROWED = {"int64": "int32", "float64": "float32"}


class BoundArgs(NamedTuple):
    """The arguments that a call really has, and the graph's outputs for the last of them."""

    args: tuple[int, ...]
    output_ids: tuple[int, ...]


def bind(graph: VkGraph, args: tuple[int, ...], values: Sequence[EValue], known: set[int]) -> BoundArgs | None:
    """Match the arguments of a call with its graph; None if there is no way or more than one.

    `known` are the values that exist before the call.
    """
    extra = len(args) - len(graph.input_ids) - len(graph.output_ids)
    if extra <= 0:
        return None if extra else BoundArgs(args, graph.output_ids)
    ways = [way for way in (_unread(graph, args, values, known), _repeated(graph, args, values, known)) if way]
    return ways[0] if len(ways) == 1 else None


def _unread(graph: VkGraph, args: tuple[int, ...], values: Sequence[EValue], known: set[int]) -> BoundArgs | None:
    """The call without the inputs that no op reads."""
    start = len(args) - len(graph.output_ids)
    given, outputs = args[:start], args[start:]
    wanted = [graph.values[v] for v in graph.input_ids]
    first = _greedy(given, wanted, values)
    last = _greedy(given[::-1], wanted[::-1], values)
    if first is None or last is None or first != last[::-1]:  # the earliest and the latest choice are the only one
        return None
    fits = all(_fits(values[a], graph.values[v]) for a, v in zip(outputs, graph.output_ids, strict=True))
    return BoundArgs(first + outputs, graph.output_ids) if fits and known >= {*given} - {*first} else None


def _repeated(graph: VkGraph, args: tuple[int, ...], values: Sequence[EValue], known: set[int]) -> BoundArgs | None:
    """The call with some outputs repeated. A repeated output must be the only one of its type and dims."""
    count = len(graph.input_ids)
    if not all(_fits(values[a], graph.values[v]) for a, v in zip(args[:count], graph.input_ids, strict=True)):
        return None
    alike: dict[object, list[int]] = defaultdict(list)
    for v in graph.output_ids:
        alike[_kind(graph.values[v])].append(v)
    ids, seen = [], Counter[object]()
    for kind in (_kind(values[a]) for a in args[count:]):
        place = 0 if len(alike[kind]) == 1 else seen[kind]
        if place >= len(alike[kind]):
            return None
        ids.append(alike[kind][place])
        seen[kind] += 1
    fits = tuple(dict.fromkeys(ids)) == graph.output_ids
    return BoundArgs(args, tuple(ids)) if fits and known.isdisjoint(args[count:]) else None


def _greedy(given: Sequence[int], wanted: Sequence[Value], values: Sequence[EValue]) -> tuple[int, ...] | None:
    """For each wanted value the next argument that fits it."""
    rest, chosen = iter(given), []
    for value in wanted:
        fitting = next((arg for arg in rest if _fits(values[arg], value)), None)
        if fitting is None:
            return None
        chosen.append(fitting)
    return tuple(chosen)


def _kind(value: EValue | Value) -> object:
    """Equal for an argument of a call and the graph's value that it stands for."""
    if isinstance(value, Tensor):
        return _NARROWED.get(value.dtype, value.dtype), value.dims
    if isinstance(value, VkTensor):
        return value.staging_dtype or value.dtype, value.dims
    return "number"


def _fits(given: EValue, wanted: Value) -> bool:
    if isinstance(wanted, SymInt):
        return type(given) is int or (isinstance(given, Tensor) and given.dims in ((), (1,)))
    if not isinstance(given, Tensor) or not isinstance(wanted, VkTensor):
        return False
    dtype = _NARROWED.get(given.dtype, given.dtype)
    return given.dims == wanted.dims and dtype in (wanted.dtype, wanted.staging_dtype)
