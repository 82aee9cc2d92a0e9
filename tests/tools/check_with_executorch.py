"""Compare our reader and writer with ExecuTorch's own, for the fixtures and any files given.

We must read what its deserializer reads, and its runtime must load what we write, with full verification.
Needs an environment with executorch, flatbuffers and numpy: python tests/tools/check_with_executorch.py [FILE.pte...]
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

from webgpu_run.formats import pte, pte_writer  # noqa: E402
from webgpu_run.formats.vkgraph import VkTensor  # noqa: E402

from helpers.samples import FIXTURES, add_program, every_kind  # noqa: E402


def check_read(data: bytes, program: pte.Program) -> None:
    """Raises when ExecuTorch reads something else from the same bytes."""
    decoded = deserialize_pte_binary(data).program
    for plan, method in zip(decoded.execution_plan, program.methods, strict=True):
        assert plan.name == method.name
        assert tuple(plan.inputs) == method.inputs
        assert tuple(plan.outputs) == method.outputs
        assert len(plan.values) == len(method.values)
        kernels = [step.op for step in method.instructions if isinstance(step, pte.KernelCall)]
        names = [f"{op.name}.{op.overload}" if op.overload else op.name for op in plan.operators]
        calls = [step.instr_args for chain in plan.chains for step in chain.instructions]
        assert kernels == [names[call.op_index] for call in calls if hasattr(call, "op_index")]
        for delegate in method.delegates:
            if delegate.graph is not None:
                check_graph(delegate)


def check_graph(delegate: pte.Delegate) -> None:
    """Raises when ExecuTorch reads another graph from a delegate."""
    ours = delegate.graph
    assert ours is not None
    if any(value in (math.inf, -math.inf) for value in ours.values):
        return  # executorch decodes through JSON, which has no infinity
    graph = flatbuffer_to_vk_graph(extract_vk_flatbuffer(delegate.blob.read()))
    assert [(op.name, tuple(op.args)) for op in graph.chain] == [(op.name, op.args) for op in ours.chain]
    assert tuple(graph.input_ids) == ours.input_ids
    assert tuple(graph.output_ids) == ours.output_ids
    assert [constant.named_key or None for constant in graph.constants] == [constant.key for constant in ours.constants]
    for theirs, value in zip(graph.values, ours.values, strict=True):
        if isinstance(value, VkTensor):
            assert tuple(theirs.value.dims) == value.dims
            assert theirs.value.datatype.name.lower() == value.dtype


def check_write(program: pte.Program, **form: int) -> bytes:
    """The program as we write it; raises when ExecuTorch's runtime does not load that."""
    data = pte_writer.dumps(program, **form)  # type: ignore[arg-type]
    loaded = Runtime.get().load_program(data, verification=Verification.InternalConsistency)
    assert set(loaded.method_names) == {method.name for method in program.methods}
    return data


def main(paths: list[Path]) -> None:
    check_write(every_kind())  # it has a memory layout that executorch has no name for, so it is not decoded
    for form in ({}, {"header": 24}, {"inline": True}):
        data = check_write(add_program(), **form)
        check_read(data, pte.loads(data))
    for path in paths:
        program = pte.load(path)
        check_read(path.read_bytes(), program)
        data = check_write(program)
        check_read(data, pte.loads(data))
        print(f"ok {path.name}", flush=True)
    print(f"{len(paths)} files: read alike, and loaded as we write them")


if __name__ == "__main__":
    main([Path(arg) for arg in sys.argv[1:]] or FIXTURES)
