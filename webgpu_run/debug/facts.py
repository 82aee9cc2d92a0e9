"""What can be told about a model from its graphs: parameters, quantization, and the dims of its attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ..formats.pte import KernelCall, Method, Tensor
from ..formats.vkgraph import Value, VkGraph, VkTensor
from ..ops.spec import Op
from ..runtime.support import known_ops
from ..shapes import prod

NOT_PARAMETERS = ("scales", "sums", "rotary", "cache", "mask")
BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "float64": 64, "int8": 8, "uint8": 8}
LEAST_GROUP = 8  # weights that share a scale and a zero point
ROWS_FIRST = (
    "sdpa_with_kv_cache",
    "custom_sdpa",
)  # these have q as [batch, rows, heads, head]; others heads before rows


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of a model. None is what the graph does not say."""

    layers: int
    heads: int
    kv_heads: int | None = None
    head_dim: int | None = None
    context: int | None = None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """`weights` counts weights and tables by their kind, such as "4-bit, group 32"."""

    parameters: int
    weights: dict[str, int]
    attention: Attention | None
    width: int | None  # of the embedding
    vocabulary: int | None


@dataclass(frozen=True, slots=True)
class _Use:
    """A constant of a graph as an argument of a call."""

    op: Op
    values: dict[str, Value]
    name: str
    constant: int
    dims: tuple[int, ...]
    dtype: str

    @property
    def role(self) -> str:
        return self.op.param(self.name).role

    @property
    def bits(self) -> int:
        return 4 if "q4" in self.op.param(self.name).dtypes else BITS.get(self.dtype, 32)

    @property
    def count(self) -> int:
        """Elements; a byte of a 4-bit weight holds two."""
        return prod(self.dims) * (2 if self.bits == 4 else 1)

    @property
    def kind(self) -> str:
        group = self.values.get("group")
        if self.bits >= 16:
            return self.dtype
        per = f", group {group}" if isinstance(group, int) else ""
        rows = ", 8-bit activations" if any(part in self.op.name for part in ("dq8ca", "q8ta")) else ""
        return f"{self.bits}-bit{per}{rows}"


def facts(method: Method) -> ModelFacts:
    """What the delegates and the CPU constants of a method tell."""
    graphs = [delegate.graph for delegate in method.delegates if delegate.graph]
    seen: dict[tuple[int, int], _Use] = {}  # by source and place in it: tied weights are one
    for delegate in method.delegates:
        for use in _uses(delegate.graph) if delegate.graph else ():
            span = delegate.constant(use.constant)
            if use.role not in NOT_PARAMETERS:
                seen.setdefault((id(span.source), span.offset), use)
    constants = [v for v in _cpu_constants(method) if v.dtype in BITS]
    on_cpu = [v for v in constants if not _is_zero_points(v, constants)]
    weights = Counter(use.kind for use in seen.values() if use.role in ("weight", "table"))
    weights += Counter(f"{BITS[v.dtype]}-bit" for v in on_cpu if BITS[v.dtype] < 16)  # CPU kernels expand these
    table = next((use for use in seen.values() if use.role == "table"), None)
    return ModelFacts(
        parameters=sum(use.count for use in seen.values()) + sum(prod(v.dims) for v in on_cpu),
        weights=dict(weights),
        attention=_attention(graphs),
        width=table.count // table.dims[0] if table and table.dims[0] else None,
        vocabulary=table.dims[0] if table else None,
    )


def _uses(graph: VkGraph) -> Iterator[_Use]:
    """Where constants are used. Of a packed or sliced constant, it is where the result is used."""
    known = known_ops()
    sources: dict[int, VkTensor] = {
        i: v for i, v in enumerate(graph.values) if isinstance(v, VkTensor) and v.constant_id >= 0
    }
    for call in graph.chain:
        op = known.get(call.name)
        if op is None:
            continue
        values = {p.name: graph.values[a] for p, a in zip(op.params, call.args, strict=False)}
        tensors = [a for a in call.args[: len(op.params)] if isinstance(graph.values[a], VkTensor)]
        if len(tensors) == 1 and tensors[0] in sources:
            sources[call.args[-1]] = sources[tensors[0]]
            continue
        for name, arg in zip(values, call.args, strict=False):
            if source := sources.get(arg):
                yield _Use(op, values, name, source.constant_id, source.dims, source.dtype)


def _cpu_constants(method: Method) -> Iterator[Tensor]:
    ids = {v for step in method.instructions if isinstance(step, KernelCall) for v in step.args}
    for v in sorted(ids):
        value = method.values[v]
        if isinstance(value, Tensor) and value.constant and len(value.dims) > 1:
            yield value


def _is_zero_points(v: Tensor, weights: list[Tensor]) -> bool:
    """Whether an 8-bit constant has one number for each group of an 8-bit weight with the same rows."""
    rows, columns = v.dims[:2]
    return BITS[v.dtype] == 8 and any(
        w.dtype == v.dtype and w.dims[0] == rows and w.dims[1] >= LEAST_GROUP * columns for w in weights
    )


def _attention(graphs: list[VkGraph]) -> Attention | None:
    """From the attention ops; without any, from a softmax over [batch, heads, rows, columns]."""
    known, found = known_ops(), []
    softmaxes: list[tuple[int, ...]] = []
    head_dims: dict[int, int] = {}  # by the number of softmaxes before: columns of the first product that fits the last
    for graph in graphs:
        for call in graph.chain:
            op = known.get(call.name)
            values = {p.name: graph.values[a] for p, a in zip(op.params, call.args, strict=False)} if op else {}
            q, k, cache = (values.get(name) for name in ("q", "k", "kc"))
            if isinstance(q, VkTensor) and isinstance(k, VkTensor) and len(q.dims) == len(k.dims) == 4:
                axis = 2 if call.name.startswith(ROWS_FIRST) else 1
                context = cache.dims[1] if isinstance(cache, VkTensor) else None
                found.append((q.dims[axis], k.dims[axis], q.dims[3], context))
            elif call.name.startswith("aten._softmax"):
                x = values.get("x")
                if isinstance(x, VkTensor) and len(x.dims) == 4 and x.dims[1] > 1:
                    softmaxes.append(x.dims)
            elif call.name.startswith("aten.bmm") and softmaxes:
                a, b = values.get("a"), values.get("b")
                scores = (prod(softmaxes[-1][:2]), *softmaxes[-1][2:])
                if isinstance(a, VkTensor) and isinstance(b, VkTensor) and a.dims == scores:
                    head_dims.setdefault(len(softmaxes), b.dims[-1])
    if found:
        heads, kv_heads, head_dim, context = found[0]
        return Attention(len(found), heads, kv_heads, head_dim, context)
    heads_of = {dims[1] for dims in softmaxes}
    if len(heads_of) != 1:
        return None
    same = set(head_dims.values()) if len(head_dims) == len(softmaxes) else set()
    return Attention(len(softmaxes), heads_of.pop(), head_dim=same.pop() if len(same) == 1 else None)
