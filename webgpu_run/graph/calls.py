"""An operator call by the names of its op's schema: the only module that knows at which position an argument is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..formats.vkgraph import OperatorCall
from ..ops.spec import load_all


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of a graph, by its id."""

    id: int


ROUND = "wr.round_rows"  # exists between passes only, so no kernel has a schema for it


@functools.cache
def _positions(op: str) -> Mapping[str, int]:
    names = ["x"] if op == ROUND else [param.name for param in load_all()[op].params]
    return {name: i for i, name in enumerate(names)}


def input_of(call: OperatorCall, name: str) -> Ref:
    """The value that the call reads as this parameter."""
    return Ref(call.args[_positions(call.name)[name]])


def inputs_of(call: OperatorCall) -> dict[str, Ref]:
    """All values that the call reads, by parameter."""
    return {name: Ref(call.args[i]) for name, i in _positions(call.name).items()}


def reads(call: OperatorCall) -> tuple[int, ...]:
    """Ids of the values that the call reads, whether or not its op is known."""
    return call.args[:-1]


def output_of(call: OperatorCall) -> int:
    """Id of the value that the call writes; a list if its op has several outputs."""
    return call.args[-1]


def writes_list(op: str) -> bool:
    """Whether calls of the op write a list of values, even if it has one item."""
    return op != ROUND and load_all()[op].out_kind == "list"


def has_all_arguments(call: OperatorCall) -> bool:
    """Whether the call has as many arguments as its op's schema; an unknown op has none to compare with."""
    op = load_all().get(call.name)
    return op is None or len(call.args) == len(op.params) + 1


def make_call(op: str, inputs: Mapping[str, int], output: int) -> OperatorCall:
    """A call with exactly the inputs of the op's schema, in any order."""
    positions = _positions(op)
    if inputs.keys() != positions.keys():
        raise TypeError(f"{op} takes {', '.join(positions)}; given: {', '.join(inputs)}")
    return OperatorCall(0, op, (*(inputs[name] for name in positions), output))


def with_reads(call: OperatorCall, replacement: Callable[[int], int]) -> OperatorCall:
    """The call with every value that it reads replaced."""
    return OperatorCall(call.node_id, call.name, (*map(replacement, reads(call)), output_of(call)))
