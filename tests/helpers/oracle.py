"""The simplest resize engine: plans every node in order, from nothing. The real engine must agree with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webgpu_run.graph.graph import Graph, Sym
from webgpu_run.ops.limits import Limits
from webgpu_run.ops.plan import Plan
from webgpu_run.ops.spec import Args
from webgpu_run.shapes import Array, Dims


def naive(graph: Graph, inputs: Sequence[Array], limits: Limits) -> tuple[list[Plan], dict[int, Dims], dict[int, int]]:
    """Plans, live dims and SymInts for these inputs: no memory of earlier shapes, no dirty marks, no memo."""
    tensors = graph.tensors
    live: dict[int, Dims] = {v: t.max_dims for v, t in tensors.items() if t.constant >= 0}
    given = dict(zip(graph.input_ids, inputs, strict=True))
    data = {v: x for v, x in given.items() if v in tensors}
    live |= {v: tuple(x.shape) for v, x in data.items()}
    syms = {v: int(x) for v, x in given.items() if v not in tensors}
    plans: list[Plan] = []
    for node in graph.nodes:
        attrs: dict[str, Any] = {
            name: tuple(syms[x.value] if isinstance(x, Sym) else x for x in a) if isinstance(a, tuple) else a
            for name, a in node.attrs.items()
        }
        attrs |= {name: syms[v] for name, v in node.syms.items()}
        named = {**node.tensors, **{n: v for n, v in zip(node.op.outs, node.outs, strict=True) if v in tensors}}
        if node.op.reads_data:
            attrs["data"] = data[node.tensors[node.op.reads_data]]
        if node.op.alias:
            attrs["aliased"] = tensors[node.outs[0]].root != node.outs[0]
        args = Args(
            {name: live[v] for name, v in node.tensors.items()},
            attrs,
            max_dims={name: tensors[v].max_dims for name, v in named.items()},
            dtypes={name: tensors[v].dtype for name, v in named.items()},
            slots=node.slots,
        )
        plan = node.op.plan(args, limits)
        plans.append(plan)
        if plan.sym is not None:
            syms[node.outs[0]] = plan.sym
        live |= dict(zip(node.outs, plan.outs, strict=False))
    return plans, live, syms
