"""Loads what our writer makes with ExecuTorch's own runtime, and compares its decoded program with ours.

Needs an environment with executorch (and flatbuffers, numpy): python tests/tools/check_with_executorch.py
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from executorch.backends.vulkan.serialization.vulkan_graph_serialize import (  # noqa: E402
    extract_vk_flatbuffer,
    flatbuffer_to_vk_graph,
)
from executorch.exir._serialize._program import deserialize_pte_binary  # noqa: E402
from executorch.runtime import Runtime, Verification  # noqa: E402
from samples import FIXTURES, add_program, every_kind  # noqa: E402

from webgpu_run import pte, ptewrite  # noqa: E402


def check(name: str, program: pte.Program, *, decode: bool = True, **form: int) -> None:
    """Raises when ExecuTorch refuses the file or reads something else from it."""
    data = ptewrite.dumps(program, **form)  # type: ignore[arg-type]
    loaded = Runtime.get().load_program(data, verification=Verification.InternalConsistency)
    names = {method.name for method in program.methods}
    assert set(loaded.method_names) == names, (loaded.method_names, names)
    decoded = deserialize_pte_binary(data).program
    for plan, method in zip(decoded.execution_plan, program.methods, strict=True):
        assert plan.name == method.name
        assert tuple(plan.inputs) == method.inputs
        assert tuple(plan.outputs) == method.outputs
        assert len(plan.values) == len(method.values)
        for k, delegate in enumerate(method.delegates):
            infinite = delegate.graph and any(v in (math.inf, -math.inf) for v in delegate.graph.values)
            if delegate.graph is None or not decode or infinite:  # executorch decodes through JSON, which has no inf
                continue
            blob = pte.loads(data).methods[names_index(program, method.name)].delegates[k].blob.read()
            graph = flatbuffer_to_vk_graph(extract_vk_flatbuffer(blob))
            assert [(op.name, tuple(op.args)) for op in graph.chain] == [
                (op.name, op.args) for op in delegate.graph.chain
            ]
            assert len(graph.values) == len(delegate.graph.values)
            assert tuple(graph.input_ids) == delegate.graph.input_ids
            keys = [constant.named_key or None for constant in graph.constants]
            assert keys == [constant.key for constant in delegate.graph.constants]
    print(f"ok {name} {form or ''}: {len(data)} bytes, methods {', '.join(sorted(names))}")


def names_index(program: pte.Program, name: str) -> int:
    """Where the method of this name is."""
    return [method.name for method in program.methods].index(name)


def main() -> None:
    check("add", add_program())
    check("add", add_program(), header=24)
    check("add", add_program(), inline=True)
    check("every kind", every_kind(), decode=False)  # it has a memory layout that executorch has no name for
    for path in FIXTURES:
        check(path.name, pte.load(path))


if __name__ == "__main__":
    main()
