"""Which arguments of a delegate call are the inputs and outputs of its graph.

The exporter leaves an input out of the graph if no op reads it, and lists an output once even if the call returns it
several times. The call has an argument for each of them, and one call may have both kinds. Nothing in the file says
which ones these are, so values are recognised by type and dims, and by whether they exist before the call.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from .pte import EValue, Tensor
from .vkgraph import SymInt, Value, VkGraph, VkTensor

_NARROWED = {"int64": "int32", "float64": "float32"}
MAX_EXTRA = 64  # with more arguments than that, either inputs are not read or outputs are repeated, not both


class BoundArgs(NamedTuple):
    """The arguments that a call really has, and the graph's outputs for the last of them."""

    args: tuple[int, ...]
    output_ids: tuple[int, ...]


def bind(graph: VkGraph, args: tuple[int, ...], values: Sequence[EValue], known: set[int]) -> BoundArgs | None:
    """Match the arguments of a call with its graph; None if there is no way or more than one.

    `known` are the values that exist before the call.
    """
    least, most = len(graph.input_ids), len(args) - len(graph.output_ids)
    if most <= least:
        return BoundArgs(args, graph.output_ids) if most == least else None
    splits = range(least, most + 1) if most - least <= MAX_EXTRA else (least, most)
    ways = [way for split in splits if (way := _split(graph, args, values, known, split))]
    return ways[0] if len(ways) == 1 else None


def _split(
    graph: VkGraph, args: tuple[int, ...], values: Sequence[EValue], known: set[int], split: int
) -> BoundArgs | None:
    """The call if its first `split` arguments are inputs: some that no op reads, some outputs repeated, or both."""
    given, outputs = args[:split], args[split:]
    if len(outputs) > len(graph.output_ids) and not known.isdisjoint(outputs):
        return None
    inputs = _inputs(graph, given, values)
    if inputs is None or not known >= {*given} - {*inputs}:
        return None
    ids = _output_ids(graph, outputs, values)
    return None if ids is None else BoundArgs(inputs + outputs, ids)


def _inputs(graph: VkGraph, given: tuple[int, ...], values: Sequence[EValue]) -> tuple[int, ...] | None:
    """The arguments that the graph reads."""
    wanted = [graph.values[v] for v in graph.input_ids]
    first = _greedy(given, wanted, values)
    last = _greedy(given[::-1], wanted[::-1], values)
    if first is None or last is None or first != last[::-1]:  # the earliest and the latest choice are the only one
        return None
    return first


def _output_ids(graph: VkGraph, outputs: tuple[int, ...], values: Sequence[EValue]) -> tuple[int, ...] | None:
    """The graph's output for each argument. A repeated output must be the only one of its type and dims."""
    if len(outputs) == len(graph.output_ids):
        pairs = zip(outputs, graph.output_ids, strict=True)
        return graph.output_ids if all(_fits(values[a], graph.values[v]) for a, v in pairs) else None
    alike: dict[object, list[int]] = defaultdict(list)
    for v in graph.output_ids:
        alike[_kind(graph.values[v])].append(v)
    ids, seen = [], Counter[object]()
    for kind in (_kind(values[a]) for a in outputs):
        place = 0 if len(alike[kind]) == 1 else seen[kind]
        if place >= len(alike[kind]):
            return None
        ids.append(alike[kind][place])
        seen[kind] += 1
    return tuple(ids) if tuple(dict.fromkeys(ids)) == graph.output_ids else None


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
