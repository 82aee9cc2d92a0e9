"""Checks whether a program can be run, before any device is opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..errors import UnsupportedError
from ..formats.pte import KernelCall, Method
from ..formats.vkgraph import VkTensor

_TRAINING_OPS = ("adamw_step", "fused_ce", "linear_dW", "linear_q4gsw_backward", "q4gsw_requant")
TRAINING = {f"et_vk.{name}.default" for name in _TRAINING_OPS}
TESTING = {
    "etvk.choose_qparams_per_row.default",
    "etvk.test_conv2d_q8ta_q8csw_q8to.default",
    "testing.compute_attn_weight_with_kv_cache.default",
}


def known_ops() -> Mapping[str, Any]:
    """The ops that a file may name, by serialized name. Fusion's own ops are not among them."""
    from ..ops.spec import load_all

    return {name: op for name, op in load_all().items() if not name.startswith("wr.")}


def known_kernels() -> Mapping[str, Any]:
    """The CPU kernels for operators between delegates, by registered name."""
    from .cpu import KERNELS

    return KERNELS


def check_method(method: Method) -> None:
    """Refuses a method that we cannot run, naming everything that is missing."""
    from ..graph.boundary import graph_errors
    from ..graph.graph import Graph
    from ..graph.planner import Engine
    from ..ops.limits import Limits
    from .interpreter import Interpreter

    others = sorted({delegate.id for delegate in method.delegates if delegate.graph is None})
    if others:
        raise UnsupportedError(f"{method.name!r} has parts for another backend: {', '.join(others)}")
    names = [step.op for step in method.instructions if isinstance(step, KernelCall)]
    names += [call.name for delegate in method.delegates if delegate.graph for call in delegate.graph.chain]
    have = {**known_ops(), **known_kernels()}
    missing = Counter(name for name in names if name not in have)
    if missing:
        listed = ", ".join(f"{name} ×{count}" for name, count in sorted(missing.items()))
        if missing.keys() <= TRAINING:
            raise UnsupportedError(f"{method.name!r} trains a model, and only inference is supported: {listed}")
        if missing.keys() <= TESTING:
            raise UnsupportedError(f"{method.name!r} has ops that only ExecuTorch's C++ tests build: {listed}")
        raise UnsupportedError(f"{method.name!r} needs ops that are not supported: {listed}")
    Interpreter(method)
    for delegate in method.delegates:
        if delegate.graph is not None:
            with graph_errors(f"{method.name!r}"):
                Engine(Graph(delegate.graph, delegate.constant), Limits())  # checks every shape at its largest


def notes(method: Method) -> tuple[str, ...]:
    """What runs, but not exactly as the file says."""
    graphs = [delegate.graph for delegate in method.delegates if delegate.graph]
    halves = sum(isinstance(v, VkTensor) and v.dtype == "float16" for graph in graphs for v in graph.values)
    return (f"{halves} f16 tensors are computed in f32, on every adapter",) if halves else ()
