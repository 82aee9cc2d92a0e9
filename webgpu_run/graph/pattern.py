"""Patterns of subgraphs: calls nested as the graph nests them, with names for the values that a replacement needs.

`Call("aten.mul.Tensor", a="x", b=Call("aten.sigmoid.default", x="x"))` matches x * sigmoid(x) and captures x. An
input of a pattern is one of
- a name: captures the value; a repeated name stands for the same value;
- `Is(1, None)`: the value equals one of these;
- a `Call`, or one of its outputs (`rope["ok"]`): a matching call computes the value. A `Call` object that occurs twice
  stands for the same call.
Inputs that are not mentioned may be anything.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, overload

from ..formats.vkgraph import OperatorCall
from . import calls
from .calls import Ref
from .rewrite import Input, NamedCall, Rewrite


class Is:
    """Matches a value that equals one of the options; numbers are compared across types, because exporters mix them."""

    def __init__(self, *options: Any) -> None:
        self.options = options


class Call:
    """Matches a call of one of the ops (names separated by blanks) with these inputs.

    With `commutes`, the first two inputs may be in either order.
    """

    def __init__(self, ops: str, *, commutes: bool = False, **inputs: Wanted) -> None:
        self.ops = frozenset(ops.split())
        self.orders: tuple[tuple[tuple[str, Wanted], ...], ...] = (tuple(inputs.items()),)
        if commutes:
            (first, a), (second, b), *rest = inputs.items()
            self.orders += (((first, b), (second, a), *rest),)

    def __getitem__(self, output: str) -> Output:
        return Output(self, output)

    @functools.cached_property
    def inner_calls(self) -> Counter[Call]:
        """The calls that this one reads from, directly or not, and how many inputs of the pattern each one feeds."""
        counts: Counter[Call] = Counter()
        pending = [self]
        while pending:
            for _, want in pending.pop().orders[0]:
                call = want.call if isinstance(want, Output) else want
                if isinstance(call, Call):
                    if call not in counts:
                        pending.append(call)
                    counts[call] += 1
        return counts


class Output:
    """One of several outputs of a call."""

    def __init__(self, call: Call, name: str) -> None:
        self.call, self.name = call, name


Wanted = str | Is | Call | Output

Bindings = dict[Call | str, int]  # a call -> its index in the chain; a captured name -> its value id


class Match:
    """A place of the graph that a pattern matches. `match["x"]` is a captured value, `match[norm]` a matched call."""

    def __init__(self, g: Rewrite, root: Call, bound: Bindings) -> None:
        self._g, self._root, self._bound = g, root, bound

    @overload
    def __getitem__(self, key: str) -> Ref: ...
    @overload
    def __getitem__(self, key: Call) -> NamedCall: ...
    def __getitem__(self, key: str | Call) -> Ref | NamedCall:
        return Ref(self._bound[key]) if isinstance(key, str) else self._g.call_at(self._bound[key])

    def replace(self, op: str, **inputs: Input) -> None:
        """Replace all matched calls by one, in the place of the last; it computes what the last one did."""
        place, outputs = self._bound[self._root], self[self._root].outputs
        for key, index in self._bound.items():
            if isinstance(key, Call) and index != place:
                self._g.remove(index)
        self._g.put(place, op, inputs, outputs)

    def is_exclusive(self) -> bool:
        """Whether nothing but the matched calls reads what they compute, the result of the last one aside."""
        return all(
            sum(map(self._g.read_count, self[call].outputs)) == count for call, count in self._root.inner_calls.items()
        )


def matches(g: Rewrite, pattern: Call) -> Iterator[Match]:
    """Every match whose calls can be replaced. The caller may replace each one before it asks for the next."""
    for index, call in enumerate(g.chain):
        if call is None or call.name not in pattern.ops:
            continue
        g.current = index
        for bound in _call(g, pattern, index, {}):
            match = Match(g, pattern, bound)
            if g.chain[index] is call and match.is_exclusive():
                yield match


def computed_by(g: Rewrite, ref: Ref, pattern: Call) -> Match | None:
    """The match of the call that computes a value, whatever else reads its result."""
    index = g.producer(ref)
    bound = next(_call(g, pattern, index, {}), None) if index is not None else None
    return Match(g, pattern, bound) if bound is not None else None


def _call(g: Rewrite, pattern: Call, index: int, bound: Bindings) -> Iterator[Bindings]:
    """Every way in which the call at this index matches, given what is already bound."""
    call = g.chain[index]
    if call is None or call.name not in pattern.ops:
        return
    if pattern in bound:
        if bound[pattern] == index:
            yield bound
        return
    for inputs in pattern.orders:
        yield from _inputs(g, call, inputs, {**bound, pattern: index})


def _inputs(
    g: Rewrite, call: OperatorCall, inputs: Sequence[tuple[str, Wanted]], bound: Bindings
) -> Iterator[Bindings]:
    if not inputs:
        yield bound
        return
    (name, want), *rest = inputs
    for more in _value(g, want, calls.input_of(call, name), bound):
        yield from _inputs(g, call, rest, more)


def _value(g: Rewrite, want: Wanted, ref: Ref, bound: Bindings) -> Iterator[Bindings]:
    if isinstance(want, str):
        if bound.get(want, ref.id) == ref.id:
            yield {**bound, want: ref.id}
    elif isinstance(want, Is):
        if g.value(ref) in want.options:
            yield bound
    else:
        index = g.producer(ref)
        if index is None:
            return
        for more in _call(g, want if isinstance(want, Call) else want.call, index, bound):
            if isinstance(want, Call) or g.output(index, want.name) == ref:
                yield more
