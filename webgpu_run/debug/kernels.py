"""Every shader module that the plans of a method use, with includes and constants expanded. No adapter is needed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..formats.pte import Method, Tensor
from ..graph.lower import planned
from ..graph.passes.pick import PICK
from ..graph.planner import Engine
from ..ops import wgsl, wgsl_types
from ..ops.choice import RECENT, WORDS
from ..ops.limits import GPU, PLAIN, SHORT, SOFTWARE, WIDE, Limits
from ..shapes import Array, Dims

ROWS = (1, 2, 5, 16, 64, 512)  # decode, short and long prefills
_CPU = Limits(
    max_invocations=1024,
    max_workgroup_bytes=32768,
    uniform_align=32,
    storage_align=32,
    max_texture=16384,
    max_layers=2048,
    software=True,
)  # lavapipe
PROFILES: Mapping[str, Limits] = {
    "gpu": Limits(profile=GPU, subgroups=True, dot4=True),
    "gpu-plain": Limits(profile=GPU),
    "gpu-8x16": Limits(profile=replace(GPU, name="gpu-8x16", lanes=8, splits=16), subgroups=True, dot4=True),
    "gpu-32x4": Limits(profile=replace(GPU, name="gpu-32x4", lanes=32, splits=4), subgroups=True, dot4=True),
    "software": replace(_CPU, profile=SOFTWARE, subgroups=True),
    "software-short": replace(_CPU, profile=SHORT, subgroups=True),
    "software-wide": replace(_CPU, profile=WIDE, subgroups=True),
    "software-plain": replace(_CPU, profile=PLAIN),
}


@dataclass(frozen=True, slots=True)
class Module:
    """A kernel with the constants of a plan, and the dispatches that run it."""

    kernel: str
    route: str
    text: str
    bindings: tuple[wgsl.Binding, ...]
    uses: list[dict[str, Any]] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Depends on the text alone, so that the files of two versions can be compared."""
        return hashlib.blake2b(f"{self.kernel}\n{self.text}".encode(), digest_size=6).hexdigest()

    @property
    def enables(self) -> list[str]:
        """Extensions that Chrome's compiler wants enabled in front of the text; naga refuses such a line."""
        return ["subgroups"] if "subgroup" in wgsl_types.without_comments(self.text) else []

    def to_json(self) -> str:
        return json.dumps(
            {
                "id": self.id,
                "label": f"{self.kernel} ({self.uses[0]['node']}, {self.uses[0]['rows']} rows)",
                "kernel": self.kernel,
                "route": self.route,
                "enables": self.enables,
                "text": self.text,
                "bindings": [[b.index, b.kind] for b in self.bindings],
                "uses": self.uses,
            }
        )


def modules(method: Method, limits: Limits, *, fuse: bool = True) -> list[Module]:
    """The modules of all delegates of a method, in the order of their first dispatch.

    Plans are made for the largest shape and for smaller ones: language models with ROWS tokens and with both ways to
    choose a token, other models with each axis of their inputs cut to ROWS, unless the method is static.
    """
    found: dict[tuple[str, wgsl.Consts], Module] = {}
    dynamic = any(t.dynamism != "static" for v in method.inputs if isinstance(t := method.values[v], Tensor))
    for delegate in method.delegates:
        engine = planned(delegate, limits, fuse=fuse)
        for inputs in _shapes(engine, dynamic):
            try:
                engine.resize(inputs)
            except ShapeError:
                continue  # this axis cannot be this short
            for node, plan in zip(engine.graph.nodes, engine.plans, strict=True):
                for step in plan.steps:
                    key = step.kernel, step.consts
                    if key not in found:
                        kernel = wgsl.load(step.kernel)
                        text, bindings = kernel.text(step.consts), kernel.bindings(step.consts)
                        found[key] = Module(step.kernel, plan.route, text, bindings)
                    use = {
                        "node": node.label,
                        "rows": _rows(inputs[0].shape if inputs else ()),
                        "grid": list(step.grid),
                    }
                    found[key].uses.append(use)
    return list(found.values())


def _rows(dims: Dims) -> int:
    return next((n for n in dims if n > 1), 1)


def _shapes(engine: Engine, dynamic: bool) -> Iterator[list[Array]]:
    """Inputs of every shape to plan for, each once. SymInts are cut like the axes."""
    ids, syms = engine.graph.input_ids, dict(engine.syms)
    tensors = [engine.graph.tensors[v] for v in ids if v in engine.graph.tensors]
    settings = {node.tensors["how"] for node in engine.graph.nodes if node.op.name == PICK}
    largest = [() if t.id in settings else t.max_dims for t in tensors]
    shapes = {tuple(largest): max(syms.values(), default=0)}
    for axis in range(max(map(len, largest), default=0)):
        for n in ROWS if dynamic else ():
            cut = (tuple(min(d, n) if i == axis else d for i, d in enumerate(dims)) for dims in largest)
            shapes[tuple(cut)] = n
    for dims, most in shapes.items():
        for words in (0, WORDS, 2 + RECENT, WORDS + 2 + RECENT) if settings else (0,):
            zeros = {
                t.id: np.zeros((words,) if t.id in settings else d, "i4" if t.dtype.startswith("int") else "f4")
                for t, d in zip(tensors, dims, strict=True)
            }
            yield [zeros[v] if v in zeros else np.asarray(min(syms[v], most)) for v in ids]
