"""SymInts at the largest shapes of a graph, of those that no input's dims decide: inputs, and elements of inputs.

A file declares the largest dims of every tensor, but no range of a SymInt. So a SymInt that sizes a tensor is read back
from the dims of that tensor, also through arithmetic: where `view(x, [1, n * 4])` is declared [1, 256], n is 64. One
that sizes nothing, such as a position, counts as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..shapes import wrap
from .graph import Graph, Node, Sym

# Of result = f(a, b): the argument that is unknown, from the result and the other argument.
_INVERSE: Mapping[str, tuple[Callable[[int, int], int], Callable[[int, int], int]]] = {
    "add": (lambda r, b: r - b, lambda r, a: r - a),
    "sub": (lambda r, b: r + b, lambda r, a: a - r),
    "mul": (lambda r, b: r // b if b else 0, lambda r, a: r // a if a else 0),
    "floordiv": (lambda r, b: r * b, lambda r, a: a // r if r else 0),
}


def largest_syms(graph: Graph) -> dict[int, int]:
    """By value id, as far as they can be told."""
    found: dict[int, int] = {}
    for node in graph.nodes:
        for v, value in _sizes(graph, node):
            found.setdefault(v, value)
    for node in reversed(graph.nodes):
        if node.op.name in _INVERSE and node.outs[0] in found and len(node.syms) == 1:
            (name, v), result = next(iter(node.syms.items())), found[node.outs[0]]
            left, right = _INVERSE[node.op.name]
            other = node.attrs["b" if name == "a" else "a"]
            found.setdefault(v, left(result, other) if name == "a" else right(result, other))
    return {v: value for v, value in found.items() if value > 0}


def _sizes(graph: Graph, node: Node) -> Iterator[tuple[int, int]]:
    """(SymInt, value) of those that an output's dims decide directly."""
    out = node.max_dims.get("out", ())
    if "dims" in node.symbolic and len(out) == len(node.attrs["dims"]):
        yield from ((item.value, n) for item, n in zip(node.attrs["dims"], out, strict=True) if isinstance(item, Sym))
    if len(node.syms) != 1 or not {"start", "end", "step"} <= {*node.syms, *node.attrs}:
        return
    (name, v), a = next(iter(node.syms.items())), node.attrs
    size = out[wrap(a["dim"], len(out)) if "dim" in a else 0]
    if name == "end":
        yield v, (a["start"] or 0) + size * a["step"]
    elif name == "start" and "x" not in node.tensors:
        yield v, a["end"] - size * a["step"]
