"""Well-formed files with graphs that make no sense: changed ops, arguments, dims, dtypes, ids, lists and order."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from webgpu_run.formats import pte, pte_writer
from webgpu_run.formats.vkgraph import (
    BoolList,
    DoubleList,
    IntList,
    OperatorCall,
    SymInt,
    ValueList,
    VkGraph,
    VkTensor,
)
from webgpu_run.formats.vkgraph_writer import program_of
from webgpu_run.ops.spec import load_all

from helpers.file_mutants import Sample

DTYPES = ("float32", "float16", "int32", "int8", "uint8", "bool")
NUMBERS = (0, 1, -1, 2, 3, 7, 8, 16, 31, 64, 127, 1000, 1 << 16, 1 << 20, 1 << 30, (1 << 31) - 1, -(1 << 31), 1 << 62)
Edit = Callable[[VkGraph, random.Random], VkGraph]


def _with_call(vk: VkGraph, i: int, call: OperatorCall) -> VkGraph:
    return replace(vk, chain=(*vk.chain[:i], call, *vk.chain[i + 1 :]))


def _with_value(vk: VkGraph, i: int, value: Any) -> VkGraph:
    return replace(vk, values=(*vk.values[:i], value, *vk.values[i + 1 :]))


def _any_call(vk: VkGraph, rng: random.Random) -> int:
    return rng.randrange(len(vk.chain))


def _some(vk: VkGraph, rng: random.Random, kinds: type | tuple[type, ...]) -> int | None:
    found = [i for i, value in enumerate(vk.values) if isinstance(value, kinds)]
    return rng.choice(found) if found else None


def other_op(vk: VkGraph, rng: random.Random) -> VkGraph:
    i = _any_call(vk, rng)
    return _with_call(vk, i, replace(vk.chain[i], name=rng.choice(sorted(load_all()))))


def other_argument(vk: VkGraph, rng: random.Random) -> VkGraph:
    """An argument, or the output, becomes another value."""
    i = _any_call(vk, rng)
    args = list(vk.chain[i].args)
    args[rng.randrange(len(args))] = rng.randrange(len(vk.values))
    return _with_call(vk, i, replace(vk.chain[i], args=tuple(args)))


def argument_count(vk: VkGraph, rng: random.Random) -> VkGraph:
    i = _any_call(vk, rng)
    args = list(vk.chain[i].args)
    if rng.random() < 0.5 and len(args) > 1:
        del args[rng.randrange(len(args))]
    else:
        args.insert(rng.randrange(len(args)), rng.randrange(len(vk.values)))
    return _with_call(vk, i, replace(vk.chain[i], args=tuple(args)))


def swapped_arguments(vk: VkGraph, rng: random.Random) -> VkGraph:
    i = _any_call(vk, rng)
    args = list(vk.chain[i].args)
    a, b = rng.randrange(len(args)), rng.randrange(len(args))
    args[a], args[b] = args[b], args[a]
    return _with_call(vk, i, replace(vk.chain[i], args=tuple(args)))


def other_dims(vk: VkGraph, rng: random.Random) -> VkGraph:
    """A dim changes, comes or goes; the tensor is one that the file does not fill, so that it stays readable."""
    found = [
        i for i, v in enumerate(vk.values) if isinstance(v, VkTensor) and (v.constant_id < 0 or rng.random() < 0.1)
    ]
    if not found:
        return vk
    i = rng.choice(found)
    tensor: Any = vk.values[i]
    dims = list(tensor.dims)
    kind = rng.randrange(4)
    if kind == 0 or not dims:
        dims.insert(rng.randint(0, len(dims)), rng.choice((1, 2, 4, 5)))
    elif kind == 1:
        del dims[rng.randrange(len(dims))]
    elif kind == 2:
        dims[rng.randrange(len(dims))] = max(1, abs(rng.choice(NUMBERS)) % (1 << 31))
    else:
        rng.shuffle(dims)
    return _with_value(vk, i, replace(tensor, dims=tuple(dims)))


def other_dtype(vk: VkGraph, rng: random.Random) -> VkGraph:
    i = _some(vk, rng, VkTensor)
    return vk if i is None else _with_value(vk, i, replace(vk.values[i], dtype=rng.choice(DTYPES)))  # type: ignore[type-var]


def other_constant(vk: VkGraph, rng: random.Random) -> VkGraph:
    """A constant becomes an activation, an activation a constant, or a constant another one."""
    i = _some(vk, rng, VkTensor)
    if i is None:
        return vk
    constant = rng.randint(-1, len(vk.constants) - 1)
    return _with_value(vk, i, replace(vk.values[i], constant_id=constant))  # type: ignore[type-var]


def other_scalar(vk: VkGraph, rng: random.Random) -> VkGraph:
    """A scalar, or None, becomes a scalar of any kind."""
    found = [i for i, v in enumerate(vk.values) if v is None or isinstance(v, bool | int | float | str)]
    if not found:
        return vk
    value = rng.choice((None, True, False, 0.5, -1.0, float("nan"), float("inf"), "", "tanh", *NUMBERS))
    return _with_value(vk, rng.choice(found), value)


def other_kind(vk: VkGraph, rng: random.Random) -> VkGraph:
    """A value of any kind becomes one of another kind."""
    ids = tuple(rng.randrange(len(vk.values)) for _ in range(rng.randint(0, 4)))
    kinds = (
        None,
        3,
        SymInt(rng.choice((0, 1, 5))),
        VkTensor(rng.choice(DTYPES), tuple(rng.choice((1, 2, 4)) for _ in range(rng.randint(0, 5)))),
        IntList(tuple(rng.choice(NUMBERS) for _ in range(rng.randint(0, 5)))),
        ValueList(tuple(v for v in ids if not isinstance(vk.values[v], ValueList))),
    )
    return _with_value(vk, rng.randrange(len(vk.values)), rng.choice(kinds))


def other_list(vk: VkGraph, rng: random.Random) -> VkGraph:
    """An item of a list changes, comes, goes, or is repeated many times."""
    i = _some(vk, rng, (IntList, DoubleList, BoolList, ValueList))
    if i is None:
        return vk
    value: Any = vk.values[i]
    items = list(value.items)
    item = rng.randrange(len(vk.values)) if isinstance(value, ValueList) else rng.choice(NUMBERS)
    if isinstance(value, BoolList | DoubleList):
        item = type(items[0])(item) if items else True
    kind = rng.randrange(4)
    if kind == 0 and items:
        items[rng.randrange(len(items))] = item
    elif kind == 1 and items:
        del items[rng.randrange(len(items))]
    elif kind == 2:
        items.insert(rng.randint(0, len(items)), item)
    else:
        items = (items or [item]) * rng.choice((2, 3, 100))
    return _with_value(vk, i, type(value)(tuple(items)))


def other_ends(vk: VkGraph, rng: random.Random) -> VkGraph:
    """An input or output of the graph becomes another value, comes, or goes."""
    name = rng.choice(("input_ids", "output_ids"))
    ids = list(getattr(vk, name))
    kind, v = rng.randrange(3), rng.randrange(len(vk.values))
    if kind == 0 and ids:
        ids[rng.randrange(len(ids))] = v
    elif kind == 1 and ids:
        del ids[rng.randrange(len(ids))]
    else:
        ids.append(v)
    return replace(vk, **{name: tuple(ids)})


def other_order(vk: VkGraph, rng: random.Random) -> VkGraph:
    """A call moves, goes, or comes a second time with an output of its own."""
    chain = list(vk.chain)
    i, kind = _any_call(vk, rng), rng.randrange(3)
    if kind == 0:
        chain.insert(rng.randrange(len(chain)), chain.pop(i))
    elif kind == 1 and len(chain) > 1:
        del chain[i]
    else:
        call, value = chain[i], vk.values[chain[i].args[-1]]
        chain.insert(i + 1, replace(call, args=(*call.args[:-1], len(vk.values))))
        vk = replace(vk, values=(*vk.values, value))
    return replace(vk, chain=tuple(chain))


EDITS: tuple[Edit, ...] = (
    other_op,
    other_argument,
    argument_count,
    swapped_arguments,
    other_dims,
    other_dtype,
    other_constant,
    other_scalar,
    other_kind,
    other_list,
    other_ends,
    other_order,
)


@functools.cache
def _graph_of(sample: Sample) -> tuple[VkGraph, list[bytes]]:
    """The first graph of the file and the bytes of its constants."""
    delegate = next(d for d in pte.loads(sample.data).methods[0].delegates if d.graph is not None)
    assert delegate.graph is not None
    return delegate.graph, [delegate.constant(i).read() for i in range(len(delegate.graph.constants))]


def graph_mutant(k: int, samples: list[Sample]) -> tuple[str, Sample, bytes]:
    """Mutant k: the name of its edit, the file that it was, and its bytes. Half of them have up to three more edits."""
    rng = random.Random(k)
    edit, sample = EDITS[k % len(EDITS)], samples[k // len(EDITS) % len(samples)]
    vk, constants = _graph_of(sample)
    for change in [rng.choice(EDITS) for _ in range(rng.randint(1, 3))] if rng.random() < 0.5 else []:
        vk = change(vk, rng)
    vk = edit(vk, rng)
    return edit.__name__, sample, pte_writer.dumps(program_of(vk, constants, dynamic=True))
