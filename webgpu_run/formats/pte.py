"""The content of a .pte file as plain frozen dataclasses: the program, its methods and delegates, and its constants.

`load` checks everything it returns. It reads only the program part of the file; weights stay on disk, as spans.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .. import assets
from ..errors import FormatError, MissingDataError
from .source import Span
from .vkgraph import BoolList, DoubleList, IntList, VkGraph

VULKAN = "VulkanBackend"
MAX_REPETITION = 4  # how often a constant method may return the same list, on average


@dataclass(frozen=True, slots=True)
class Allocation:
    """The place of a memory-planned tensor: a byte offset in one of the method's non-constant buffers."""

    memory_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the program. `dims` are upper bounds unless `dynamism` is static."""

    dtype: str  # the numpy name if numpy has the type: float32, int64, bool, ...
    dims: tuple[int, ...]
    dim_order: tuple[int, ...] = ()
    dynamism: str = "static"  # static, bound, unbound
    data: Span | None = None  # the bytes of a constant, or the initial bytes of a mutable tensor
    allocation: Allocation | None = None
    name: str = ""  # the fully qualified name, if the exporter kept it

    @property
    def array_dtype(self) -> str:
        """The dtype of numpy arrays that hold the tensor. Arrays of bfloat16, which numpy lacks, are float32."""
        return "float32" if self.dtype == "bfloat16" else self.dtype

    def __str__(self) -> str:
        """The dtype and the dims, with ≤ for those of a dynamic tensor: the file does not say which may be smaller."""
        bound = "" if self.dynamism == "static" else "≤"
        return f"{self.dtype} [{', '.join(f'{bound * (dim > 1)}{dim}' for dim in self.dims)}]"

    @property
    def constant(self) -> bool:
        """True if the tensor has bytes in the file and no instruction can write to it."""
        return self.data is not None and self.allocation is None


def input_spec(value: object) -> Tensor | None:
    """What a call gives for an input: a tensor, or an integer, which is a tensor of rank 0. None if it gives nothing.

    The exporter writes no value for an integer that may vary; one that has a value is fixed.
    """
    if value is None:
        return Tensor("int64", ())
    return value if isinstance(value, Tensor) else None


@dataclass(frozen=True, slots=True)
class TensorList:
    """Ids of tensors. In an optional list, -1 means no tensor."""

    items: tuple[int, ...]
    optional: bool = False


EValue = None | bool | int | float | str | Tensor | IntList | DoubleList | BoolList | TensorList


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Call a CPU kernel by its registered name, such as `aten::add.out`."""

    op: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """Run a delegate. `args` are its inputs, then its outputs."""

    delegate: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MoveCall:
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class JumpFalseCall:
    condition: int
    destination: int


@dataclass(frozen=True, slots=True)
class FreeCall:
    value: int


Instruction = KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall


@dataclass(frozen=True, slots=True)
class Chain:
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Delegate:
    """A part of a method that a backend runs. `graph` is set only if the backend is Vulkan."""

    id: str
    compile_specs: tuple[tuple[str, bytes], ...]
    blob: Span
    graph: VkGraph | None = None
    constants: tuple[Span, ...] = ()

    def constant(self, k: int) -> Span:
        """The bytes of the graph's constant k. There are at least as many as its tensors need."""
        return self.constants[k]


@dataclass(frozen=True, slots=True)
class Method:
    """One entry point: its values, and the chains of instructions that work on them."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    values: tuple[EValue, ...]
    chains: tuple[Chain, ...]
    operators: tuple[str, ...] = ()
    delegates: tuple[Delegate, ...] = ()
    non_const_buffer_sizes: tuple[int, ...] = ()

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of all chains, in order."""
        return tuple(step for chain in self.chains for step in chain.instructions)


@dataclass(frozen=True, slots=True)
class Program:
    """A loaded .pte file. `named` includes the data of the .ptd files that were loaded with it."""

    version: int
    methods: tuple[Method, ...]
    segments: tuple[Span, ...] = ()
    named: Mapping[str, Span] = field(default_factory=dict)
    constants: tuple[Span, ...] = ()  # for CPU kernels; entry 0 is reserved
    path: str = ""
    file_size: int = 0
    program_size: int = 0

    @property
    def metadata(self) -> dict[str, object]:
        """What the constant methods return: a scalar for one output, a list for several outputs."""
        metadata: dict[str, object] = {}
        for method in self.methods:
            if _is_constant(method):
                _check_repetition(method)
                values = [_plain(method.values[i], method) for i in method.outputs]
                metadata[method.name] = values[0] if len(values) == 1 else values
        return metadata

    @property
    def entry_points(self) -> tuple[Method, ...]:
        """The methods that compute something."""
        return tuple(method for method in self.methods if not _is_constant(method))

    def method(self, name: str | None = None) -> Method:
        """The method of this name. The default is `forward`, or the only method of the file."""
        methods = self.entry_points
        for method in methods:
            if method.name == (name or "forward"):
                return method
        if name is None and len(methods) == 1:
            return methods[0]
        names = ", ".join(method.name for method in methods) or "none"
        raise FormatError(f"no method {name or 'forward'!r}: the file has {names} ({self.path})")


def _is_constant(method: Method) -> bool:
    return (
        not method.inputs
        and not method.instructions
        and bool(method.outputs)
        and all(not isinstance(method.values[i], Tensor | TensorList) for i in method.outputs)
    )


def _check_repetition(method: Method) -> None:
    """Refuse a list that is returned many times: the result would be much larger than the file."""
    lists = [
        v.items for v in (method.values[i] for i in method.outputs) if isinstance(v, IntList | DoubleList | BoolList)
    ]
    distinct = {id(items): len(items) for items in lists}
    if sum(map(len, lists)) > MAX_REPETITION * (sum(distinct.values()) + len(method.values)):
        raise FormatError(f"{method.name} returns the same list too often")


def _plain(value: EValue, method: Method) -> object:
    """A value as a plain Python object. The items of an IntList are ids of the values that hold the numbers."""
    if isinstance(value, IntList):
        if any(not 0 <= i < len(method.values) for i in value.items):
            raise FormatError(f"a list of {method.name} names values that it does not have")
        return [method.values[i] for i in value.items]
    return list(value.items) if isinstance(value, DoubleList | BoolList) else value


def load(path: str | os.PathLike[str], data: Sequence[str | os.PathLike[str]] | None = None) -> Program:
    """Load a .pte file, or the only one in a folder, with external weights from the .ptd files `data`.

    If `data` is None and weights are missing, the .ptd files beside the model are used.
    """
    from . import pte_reader
    from .source import FileSource

    path = assets.model_file(path)
    source = FileSource(path)
    try:
        return pte_reader.read(source, [FileSource(extra) for extra in data or ()])
    except MissingDataError as error:
        missing = error
    for folder in assets.folders(path) if data is None else ():
        if ptd_files := sorted(folder.glob("*.ptd")):
            try:
                return pte_reader.read(source, [FileSource(extra) for extra in ptd_files])
            except MissingDataError as error:
                missing = error
    raise MissingDataError(str(missing), hint="put the .ptd files beside the model, or name them: --data") from None


def loads(content: bytes, data: Sequence[bytes] = ()) -> Program:
    """Load files whose bytes are in memory."""
    from . import pte_reader
    from .source import BytesSource

    return pte_reader.read(BytesSource(content), [BytesSource(extra) for extra in data])
