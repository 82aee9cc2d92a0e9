"""Runs a method's execution plan: delegates, CPU kernels, moves, jumps and frees over a table of values.

Values are numpy arrays at their live shapes (or Python scalars), one per value id. A tensor that is read and that no
step writes is either a view, if the file places it in the memory of another tensor, or a mutable buffer: it starts with
the file's data or zeros, and keeps its contents from call to call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import GraphError, RunError, ShapeError, UnsupportedError
from ..formats import pte
from ..formats.vkgraph import BoolList, DoubleList, IntList
from ..shapes import Array, prod
from . import bfloat16, cpu

# A call may take this many steps: instructions, and items of the lists that they read. So may the check before it.
MAX_STEPS = 250_000

CallDelegate = Callable[[int, list[Any]], Sequence[Array]]


class Interpreter:
    """The execution plan of one method, checked, and its mutable buffers."""

    def __init__(self, method: pte.Method) -> None:
        self.method = method
        self._counts = {i: len(d.graph.input_ids) for i, d in enumerate(method.delegates) if d.graph}
        self._constants: dict[int, Any] = {}
        self._state: dict[int, Any] = {}
        self._steps_left = MAX_STEPS
        self._views: dict[int, int] = {}  # a tensor, and the one whose memory it shares
        self._buffers = self._check()

    def run(self, inputs: Sequence[Array], call: CallDelegate) -> list[Any]:
        """Run the plan and return the method's outputs; `call` runs a delegate. Buffers change only on success."""
        env: dict[int, Any] = {**self._state, **dict(zip(self.method.inputs, inputs, strict=True))}
        self._steps_left = MAX_STEPS
        for chain in self.method.chains:
            at, steps = 0, chain.instructions
            while at < len(steps):
                step = steps[at]
                at += 1
                self._spend(1)
                match step:
                    case pte.DelegateCall(delegate, args):
                        n = self._counts[delegate]
                        outs = call(delegate, [self._value(env, v) for v in args[:n]])
                        for v, out in zip(args[n:], outs, strict=True):
                            env[v] = self._stored(v, out, f"delegate {delegate}")
                    case pte.KernelCall():
                        self._kernel(env, step)
                    case pte.MoveCall(source, target):
                        env[target] = self._value(env, source)
                    case pte.JumpFalseCall(condition, destination):
                        if not np.all(self._value(env, condition)):
                            at = destination
                    case pte.FreeCall(value):
                        env.pop(value, None)
        outs = [self._value(env, v) for v in self.method.outputs]
        self._state = {v: env[v] for v in self._buffers if v in env}
        return outs

    def _spend(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise GraphError(f"{self.method.name!r} took {MAX_STEPS:,} steps without coming to an end")

    @property
    def keeps_state(self) -> bool:
        """Whether tensors of the method itself persist between calls."""
        return bool(self._buffers)

    def reset(self) -> None:
        """Set mutable buffers back to their initial contents."""
        self._state = {}

    def _kernel(self, env: dict[int, Any], step: pte.KernelCall) -> None:
        kernel = cpu.KERNELS[step.op]
        outs = self._outputs(kernel, step)
        given: dict[str, Any] = {}
        if "out" in kernel.takes:
            given["out"] = self.method.values[outs[0]]
        if "order" in kernel.takes:
            given["order"] = _order(self.method.values[step.args[0]])
        try:
            with np.errstate(all="ignore"):
                result = kernel.f(*(self._value(env, v) for v in step.args[: kernel.inputs]), **given)
        except RunError:
            raise
        except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as err:
            raise ShapeError(f"{step.op}: {err}") from err
        results = result if kernel.outs > 1 or isinstance(result, list) else (result,)
        if len(results) != len(outs):
            raise ShapeError(f"{step.op}: {len(results)} results for {len(outs)} outputs")
        env.update({v: self._stored(v, one, step.op) for v, one in zip(outs, results, strict=True)})

    def _outputs(self, kernel: cpu.CpuKernel, step: pte.KernelCall) -> list[int]:
        """The ids of the values that a call fills, those of a list one by one."""
        outs = kernel.outputs(step.args)
        if not outs:
            count = f"{kernel.inputs} and {'the output' if kernel.outs == 1 else f'{kernel.outs} outputs'}"
            raise GraphError(f"{step.op}: {len(step.args)} arguments, expected {count}")
        return self._flat(outs)

    def _stored(self, v: int, result: Any, what: str) -> Any:
        """A result, cast to the dtype of its value. Its dims must fit the declared dims."""
        spec = self.method.values[v]
        if not isinstance(spec, pte.Tensor):
            return result
        with np.errstate(all="ignore"):
            array = bfloat16.stored(result, spec.dtype)
        fits = array.ndim == len(spec.dims) and all(n <= m for n, m in zip(array.shape, spec.dims, strict=True))
        if not fits:
            raise ShapeError(f"{what}: the result has dims {list(array.shape)}, value {v} holds {list(spec.dims)}")
        return array

    def _value(self, env: dict[int, Any], v: int) -> Any:
        if v in env:
            return env[v]
        if v in self._constants:
            return self._constants[v]
        value = self.method.values[v]
        if v in self._views and isinstance(value, pte.Tensor):
            return _seen_as(value, self.method.values[self._views[v]], self._value(env, self._views[v]))
        match value:
            case pte.Tensor():
                array = _initial(value)
                if v in self._buffers:
                    env[v] = array
                else:
                    self._constants[v] = array
                return array
            case pte.TensorList(items):
                self._spend(len(items))
                return [None if i < 0 else self._value(env, i) for i in items]
            case IntList(items):  # a list of value ids, each of which may have been computed
                self._spend(len(items))
                return tuple(int(self._value(env, i)) for i in items)
            case DoubleList(items) | BoolList(items):
                return items
        return value

    def _check(self) -> frozenset[int]:
        """Check that every call can be made and find the views. Returns the value ids of the mutable buffers."""
        method, values = self.method, self.method.values
        steps = [*self._reads_and_writes(), (method.outputs, ())]
        will_be_written = {v for _, writes in steps for v in writes}
        stored = {
            _place(values[v]): v
            for v in will_be_written | set(range(len(values)))
            if _is_stored(values[v], v in will_be_written)
        }
        written, buffers = set(method.inputs), set[int]()
        holders = {_place(values[v]): v for v in method.inputs}  # of each place in memory: the value it has now
        for reads, writes in steps:
            for v in self._flat(reads):
                value = values[v]
                if not isinstance(value, pte.Tensor) or v in written or value.constant or v in self._views:
                    continue
                place = _place(value)
                base = holders.get(place, stored.get(place, v)) if place and v not in will_be_written else v
                if base == v:
                    if place is None and v not in will_be_written:
                        raise GraphError(f"value {v} is read, but nothing writes it and it has no memory")
                    buffers.add(v)
                    continue
                self._views[v] = base
                if base not in written:
                    buffers.add(base)
            written.update(writes)
            holders |= {_place(values[v]): v for v in writes}
        return frozenset(buffers)

    def _reads_and_writes(self) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        """What each step reads and writes; a step that cannot be taken is an error."""
        method = self.method
        for step in method.instructions:
            match step:
                case pte.KernelCall(name, args):
                    kernel = cpu.KERNELS.get(name)
                    if kernel is None:
                        raise UnsupportedError(f"{name} is not a CPU kernel we have")
                    reads, writes = args[: kernel.inputs], tuple(self._outputs(kernel, step))
                    self._check_dtypes(name, (*reads, *writes))
                    yield reads, writes
                case pte.DelegateCall(delegate, args):
                    n = self._counts.get(delegate, 0)
                    graph = method.delegates[delegate].graph
                    if graph and len(args[n:]) != len(graph.output_ids):
                        raise GraphError(f"delegate {delegate} is called with different numbers of outputs")
                    yield args[:n], args[n:]
                case pte.MoveCall(source, target):
                    yield (source,), (target,)

    def _flat(self, ids: Sequence[int]) -> list[int]:
        """These ids and those in the lists they name."""
        out = []
        for v in ids:
            value = self.method.values[v]
            if isinstance(value, IntList | pte.TensorList):
                self._spend(len(value.items))
            if isinstance(value, IntList):
                for i in value.items:
                    if not 0 <= i < len(self.method.values):
                        raise GraphError(f"value {v} is a list of value ids; {i} in it does not exist")
            out += [i for i in value.items if i >= 0] if isinstance(value, pte.TensorList) else [v]
        return out

    def _check_dtypes(self, name: str, ids: Sequence[int]) -> None:
        for v in self._flat(ids):
            value = self.method.values[v]
            if isinstance(value, pte.Tensor):
                try:
                    np.dtype(value.array_dtype)
                except TypeError:
                    what = f"{name}: value {v} is a {value.dtype} tensor, which no kernel takes"
                    raise UnsupportedError(what) from None


Place = tuple[int, int] | None


def _place(value: pte.EValue) -> Place:
    """Where the file's memory plan puts a tensor."""
    if not isinstance(value, pte.Tensor) or value.allocation is None:
        return None
    return value.allocation.memory_id, value.allocation.offset


def _is_stored(value: pte.EValue, is_written: bool) -> bool:
    return isinstance(value, pte.Tensor) and value.allocation is not None and (is_written or value.data is not None)


def _seen_as(view: pte.Tensor, base: pte.EValue, held: Array) -> Array:
    """The memory of a tensor, with the dims of a view of it. The exporter writes no step for such a view."""
    order, inner = _order(view), _order(base)
    held_as = "bfloat16" if isinstance(base, pte.Tensor) and base.dtype == "bfloat16" else str(held.dtype)
    if view.dtype != held_as or held.size != prod(view.dims):
        what = f"{held_as} {list(held.shape)}"
        raise GraphError(f"a tensor of {view.dtype} {list(view.dims)} is placed in the memory of {what}")
    memory = held.transpose(inner).reshape([view.dims[d] for d in order])
    return memory.transpose(np.argsort(order)) if order else memory


def _initial(tensor: pte.Tensor) -> Array:
    """What the file says a tensor holds before anything is written to it."""
    if tensor.data is None:
        return np.zeros(tensor.dims, tensor.array_dtype)
    order, data = _order(tensor), tensor.data.read()
    is_short = tensor.dtype == "bfloat16"
    stored = bfloat16.from_bits(np.frombuffer(data, "<u2")) if is_short else np.frombuffer(data, tensor.dtype)
    stored = stored.reshape([tensor.dims[d] for d in order])
    return stored.transpose(np.argsort(order)) if order else stored


def _order(value: pte.EValue) -> tuple[int, ...]:
    """The dims of a tensor as they lie in memory, the innermost last."""
    if not isinstance(value, pte.Tensor):
        raise ShapeError("a tensor was expected")
    return value.dim_order or tuple(range(len(value.dims)))
