"""The schema of an op: one line of text that declares its arguments, in the order in which a file has them.

    "x w!:weight/q4 scales!:scales group:int bias?!:bias -> out"

Each word is `name flags :type /dtypes`; all but the name may be left out.

| form | meaning |
|---|---|
| `x` | a tensor that is computed: an activation |
| `w:weight` | a tensor with another role (see ROLES) |
| `w:weight[]` | a list of tensors; they are called w0, w1, … |
| `kc:cache<-k` | a cache; the rows of argument `k` are written into it |
| `eps:num` | an attribute of a kind in ATTRIBUTES |
| `pos:slot` | a position that kernels read from device memory, so that a new value needs no new plan |
| `bias?` | may be None |
| `w!` | must be a constant of the file |
| `kc*` | a constant that the op changes: it persists from call to call |
| `w/q4`, `a/float|int` | the dtypes that the kernels take, of DTYPES; without them, float |
| `_`, `_dropout` | an argument that the op does not look at; it has a name if a pass passes it on |

After the arrow come the outputs: `out` is a tensor, `[out,mean]` a list of two, `[out*]` a list whose length the call
decides, and `out:symint` an integer known only at call time. They too may have `/dtypes`, where the name of an argument
means that both have the same dtype: `x/any -> out/x`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# What a tensor is for. Everything that treats weights, caches or tables in a way of its own reads it from here.
ROLES = {
    "activation": "computed from the inputs of the call",
    "weight": "multiplied with activations: of a linear or a convolution",
    "scales": "of a quantized weight or table, one for each group",
    "sums": "of the columns of a quantized weight, for the zero point of the activations",
    "bias": "added to the result of a weight",
    "norm": "parameters of a normalisation",
    "table": "its rows are picked by an index: an embedding",
    "index": "picks rows of the table, and must be within it",
    "rotary": "cosines and sines of a rotary embedding",
    "cache": "keys or values of earlier positions",
    "mask": "added to the scores of an attention",
    "position": "where in the cache the call begins",
}
ATTRIBUTES = {
    "int": "an integer",
    "num": "an integer or a float",
    "bool": "a boolean",
    "str": "a string",
    "ints": "a list of integers",
    "nums": "a list of floats",
    "shape": "a list of integers, each of which may be known only at call time",
    "sym": "an integer that may be known only at call time",
    "scalar": "an integer that may be known only at call time, or a float",
    "slot": "the same, but read by the kernels",
}
# On the device a float is f32 and everything else i32; what is narrower in the file is widened when it is uploaded.
DTYPES = {
    "float": ("float32", "float16"),
    "int": ("int32", "int8", "uint8"),
    "int32": ("int32",),
    "int8": ("int8",),
    "uint8": ("uint8",),
    "bool": ("bool",),
    "q4": ("uint8",),  # two 4-bit values in each
    "any": ("float32", "float16", "int32", "int8", "uint8", "bool"),
}
_WORD = re.compile(
    r"(?P<name>\w+)(?P<flags>[?!*]*)(:(?P<type>\w+)(?P<many>\[\])?(<-(?P<source>\w+))?)?(/(?P<dtypes>[\w|]+))?$"
)


@dataclass(frozen=True, slots=True)
class Param:
    """One argument of an op."""

    name: str
    kind: str  # tensor, tensors, one of ATTRIBUTES, or any
    role: str = ""  # of a tensor or a slot: one of ROLES
    optional: bool = False
    constant: bool = False
    mutable: bool = False
    source: str = ""  # of a cache: the argument whose rows are written into it
    dtypes: tuple[str, ...] = ("float",)  # of a tensor: names of DTYPES

    @property
    def per_byte(self) -> int:
        """How many elements of the tensor share a byte of the file."""
        return 2 if self.dtypes == ("q4",) else 1


@dataclass(frozen=True, slots=True)
class Out:
    """One output of an op."""

    name: str
    dtypes: tuple[str, ...] = ("float",)  # names of DTYPES, or the name of the argument that has the same dtype


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema, parsed."""

    params: tuple[Param, ...]
    outs: tuple[Out, ...]
    out_kind: str  # tensor, list or symint


def parse(text: str) -> Schema:
    left, right = text.split(" -> ")
    params = tuple(_param(i, word) for i, word in enumerate(left.split()))
    right, is_symint = right.removesuffix(":symint"), right.endswith(":symint")
    outs = []
    for word in right.strip("[]").split(","):
        name, _, dtypes = word.partition("/")
        outs.append(Out(name, tuple(dtypes.split("|")) if dtypes else ("float",)))
    return Schema(params, tuple(outs), "symint" if is_symint else "list" if right.startswith("[") else "tensor")


def _param(i: int, word: str) -> Param:
    match = _WORD.match(word)
    if match is None:
        raise ValueError(f"{word!r} is no argument of a schema")
    name, flags, type_ = match["name"], match["flags"], match["type"] or "activation"
    if name.startswith("_"):
        return Param(name if name != "_" else f"_{i}", "any")
    optional = "?" in flags
    if type_ in ATTRIBUTES:
        return Param(name, type_, "position" if type_ == "slot" else "", optional)
    if type_ not in ROLES:
        raise ValueError(f"{word!r}: {type_} is neither a role nor an attribute")
    kind = "tensors" if match["many"] else "tensor"
    dtypes = tuple((match["dtypes"] or "float").split("|"))
    return Param(name, kind, type_, optional, "!" in flags, "*" in flags, match["source"] or "", dtypes)


def same_memory(source: str, target: str) -> bool:
    """Whether a tensor can be read as another dtype: both are alike on the device, and no value is narrowed."""
    is_float = [dtype in DTYPES["float"] for dtype in (source, target)]
    return source == target or all(is_float) or (not any(is_float) and target == "int32")


def dtype_problem(
    params: Sequence[tuple[Param, str, str]], outs: Sequence[tuple[str, tuple[str, ...], str]]
) -> str | None:
    """Why kernels do not take such tensors, if so; of arguments as (declaration, name, dtype), and outputs alike."""
    for param, name, dtype in params:
        taken = [d for word in param.dtypes for d in DTYPES[word]]
        if dtype not in taken:
            return f"argument {name} is {dtype}, the kernel takes {', '.join(taken)}"
    for name, words, dtype in outs:
        sources = [(n, d) for param, n, d in params if param.name in words]
        for source, other in sources:
            if not same_memory(other, dtype):
                return f"output {name} is {dtype}, argument {source} is {other}: the kernel only moves elements"
        taken = [d for word in words for d in DTYPES.get(word, ())]
        if not sources and dtype not in taken:
            return f"output {name} is {dtype}, the kernel gives {', '.join(taken)}"
    return None
