"""WGSL kernel files: their bindings and uniform struct, read from the text itself, so neither is written twice.

A kernel names its tensors `t_<arg>` and its uniforms `params: Params`. Constants that must be known at compile time
(array sizes, tile sizes) are prepended as `const` lines; `$NAME` in the text is replaced by a string constant. A line
that ends in `// if NAME` or `// if NAME > 1` is there only where that constant is above 0, or 1: what a form of a
kernel does not use is not bound. Everything here runs without a GPU.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..assets import wgsl_dir
from ..errors import RunError

Consts = tuple[tuple[str, int | str], ...]

_BINDING = re.compile(
    r"@group\(0\)\s*@binding\((\d+)\)\s*var(?:<\s*(storage|uniform)(?:\s*,\s*(read|read_write))?\s*>)?\s+(\w+)\s*:\s*([^;]+);"
)
_PARAMS = re.compile(r"struct\s+Params\s*\{([^}]*)\}", re.S)
_FIELD = re.compile(r"(\w+)\s*:\s*(\w+(?:<(?:[^<>]|<[^<>]*>)*>)?)\s*(?:,|$)")
_CONST = re.compile(r"^const\s+(\w+)\s*:\s*u32\s*=\s*([^;]+);", re.M)
_UNROLL = re.compile(r"for \(var (\w+) = 0u; \1 < ([^;]+); \1\+\+\) \{ // unroll\n")
_IF = re.compile(r"^.*// if (\w+)(?: > (\d+))?\n", re.M)
_INCLUDE = re.compile(r"^//\s*include:\s*(\w+)\s*$", re.M)
_TYPES = {
    "u32": ("<u4", ()),
    "i32": ("<i4", ()),
    "f32": ("<f4", ()),
    "vec4<u32>": ("<u4", (4,)),
    "array<vec4<u32>, 2>": ("<u4", (8,)),
    "array<vec4<i32>, 2>": ("<i4", (8,)),
}


@dataclass(frozen=True, slots=True)
class Binding:
    """One resource of a kernel; kind is read, write, uniform, texture, or `image SHAPE FORMAT ACCESS`."""

    index: int
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel file: its text, and the dtype of its Params (None when it has none)."""

    name: str
    source: str
    params: np.dtype[np.void] | None

    def bindings(self, consts: Consts) -> tuple[Binding, ...]:
        """What the kernel binds, in order; a binding's type may be one of the constants."""
        return _bindings(self.text(consts))

    def workgroup(self, consts: Consts) -> tuple[int, int]:
        """Invocations of a workgroup, and bytes of memory it shares."""
        return _workgroup(self.text(consts))

    def pack(self, values: Mapping[str, int | float | tuple[int, ...]]) -> bytes:
        """The uniform bytes; every field of Params must be given, and nothing else."""
        if self.params is None:
            return b""
        names = self.params.names or ()
        if set(names) != set(values):
            raise RunError(f"kernel {self.name}: params {sorted(values)} do not match the struct's {sorted(names)}")
        row = np.zeros(1, self.params)
        for key, value in values.items():
            row[key] = value
        return row.tobytes()

    def text(self, consts: Consts) -> str:
        """The WGSL to compile, with constants put in."""
        return _text(self.name, self.source, consts)


@functools.cache
def _text(name: str, source: str, consts: Consts) -> str:
    head = []
    for key, value in consts:
        if isinstance(value, str):
            if f"${key}" not in source:
                raise RunError(f"kernel {name} has no ${key}")
            source = re.sub(rf"\${key}\b", lambda _: value, source)  # noqa: B023
        else:
            head.append(f"const {key}: u32 = {value}u;")
    given = dict(consts)
    source = _IF.sub(lambda m: m[0] if _above(name, given, m[1], int(m[2] or 0)) else "", source)
    left = re.search(r"\$\w+", source)
    if left:
        raise RunError(f"kernel {name}: {left.group()} was not given")
    return _unrolled("\n".join([*head, source]))


def _above(name: str, given: Mapping[str, int | str], key: str, least: int) -> bool:
    value = given.get(key)
    if not isinstance(value, int):
        raise RunError(f"kernel {name}: // if {key} needs a number")
    return value > least


@functools.cache
def _workgroup(text: str) -> tuple[int, int]:
    known: dict[str, int] = {}
    for m in _CONST.finditer(text):
        known[m[1]] = _integer(m[2], known)
    size = re.search(r"@workgroup_size\(([^)]*)\)", text)
    count = 1
    for part in size[1].split(",") if size else ():
        count *= _integer(part, known) if part.strip() else 1
    return count, sum(_nbytes(m[1].strip(), known) for m in re.finditer(r"var<workgroup>\s+\w+\s*:\s*([^;]+);", text))


def _nbytes(wgsl_type: str, known: Mapping[str, int]) -> int:
    """Bytes of a scalar, vector or array of them."""
    array = re.fullmatch(r"array<(.+),([^,<>]+)>", wgsl_type, re.S)
    if array:
        return _nbytes(array[1].strip(), known) * _integer(array[2], known)
    vector = re.match(r"vec([234])", wgsl_type)
    lane = 2 if "f16" in wgsl_type else 4
    return lane * {"2": 2, "3": 4, "4": 4}[vector[1]] if vector else lane


def _unrolled(text: str) -> str:
    """Every `for (var i = 0u; i < N; i++) { // unroll` as N copies of its body, each with a constant i.

    Arrays indexed by such an i stay in registers; compilers behind WebGPU do not always see that by themselves.
    """
    if "// unroll" not in text:
        return text
    known: dict[str, int] = {}
    for m in _CONST.finditer(text):
        known[m[1]] = _integer(m[2], known)
    while loops := list(_UNROLL.finditer(text)):
        m = loops[-1]
        depth, end = 1, m.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        body = text[m.end() : end - 1]
        copies = (f"{{ const {m[1]} = {i}u;\n{body}}}\n" for i in range(_integer(m[2], known)))
        text = text[: m.start()] + "".join(copies) + text[end:]
    return text


def _integer(expression: str, known: Mapping[str, int]) -> int:
    """A constant WGSL expression of + - * / and known names."""
    words = (re.sub(r"^(\d+)u$", r"\1", w) for w in re.findall(r"\w+|\S", expression))
    plain = [str(known[w]) if w in known else "//" if w == "/" else w for w in words]
    if not all(re.fullmatch(r"\d+|[-+*()]|//", w) for w in plain):
        raise RunError(f"not a constant expression: {expression}")
    return int(eval(" ".join(plain)))  # digits and operators only, see above


def _kind(space: str | None, access: str | None, wgsl_type: str) -> str:
    if space == "uniform":
        return "uniform"
    if space == "storage":
        return "write" if access == "read_write" else "read"
    if wgsl_type.startswith("texture_storage"):
        words = re.split(r"[<>,\s]+", wgsl_type.removeprefix("texture_storage_").replace("_", "-").rstrip(">"))
        return " ".join(["image", *words])
    return "texture"


@functools.cache
def load(name: str) -> Kernel:
    """The kernel in wgsl/<name>.wgsl; `// include: other` lines are replaced by that file."""
    folder = wgsl_dir()

    def read(stem: str) -> str:
        return _INCLUDE.sub(lambda m: read(m.group(1)), (folder / f"{stem}.wgsl").read_text())

    source = read(name)
    return Kernel(name, source, _params_dtype(name, source))


@functools.lru_cache(maxsize=4096)
def _bindings(text: str) -> tuple[Binding, ...]:
    found = (
        Binding(int(m[1]), m[4].removeprefix("t_"), _kind(m[2], m[3], m[5].strip())) for m in _BINDING.finditer(text)
    )
    return tuple(sorted(found, key=lambda b: b.index))


def _params_dtype(name: str, source: str) -> np.dtype[np.void] | None:
    found = _PARAMS.search(source)
    if not found:
        return None
    names, formats, offsets, at = [], [], [], 0
    body = re.sub(r"//[^\n]*", "", found[1]).strip()
    for m in _FIELD.finditer(body):
        kind = re.sub(r"\s*,\s*", ", ", m[2].strip())
        if kind not in _TYPES:
            raise RunError(f"kernel {name}: Params.{m[1]} has type {kind}")
        base, shape = _TYPES[kind]
        if shape:
            at = -(-at // 16) * 16
        names.append(m[1])
        formats.append((base, shape) if shape else base)
        offsets.append(at)
        at += 4 * (int(np.prod(shape)) if shape else 1)
    size = -(-at // 16) * 16
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})
