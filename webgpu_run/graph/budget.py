"""The memory and limits that graphs need, compared with the device before anything is allocated."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..errors import ShapeError
from ..ops import strips, wgsl
from ..ops.limits import Limits
from ..ops.plan import Step
from ..ops.spec import Resource
from ..shapes import ITEMSIZE, prod
from .boundary import graph_errors
from .graph import Graph, Node
from .host_memory import available
from .memory import Memory
from .planner import Engine

SLACK = 1024  # kernels that bind a row as a uniform read whole vectors


def activation_sizes(engine: Engine) -> dict[int, int]:
    """Bytes of every activation with its own memory; a window that a kernel binds may reach past the tensor's end."""
    graph = engine.graph
    sizes = {v: prod(t.max_dims) * 4 + SLACK for v, t in graph.tensors.items() if t.root == v and t.constant < 0}
    for node, plan in zip(graph.nodes, engine.plans, strict=True):
        for step in plan.steps:
            for name, window in step.windows:
                v = node.tensors.get(name)
                root = graph.tensors[v].root if v is not None else -1
                if root in sizes:
                    sizes[root] = max(sizes[root], window.offset + window.nbytes)
    return sizes


def largest(scratch: Iterable[tuple[str, Resource]]) -> dict[str, Resource]:
    """One resource per name, large enough for every node that uses it."""
    shared: dict[str, Resource] = {}
    for name, resource in scratch:
        other = shared.setdefault(name, resource)
        nbytes = max(other.nbytes, resource.nbytes)
        if other.texture and resource.texture:
            width, height, layers = map(max, other.texture, resource.texture)
            nbytes = width * height * layers * 16
            shared[name] = replace(other, nbytes=nbytes, texture=(width, height, layers))
        else:
            shared[name] = replace(other, nbytes=nbytes)
    return shared


def needed(engine: Engine, limits: Limits) -> Mapping[str, int]:
    """Bytes that a graph will allocate. Weights count as in the file if an op packs them, else widened to 32 bits."""
    graph = engine.graph
    weights: dict[Hashable, int] = {}
    scratch: list[tuple[str, Resource]] = []
    caches = 0
    for node, plan in zip(graph.nodes, engine.plans, strict=True):
        # Strips of floats are a copy: an embedding that shares the weight reads it from a buffer.
        is_copy = any(step.kernel in strips.KERNELS for step in plan.steps)
        for name, v in node.tensors.items():
            tensor = graph.tensors[graph.tensors[v].root]
            if tensor.constant < 0 or tensor.mutable or node.op.param(name).role == "cache":
                continue  # an activation, or a cache: its constant in the file only gives its dims
            key, width = _stored(graph, node, name), ITEMSIZE[tensor.dtype] if node.op.pack else 4
            nbytes = prod(tensor.max_dims) * width
            if is_copy and node.op.param(name).role == "weight":
                key, nbytes = (key, "strips"), strips.nbytes(tensor.max_dims, int(node.attrs.get("groups", 1)), limits)
            weights[key] = max(weights.get(key, 0), nbytes)
        owned: Mapping[str, Resource] = {}
        if node.op.resources:
            with graph_errors(f"{node.op.name} (node {node.index})"):
                owned = node.op.resources(node.args_at({}), limits)
        for name, resource in owned.items():
            if resource.state:
                caches += resource.nbytes
            else:
                scratch.append((name, resource))
    caches += sum(prod(t.max_dims) * 4 for t in graph.tensors.values() if t.mutable and t.root == t.id)
    activations = sum(Memory(graph, activation_sizes(engine)).sizes)
    activations += sum(resource.nbytes for resource in largest(scratch).values())
    return {"weights": sum(weights.values()), "activations": activations, "caches": caches}


def _stored(graph: Graph, node: Node, name: str) -> Hashable:
    """Identity of a constant: weights that share a key in the file are uploaded once, together with their scales."""
    param = node.op.param(name)
    if param.role == "scales" and node.op.pack:
        (weight,) = node.op.named("weight", "table")
        return (_stored(graph, node, weight + name.removeprefix(param.name)), "scales")
    k = graph.tensors[graph.tensors[node.tensors[name]].root].constant
    return graph.vk.constants[k].key or k


def check(engines: Sequence[Engine], limits: Limits, max_buffer: int, *, is_loaded: bool = False) -> None:
    """Refuse a model that this adapter cannot hold, and say by how much. If `is_loaded`, the weights are there."""
    for problem in problems(engines, limits, max_buffer, is_loaded=is_loaded):
        raise ShapeError(problem)


def problems(engines: Sequence[Engine], limits: Limits, max_buffer: int, *, is_loaded: bool = False) -> Iterator[str]:
    """Every limit of the adapter that a model exceeds, with what exceeds it and by how much."""
    total: dict[str, int] = {}
    for engine in engines:
        sizes = activation_sizes(engine)
        for node, plan in zip(engine.graph.nodes, engine.plans, strict=True):
            for step in plan.steps:
                yield from _workgroup_problems(node, step, limits)
                for name, v, nbytes, bound in _bound(engine.graph, node, step, sizes):
                    dims = list(engine.graph.tensors[v].max_dims)
                    what = f"{node.op.name} (node {node.index}): {name} has dims {dims}, {nbytes:,} bytes"
                    if nbytes > max_buffer:
                        yield f"{what}; the adapter's largest buffer is {max_buffer:,}"
                    elif bound > limits.max_binding:
                        yield f"{what}; the adapter binds at most {limits.max_binding:,}"
        for what, nbytes in needed(engine, limits).items():
            total[what] = total.get(what, 0) + (0 if is_loaded and what == "weights" else nbytes)
    have = available() if limits.software else None
    need = sum(total.values())
    if have is not None and need > have:
        parts = ", ".join(f"{what} {nbytes:,}" for what, nbytes in total.items())
        yield f"the model needs {need:,} bytes ({parts}), {have:,} are available"


def _workgroup_problems(node: Node, step: Step, limits: Limits) -> Iterator[str]:
    """Limits that a workgroup exceeds; drivers may accept it and fail later."""
    count, shared = wgsl.load(step.kernel).workgroup(step.consts)
    what = f"{node.op.name} (node {node.index}): kernel {step.kernel}"
    if count > limits.max_invocations:
        yield f"{what} runs {count} invocations a workgroup, the adapter takes {limits.max_invocations}"
    if shared > limits.max_workgroup_bytes:
        yield f"{what} shares {shared:,} bytes a workgroup, the adapter has {limits.max_workgroup_bytes:,}"


def _bound(graph: Graph, node: Node, step: Step, sizes: Mapping[int, int]) -> Iterator[tuple[str, int, int, int]]:
    """Tensors that a step binds as storage: (argument, value, bytes of the tensor, bytes bound)."""
    windows, rename = dict(step.windows), dict(step.rename)
    for binding in wgsl.load(step.kernel).bindings(step.consts):
        name = rename.get(binding.name, binding.name)
        v = node.tensors.get(name, node.written.get(name))
        if v is None or binding.kind not in ("read", "write"):
            continue
        root = graph.tensors[v].root
        if root in sizes:
            nbytes = sizes[root] - SLACK
        else:
            tensor = graph.tensors[root]
            nbytes = prod(tensor.max_dims) * (ITEMSIZE[tensor.dtype] if node.op.pack else 4)
        yield name, v, nbytes, windows[name].nbytes if name in windows else nbytes
