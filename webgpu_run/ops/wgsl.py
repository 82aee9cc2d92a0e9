"""WGSL kernel files: includes and constants expanded, bindings and uniform struct read from the text itself.

wgsl/README.md describes the four directives (include, plan, if, unroll). They are comments, so every file is WGSL
with default values as it stands. Nothing here needs a GPU.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..assets import wgsl_dir
from ..errors import RunError
from . import wgsl_types
from .wgsl_types import constant, constants, without_comments

Consts = tuple[tuple[str, int | str], ...]

_INCLUDE = re.compile(r"^//\s*include:\s*(\w+)\s*$", re.M)
_TERM = r"\w+(?: (?:>|==) \d+)?"
_IF = re.compile(
    rf"^(?:\s*// if (?P<off>{_TERM}(?: and {_TERM})*): (?P<code>.*)|.*// if (?P<on>{_TERM}(?: and {_TERM})*))$"
)
_PLAN = re.compile(r"^(?P<code>.*\S)\s*// plan(?: (?P<name>\w+) is (?P<text>.+)|:.*)?$")
_DECLARED = re.compile(r"^(?P<left>(?:const (?P<const>\w+): [^=]+|alias (?P<alias>\w+)) = )[^;]+;$")
_UNROLL = re.compile(r"for \(var (\w+) = 0u; \1 < ([^;]+); \1\+\+\) \{ // unroll\n")
_BINDING = re.compile(
    r"@group\(0\)\s*@binding\((\d+)\)\s*var(?:<\s*(storage|uniform)(?:\s*,\s*(read|read_write))?\s*>)?\s+(\w+)\s*:\s*([^;]+);"
)


@dataclass(frozen=True, slots=True)
class Binding:
    """One resource of a kernel; kind is read, write, uniform, texture, or `image SHAPE FORMAT ACCESS`."""

    index: int
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: its text with includes expanded and default values, and the dtype of its Params (None without)."""

    name: str
    source: str
    params: np.dtype[np.void] | None

    def text(self, consts: Consts) -> str:
        """The WGSL to compile, with the values of a plan."""
        return _text(self.name, self.source, consts)

    def bindings(self, consts: Consts) -> tuple[Binding, ...]:
        """What the kernel binds, by index."""
        return _bindings(self.name, self.text(consts))

    def workgroup(self, consts: Consts) -> tuple[int, int]:
        """Invocations per workgroup, and bytes of workgroup memory."""
        try:
            return wgsl_types.workgroup(self.text(consts))
        except RunError as err:
            raise RunError(f"kernel {self.name}: {err}") from err

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


@functools.cache
def load(name: str) -> Kernel:
    """The kernel in wgsl/<name>.wgsl. `// include: other` becomes wgsl/include/other.wgsl, once per kernel."""
    folder = wgsl_dir()
    included: set[str] = set()

    def fragment(match: re.Match[str]) -> str:
        if match[1] in included:
            return ""
        included.add(match[1])
        return _INCLUDE.sub(fragment, (folder / "include" / f"{match[1]}.wgsl").read_text("utf-8"))

    source = _INCLUDE.sub(fragment, (folder / f"{name}.wgsl").read_text("utf-8"))
    return Kernel(name, source, wgsl_types.params_dtype(name, without_comments(source)))


@functools.cache
def _text(name: str, source: str, consts: Consts) -> str:
    """The source with plan values put in, lines of other forms dropped and loops unrolled."""
    given, used, lines = dict(consts), set[str](), []
    for line in source.splitlines():
        if "// if " in line and (found := _IF.match(line)):
            if not _holds(name, found["off"] or found["on"], given, used):
                continue
            line = found["code"] if found["off"] else line
        elif "// plan" in line and (found := _PLAN.match(line)):
            line = _with_value(name, found, given, used)
        lines.append(line)
    if unused := given.keys() - used:
        raise RunError(f"kernel {name} has no constant {', '.join(sorted(unused))}")
    return unrolled("\n".join(lines) + "\n")


def _value(name: str, key: str, given: Mapping[str, int | str], used: set[str]) -> int | str:
    if key not in given:
        raise RunError(f"kernel {name}: the plan gives no {key}")
    used.add(key)
    return given[key]


def _holds(name: str, condition: str, given: Mapping[str, int | str], used: set[str]) -> bool:
    for term in condition.split(" and "):
        key, sign, number = (*term.split(), ">", "0")[:3]
        value = _value(name, key, given, used)
        if not isinstance(value, int):
            raise RunError(f"kernel {name}: // if {key} needs a number")
        if not (value > int(number) if sign == ">" else value == int(number)):
            return False
    return True


def _with_value(name: str, found: re.Match[str], given: Mapping[str, int | str], used: set[str]) -> str:
    """A line with its default replaced: that of a const or alias, or the text that the line names."""
    code = found["code"]
    if found["name"]:
        if code.count(found["text"]) != 1:
            raise RunError(f"kernel {name}: {found['text']!r} is not in this line once: {code}")
        return code.replace(found["text"], str(_value(name, found["name"], given, used)))
    declared = _DECLARED.match(code)
    if not declared:
        raise RunError(f"kernel {name}: // plan without a name follows something else than a const or alias: {code}")
    value = _value(name, declared["const"] or declared["alias"], given, used)
    return f"{declared['left']}{value}{'u' if isinstance(value, int) else ''};"


def unrolled(text: str) -> str:
    """Every `for (var i = 0u; i < N; i++) { // unroll` as N copies of its body, each with a constant i.

    Arrays indexed by such an i stay in registers, which compilers behind WebGPU do not always achieve by themselves.
    """
    if "// unroll" not in text:
        return text
    known = constants(text)
    while loops := list(_UNROLL.finditer(text)):
        m = loops[-1]
        depth, end = 1, m.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        body = text[m.end() : end - 1]
        copies = (f"{{ const {m[1]} = {i}u;\n{body}}}\n" for i in range(constant(m[2], known)))
        text = text[: m.start()] + "".join(copies) + text[end:]
    return text


@functools.lru_cache(maxsize=4096)
def _bindings(name: str, text: str) -> tuple[Binding, ...]:
    text = without_comments(text)
    found = [Binding(int(m[1]), m[4].removeprefix("t_"), _kind(name, m)) for m in _BINDING.finditer(text)]
    if len(found) != text.count("@binding") or len({b.index for b in found}) != len(found):
        lines = [line.strip() for line in text.splitlines() if "@binding" in line]
        raise RunError(f"kernel {name}: {len(found)} of these bindings are understood: {' '.join(lines)}")
    return tuple(sorted(found, key=lambda b: b.index))


def _kind(name: str, declared: re.Match[str]) -> str:
    space, access, wgsl_type = declared[2], declared[3], re.sub(r"\s+", "", declared[5])
    if space == "uniform" and not access:
        return "uniform"
    if space == "storage":
        return "write" if access == "read_write" else "read"
    if not space and re.fullmatch(r"texture_2d<[fiu]32>", wgsl_type):
        return "texture"
    stored = re.fullmatch(r"texture_storage_(2d|2d_array)<(\w+),(read|write|read_write)>", wgsl_type)
    if space or not stored:
        raise RunError(f"kernel {name}: the binding is not understood: {declared[0]}")
    return f"image {stored[1].replace('_', '-')} {stored[2]} {stored[3].replace('_', '-')}"
