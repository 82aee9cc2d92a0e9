"""A graph's chain under rewriting, and the passes that only tidy it: what is said twice, or for nothing, is dropped."""

from __future__ import annotations

from dataclasses import replace

from ..formats.vkgraph import OperatorCall, Value, ValueList, VkGraph, VkTensor
from ..ops.limits import Limits


class Rewrite:
    """A chain under rewriting: who makes a value, who reads it."""

    def __init__(self, vk: VkGraph) -> None:
        self.vk = vk
        self.values: list[Value] = list(vk.values)
        self.chain: list[OperatorCall | None] = list(vk.chain)
        self.maker: dict[int, int] = {}
        self.readers: dict[int, list[int]] = {v: [len(self.chain)] for v in vk.output_ids}
        for i in range(len(self.chain)):
            self._enter(i)

    def _enter(self, i: int) -> None:
        if (call := self.chain[i]) is not None:
            for v in self.expand(call.args[-1]):
                self.maker[v] = i
            for arg in call.args[:-1]:
                for v in self.expand(arg):
                    self.readers.setdefault(v, []).append(i)

    def _leave(self, i: int) -> None:
        if (call := self.chain[i]) is not None:
            for v in self.expand(call.args[-1]):
                self.maker.pop(v, None)
            for arg in call.args[:-1]:
                for v in self.expand(arg):
                    self.readers[v].remove(i)
            self.chain[i] = None

    def expand(self, v: int) -> tuple[int, ...]:
        value = self.values[v]
        return (v, *value.items) if isinstance(value, ValueList) else (v,)

    def made_by(self, v: int, name: str) -> OperatorCall | None:
        """The call of this name that makes v, if there is one."""
        call = self.chain[self.maker[v]] if v in self.maker else None
        return call if call is not None and call.name == name else None

    def only(self, v: int) -> bool:
        """Exactly one call reads v."""
        return len(self.readers.get(v, ())) == 1

    def add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def put(self, at: int, name: str, args: tuple[int, ...], gone: tuple[int, ...]) -> None:
        """Place a call at `at`; the calls at `gone` disappear."""
        for i in (*gone, at):
            self._leave(i)
        self.chain[at] = OperatorCall(at, name, args)
        self._enter(at)

    def done(self) -> VkGraph:
        chain = tuple(call for call in self.chain if call is not None)
        return replace(self.vk, values=tuple(self.values), chain=chain)


def _substitute(vk: VkGraph, old: dict[int, int], chain: list[OperatorCall]) -> VkGraph:
    """The graph with this chain, every read of an old value replaced by its stand-in."""

    def final(v: int) -> int:
        while v in old:
            v = old[v]
        return v

    values = tuple(
        ValueList(tuple(final(v) for v in value.items)) if isinstance(value, ValueList) else value
        for value in vk.values
    )
    calls = tuple(replace(c, args=(*(final(v) for v in c.args[:-1]), c.args[-1])) for c in chain)
    return replace(vk, values=values, chain=calls, output_ids=tuple(final(v) for v in vk.output_ids))


def merge_symints(vk: VkGraph, limits: Limits) -> VkGraph:
    """One SymInt for one number: reads of the same element of the same input, or the same live size, are the same."""
    seen: dict[tuple[object, ...], int] = {}
    old: dict[int, int] = {}
    chain = []
    for call in vk.chain:
        if call.name in ("et_vk.select_as_symint.default", "sym_size.int"):
            x = vk.values[call.args[0]]
            numbers = [vk.values[v] for v in call.args[1:-1]]
            if isinstance(x, VkTensor) and all(isinstance(n, int) for n in numbers):
                if call.name != "sym_size.int" and numbers[1] == -1 and x.dims[int(numbers[0])] == 1:  # type: ignore[arg-type]
                    numbers[1] = 0
                key = (call.name, call.args[0], *numbers)
                first = seen.setdefault(key, call.args[-1])
                if first != call.args[-1]:
                    old[call.args[-1]] = first
                    continue
        chain.append(call)
    return _substitute(vk, old, chain)


def drop_views(vk: VkGraph, limits: Limits) -> VkGraph:
    """Reshapes to the shape a tensor already has, left over from 2-D matmuls."""
    old: dict[int, int] = {}
    chain = []
    for call in vk.chain:
        x, out = vk.values[call.args[0]] if call.args else None, vk.values[call.args[-1]]
        if (
            call.name == "aten.view_copy.default"
            and isinstance(x, VkTensor)
            and isinstance(out, VkTensor)
            and (x.dims, x.dtype) == (out.dims, out.dtype)
            and call.args[-1] not in vk.output_ids
        ):
            old[call.args[-1]] = call.args[0]
        else:
            chain.append(call)
    return _substitute(vk, old, chain)


def drop_unused(vk: VkGraph) -> VkGraph:
    """Without calls whose result nothing reads (none of those left has another effect)."""
    pure = ("aten.slice_copy.Tensor", "aten.clone.default", "aten.view_copy.default", "sym_size.int", "add")
    chain = list(vk.chain)
    while True:
        g = Rewrite(replace(vk, chain=tuple(chain)))
        kept = [c for c in chain if c.name not in pure or g.readers.get(c.args[-1])]
        if len(kept) == len(chain):
            return replace(vk, chain=tuple(chain))
        chain = kept
