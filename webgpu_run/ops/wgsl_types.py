"""Sizes of WGSL types: the workgroup memory of a kernel, and the numpy dtype of its Params."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..errors import RunError

_CONST = re.compile(r"^const\s+(\w+)\s*:\s*u32\s*=\s*([^;]+);", re.M)
_PARAMS = re.compile(r"struct\s+Params\s*\{([^}]*)\}", re.S)
_FIELD = re.compile(r"(\w+)\s*:\s*(\w+(?:<(?:[^<>]|<[^<>]*>)*>)?)\s*(?:,|$)")
_PARAM_TYPES = {
    "u32": ("<u4", ()),
    "i32": ("<i4", ()),
    "f32": ("<f4", ()),
    "vec4<u32>": ("<u4", (4,)),
    "array<vec4<u32>, 2>": ("<u4", (8,)),
    "array<vec4<i32>, 2>": ("<i4", (8,)),
}


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)


def constants(text: str) -> dict[str, int]:
    """The u32 constants of a module, by name. They may be declared in any order."""
    left, known = dict(_CONST.findall(text)), dict[str, int]()
    while ready := [name for name, value in left.items() if not left.keys() & set(re.findall(r"\w+", value))]:
        known |= {name: constant(left.pop(name), known) for name in ready}
    return known


def constant(expression: str, known: Mapping[str, int]) -> int:
    """The value of a constant expression of + - * / and known names."""
    words = (re.sub(r"^(\d+)u$", r"\1", w) for w in re.findall(r"\w+|\S", expression))
    plain = [str(known[w]) if w in known else "//" if w == "/" else w for w in words]
    if not all(re.fullmatch(r"\d+|[-+*()]|//", w) for w in plain):
        raise RunError(f"not a constant expression: {expression}")
    return int(eval(" ".join(plain)))  # digits and operators only, see above


@functools.cache
def workgroup(text: str) -> tuple[int, int]:
    """Invocations per workgroup, and bytes of workgroup memory as WebGPU counts them: each variable in 16 bytes."""
    text = without_comments(text)
    types = Types(text)
    size = re.search(r"@workgroup_size\(([^)]*)\)", text)
    count = 1
    for part in size[1].split(",") if size else ():
        count *= constant(part, types.known) if part.strip() else 1
    variables = re.findall(r"var<workgroup>\s+\w+\s*:\s*([^;]+);", text)
    return count, sum(-(-types.size(v).nbytes // 16) * 16 for v in variables)


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of a type, and the multiple of bytes where it may start."""

    nbytes: int
    align: int

    @property
    def stride(self) -> int:
        return -(-self.nbytes // self.align) * self.align


class Types:
    """The types that a module declares, with WGSL's rules of size and alignment."""

    def __init__(self, text: str) -> None:
        self.known = constants(text)
        self.aliases = dict(re.findall(r"\balias\s+(\w+)\s*=\s*([^;]+);", text))
        self.structs = dict(re.findall(r"\bstruct\s+(\w+)\s*\{([^}]*)\}", text))

    def size(self, wgsl_type: str) -> Size:
        kind = re.sub(r"\s+", "", wgsl_type)
        if kind in ("f32", "i32", "u32", "bool"):
            return Size(4, 4)
        if kind == "f16":
            return Size(2, 2)
        if kind in self.aliases:
            return self.size(self.aliases[kind])
        if kind in self.structs:
            return self._struct(self.structs[kind])
        if m := re.fullmatch(r"atomic<(.+)>", kind):
            return self.size(m[1])
        if m := re.fullmatch(r"vec([234])<(.+)>", kind):
            lane, count = self.size(m[2]).nbytes, int(m[1])
            return Size(lane * count, lane * (2 if count == 2 else 4))
        if m := re.fullmatch(r"array<(.+),([^,<>]+)>", kind):
            element = self.size(m[1])
            return Size(element.stride * constant(m[2], self.known), element.align)
        raise RunError(f"the size of the type {wgsl_type} is not known")

    def _struct(self, body: str) -> Size:
        at, align = 0, 1
        for _, kind in _FIELD.findall(body.strip()):
            field = self.size(kind)
            at = -(-at // field.align) * field.align + field.nbytes
            align = max(align, field.align)
        return Size(-(-at // align) * align, align)


def params_dtype(name: str, source: str) -> np.dtype[np.void] | None:
    """The dtype of a kernel's `struct Params`, by the rules of the uniform address space."""
    found = _PARAMS.search(source)
    if not found:
        return None
    names, formats, offsets, at = [], [], [], 0
    for m in _FIELD.finditer(found[1].strip()):
        kind = re.sub(r"\s*,\s*", ", ", m[2].strip())
        if kind not in _PARAM_TYPES:
            raise RunError(f"kernel {name}: Params.{m[1]} has type {kind}")
        base, shape = _PARAM_TYPES[kind]
        if shape:
            at = -(-at // 16) * 16
        names.append(m[1])
        formats.append((base, shape) if shape else base)
        offsets.append(at)
        at += 4 * (int(np.prod(shape)) if shape else 1)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": -(-at // 16) * 16})
