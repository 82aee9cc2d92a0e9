"""A graph's chain of calls while a pass changes it: who computes each value, who reads it, and edits that keep both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from ..formats.vkgraph import OperatorCall, Value, ValueList, VkGraph, VkTensor
from ..ops.spec import load_all
from . import calls
from .calls import Ref

Input = Ref | list[Ref] | bool | int | float | None  # what is no Ref becomes a new value


class NamedCall:
    """A call of the chain; `call["eps"]` is the value that it reads as this parameter."""

    __slots__ = ("_call", "index", "outputs")

    def __init__(self, call: OperatorCall, index: int, outputs: list[Ref]) -> None:
        self._call, self.index, self.outputs = call, index, outputs

    @property
    def op(self) -> str:
        return self._call.name

    def __getitem__(self, name: str) -> Ref:
        return calls.input_of(self._call, name)

    def some(self, *names: str) -> dict[str, Input]:
        """These inputs, for a call that takes them over."""
        return {name: self[name] for name in names}

    def but(self, **changes: Input) -> dict[str, Input]:
        """All inputs, with these in the place of some."""
        return {**calls.inputs_of(self._call), **changes}


class Rewrite:
    """A graph whose chain of calls is being changed. Removed calls leave a gap, so that indices stay valid."""

    def __init__(self, vk: VkGraph) -> None:
        self.chain: list[OperatorCall | None] = list(vk.chain)
        self.current = 0  # where a pass is at work, for messages
        self._vk = vk
        self._values: list[Value] = list(vk.values)
        self._output_ids = vk.output_ids
        self._producers: dict[int, int] = {}
        self._read_counts: defaultdict[int, int] = defaultdict(int)
        self._returned = {item for v in vk.output_ids for item in self._with_items(v)}
        for v in vk.output_ids:
            self._count(v, 1)
        for index, call in enumerate(vk.chain):
            self._link(index, call)

    def _link(self, index: int, call: OperatorCall) -> None:
        for v in self._with_items(calls.output_of(call)):
            self._producers[v] = index
        for v in calls.reads(call):
            self._count(v, 1)

    def _count(self, v: int, change: int) -> None:
        self._read_counts[v] += change
        value = self._values[v]
        if type(value) is ValueList:
            for item in value.items:
                self._read_counts[item] += change

    def _with_items(self, v: int) -> tuple[int, ...]:
        value = self._values[v]
        return (v, *value.items) if type(value) is ValueList else (v,)

    def remove(self, index: int) -> None:
        """Remove a call; None is left in its place."""
        call = self.chain[index]
        if call is not None:
            for v in self._with_items(calls.output_of(call)):
                self._producers.pop(v, None)
            for v in calls.reads(call):
                self._count(v, -1)
            self.chain[index] = None

    def put(self, index: int, op: str, inputs: Mapping[str, Input], outputs: list[Ref]) -> None:
        """Put a call with these named inputs at this place of the chain."""
        output = self._ref(outputs) if calls.writes_list(op) else outputs[0]
        call = calls.make_call(op, {name: self._ref(value).id for name, value in inputs.items()}, output.id)
        self.remove(index)
        self.chain[index] = call
        self._link(index, call)

    def _ref(self, value: Input) -> Ref:
        if isinstance(value, Ref):
            return value
        if isinstance(value, list):
            return self.add(ValueList(tuple(ref.id for ref in value)))
        return self.add(value)

    def add(self, value: Value) -> Ref:
        """A new value."""
        self._values.append(value)
        return Ref(len(self._values) - 1)

    def redirect(self, replacements: Mapping[Ref, Ref]) -> None:
        """Make everything that reads a replaced value, also in a list, read its replacement.

        A replacement may be replaced itself, by an earlier entry.
        """
        ids: dict[int, int] = {}
        for old, new in replacements.items():
            ids[old.id] = ids.get(new.id, new.id)
            self._read_counts[ids[old.id]] += self._read_counts.pop(old.id, 0)

        def replaced(v: int) -> int:
            return ids.get(v, v)

        for v, value in enumerate(self._values):
            if type(value) is ValueList and not ids.keys().isdisjoint(value.items):
                self._values[v] = ValueList(tuple(map(replaced, value.items)))
        for index, call in enumerate(self.chain):
            if call is not None and not ids.keys().isdisjoint(calls.reads(call)):
                self.chain[index] = calls.with_reads(call, replaced)
        self._output_ids = tuple(map(replaced, self._output_ids))

    def producer(self, ref: Ref) -> int | None:
        """Index of the call that computes the value."""
        return self._producers.get(ref.id)

    def read_count(self, ref: Ref) -> int:
        """How many inputs of calls, and outputs of the graph, are this value."""
        return self._read_counts.get(ref.id, 0)

    def value(self, ref: Ref) -> Value:
        return self._values[ref.id]

    def tensor(self, ref: Ref) -> VkTensor | None:
        """The value if it is a tensor."""
        value = self._values[ref.id]
        return value if isinstance(value, VkTensor) else None

    def outputs(self, call: OperatorCall) -> list[Ref]:
        """What the call computes, in the order of its schema's outputs."""
        output = calls.output_of(call)
        value = self._values[output]
        return list(map(Ref, value.items)) if isinstance(value, ValueList) else [Ref(output)]

    def output(self, index: int, name: str) -> Ref | None:
        """The output of this name of a call; None where the call does not write as many values as its op."""
        call = self.chain[index]
        assert call is not None
        names, refs = load_all()[call.name].outs, self.outputs(call)
        return refs[names.index(name)] if len(names) == len(refs) else None

    def call_at(self, index: int) -> NamedCall:
        call = self.chain[index]
        assert call is not None
        return NamedCall(call, index, self.outputs(call))

    def is_returned(self, ref: Ref) -> bool:
        """Whether the value was an output of the graph before any change."""
        return ref.id in self._returned

    def place(self) -> str:
        """Where a pass is at work, by the name of the call that the file has there."""
        return f"{self._vk.chain[self.current].name} (node {self.current})" if self._vk.chain else "an empty graph"

    def finish(self) -> VkGraph:
        chain = tuple(call for call in self.chain if call is not None)
        return replace(self._vk, values=tuple(self._values), chain=chain, output_ids=self._output_ids)
