"""`--inspect`: what a .pte contains and what it needs to run, as plain data. No device is opened, no weight is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import RunError
from ..formats.pte import Delegate, DelegateCall, EValue, Instruction, KernelCall, Method, Program, Tensor
from ..formats.vkgraph import SymInt, ValueList, VkGraph, VkTensor
from ..formats.vkgraph_reader import tensor_nbytes
from ..gpu.known import KnownAdapter
from ..graph import budget
from ..graph.boundary import graph_errors
from ..graph.lower import planned
from ..ops.limits import Limits
from ..runtime import support as checks
from .facts import ModelFacts, facts
from .fit import Fit, fits

SCHEMA = 2  # 1 had no `fit`
PROMISED_BINDING = 128 << 20  # every WebGPU device can bind this much


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a method; dims of a dynamic one are upper bounds."""

    kind: str
    dtype: str
    dims: tuple[int, ...]
    dynamic: bool


@dataclass(frozen=True, slots=True)
class OpCount:
    name: str
    count: int
    supported: bool


@dataclass(frozen=True, slots=True)
class TensorUse:
    """A tensor in GPU memory."""

    value: int
    dtype: str
    dims: tuple[int, ...]
    nbytes: int
    role: str


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes of GPU memory that a fused graph needs, as they are checked at load."""

    weights: int
    caches: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.caches + self.activations


@dataclass(frozen=True, slots=True)
class DelegateReport:
    backend: str
    options: dict[str, str]
    values: int
    symints: int
    ops: tuple[OpCount, ...]
    memory: MemoryNeed | None
    largest: TensorUse | None


@dataclass(frozen=True, slots=True)
class InstructionReport:
    """One instruction of a method: a delegate, a CPU kernel, or control flow."""

    kind: str
    name: str
    supported: bool


@dataclass(frozen=True, slots=True)
class MethodReport:
    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    steps: tuple[InstructionReport, ...]
    kernels: tuple[OpCount, ...]
    delegates: tuple[DelegateReport, ...]
    problem: str | None  # why the method cannot run, if it cannot
    notes: tuple[str, ...]  # where execution differs from what the file says
    facts: ModelFacts
    fit: tuple[Fit, ...]  # on every adapter of this machine that was measured


@dataclass(frozen=True, slots=True)
class FileRange:
    """A range of the file."""

    what: str
    name: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Report:
    schema: int
    path: str
    version: int
    file_size: int
    metadata: dict[str, object]
    methods: tuple[MethodReport, ...]
    sizes: dict[str, int]
    parts: tuple[FileRange, ...]


def inspect(program: Program, limits: Limits | None = None, adapters: Sequence[KnownAdapter] = ()) -> Report:
    """A report on the whole program; memory is what an adapter with these limits needs.

    With `adapters`, it also says whether the methods fit them and how fast they can be there.
    """
    parts = tuple(_parts(program))
    sizes: dict[str, int] = {}
    for part in parts:
        sizes[part.what] = sizes.get(part.what, 0) + part.nbytes
    sizes["padding"] = max(0, program.file_size - sum(sizes.values()))
    methods = tuple(_method(method, limits or Limits(), adapters) for method in program.entry_points)
    return Report(SCHEMA, program.path, program.version, program.file_size, program.metadata, methods, sizes, parts)


def as_json(report: Report) -> dict[str, Any]:
    """The report as JSON data."""
    plain = asdict(report)
    for method, told in zip(plain["methods"], report.methods, strict=True):
        for delegate, known in zip(method["delegates"], told.delegates, strict=True):
            if known.memory:
                delegate["memory"]["total"] = known.memory.total
    return plain


def roles(graph: VkGraph) -> dict[int, str]:
    """The role of each tensor of a graph: input, output, weight, cache or activation."""
    known = checks.known_ops()
    role_of: dict[int, str] = {}
    for i, value in enumerate(graph.values):
        if isinstance(value, VkTensor):
            role_of[i] = "weight" if value.constant_id >= 0 else "activation"
    role_of |= dict.fromkeys(_tensors(graph, graph.output_ids), "output")
    role_of |= dict.fromkeys(_tensors(graph, graph.input_ids), "input")
    for call in graph.chain:
        op = known.get(call.name)
        for param, arg in zip(op.params if op else (), call.args, strict=False):
            if param.role == "cache" and role_of.get(arg) == "weight":
                role_of[arg] = "cache"
    return role_of


def _tensors(graph: VkGraph, ids: tuple[int, ...]) -> Iterator[int]:
    for i in ids:
        value = graph.values[i]
        for item in value.items if isinstance(value, ValueList) else (i,):
            if isinstance(graph.values[item], VkTensor):
                yield item


def _method(method: Method, limits: Limits, adapters: Sequence[KnownAdapter]) -> MethodReport:
    known = checks.known_kernels()
    kernels = Counter(step.op for step in method.instructions if isinstance(step, KernelCall))
    problem = None
    try:
        checks.check_method(method)
    except RunError as error:
        problem = str(error)
    return MethodReport(
        name=method.name,
        inputs=tuple(_port(method.values[i]) for i in method.inputs),
        outputs=tuple(_port(method.values[i]) for i in method.outputs),
        steps=tuple(_step(step, method, known) for step in method.instructions),
        kernels=_counts(kernels, known),
        delegates=tuple(_delegate(delegate, limits, can_run=problem is None) for delegate in method.delegates),
        problem=problem,
        notes=checks.notes(method),
        facts=facts(method),
        fit=() if problem else fits(method, adapters, limits.kv),
    )


def _port(value: EValue) -> Port:
    if isinstance(value, Tensor):
        return Port("tensor", value.dtype, value.dims, value.dynamism != "static")
    return Port(type(value).__name__.lower().replace("nonetype", "none"), "", (), False)


def _step(step: Instruction, method: Method, known: Mapping[str, Any]) -> InstructionReport:
    if isinstance(step, DelegateCall):
        delegate = method.delegates[step.delegate]
        return InstructionReport("delegate", f"{delegate.id} #{step.delegate}", delegate.graph is not None)
    if isinstance(step, KernelCall):
        return InstructionReport("kernel", step.op, step.op in known)
    return InstructionReport("control", type(step).__name__, False)


def _counts(names: Counter[str], known: Mapping[str, Any]) -> tuple[OpCount, ...]:
    rows = [OpCount(name, count, name in known) for name, count in names.items()]
    return tuple(sorted(rows, key=lambda row: (-row.count, row.name)))


def _delegate(delegate: Delegate, limits: Limits, *, can_run: bool) -> DelegateReport:
    options = {key: _option(value) for key, value in delegate.compile_specs}
    graph = delegate.graph
    if graph is None:
        return DelegateReport(delegate.id, options, 0, 0, (), None, None)
    tensors = bindings(graph)
    return DelegateReport(
        backend=delegate.id,
        options=options,
        values=len(graph.values),
        symints=sum(isinstance(value, SymInt) for value in graph.values),
        ops=_counts(Counter(call.name for call in graph.chain), checks.known_ops()),
        memory=_memory(delegate, limits) if can_run else None,
        largest=max(tensors, key=lambda tensor: tensor.nbytes, default=None),
    )


def merged(delegates: Sequence[DelegateReport]) -> DelegateReport:
    """Several delegates as one; its options are those on which all agree."""
    counts: Counter[str] = Counter()
    supported = {op.name: op.supported for delegate in delegates for op in delegate.ops}
    for delegate in delegates:
        counts.update({op.name: op.count for op in delegate.ops})
    known = [delegate.memory for delegate in delegates if delegate.memory]
    shared = set.intersection(*(set(delegate.options.items()) for delegate in delegates))
    return DelegateReport(
        backend=", ".join(sorted({delegate.backend for delegate in delegates})),
        options=dict(sorted(shared)),
        values=sum(delegate.values for delegate in delegates),
        symints=sum(delegate.symints for delegate in delegates),
        ops=_counts(counts, {name: True for name, known in supported.items() if known}),
        memory=MemoryNeed(*(sum(getattr(m, part) for m in known) for part in MemoryNeed.__slots__)) if known else None,
        largest=max((d.largest for d in delegates if d.largest), key=lambda tensor: tensor.nbytes, default=None),
    )


def _option(value: bytes) -> str:
    return str(bool(value[0])).lower() if len(value) == 1 and value[0] < 2 else value.hex()[:64]


def bindings(graph: VkGraph) -> tuple[TensorUse, ...]:
    """Every tensor of a graph."""
    kinds = roles(graph)
    return tuple(
        TensorUse(i, value.dtype, value.dims, tensor_nbytes(value), kinds[i])
        for i, value in enumerate(graph.values)
        if isinstance(value, VkTensor)
    )


def _memory(delegate: Delegate, limits: Limits) -> MemoryNeed | None:
    """The memory that the delegate needs; None if it cannot run."""
    try:
        with graph_errors("the graph"):
            return MemoryNeed(**budget.needed(planned(delegate, limits), limits))
    except RunError:
        return None


def _parts(program: Program) -> Iterator[FileRange]:
    yield FileRange("program", "header and program", 0, program.program_size)
    delegates = {
        delegate.blob.offset: f"{method.name} delegate #{i} ({delegate.id})"
        for method in program.methods
        for i, delegate in enumerate(method.delegates)
    }
    named: dict[tuple[int, int], str] = {}
    for key, span in program.named.items():
        named.setdefault((span.offset, span.nbytes), key)
    for i, segment in enumerate(program.segments):
        if segment.offset in delegates and segment.nbytes:
            yield FileRange("delegate graphs", delegates[segment.offset], segment.offset, segment.nbytes)
        elif (segment.offset, segment.nbytes) in named and segment.nbytes:
            key = named[segment.offset, segment.nbytes]
            yield FileRange("delegate weights", key, segment.offset, segment.nbytes)
        else:
            yield FileRange("CPU constants", f"segment {i}", segment.offset, segment.nbytes)
