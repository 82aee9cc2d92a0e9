"""Small programs built without an exporter, and a form in which two programs can be compared."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from webgpu_run.formats.pte import (
    Allocation,
    Chain,
    DelegateCall,
    FreeCall,
    JumpFalseCall,
    KernelCall,
    Method,
    MoveCall,
    Program,
    Tensor,
    TensorList,
)
from webgpu_run.formats.source import Span
from webgpu_run.formats.vkgraph import (
    BoolList,
    Constant,
    DoubleList,
    IntList,
    OperatorCall,
    SymInt,
    ValueList,
    VkGraph,
    VkTensor,
)
from webgpu_run.formats.vkgraph_writer import named_constants, program_of

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("tiny_*.pte"))
WEIGHT = bytes(range(64)) * 2  # float32 [4, 8]


def add_graph() -> VkGraph:
    """x[4, 8] + x, then + a constant: two ops, one named constant."""
    return VkGraph(
        version="0",
        chain=(OperatorCall(0, "aten.add.Tensor", (0, 0, 2, 3)), OperatorCall(1, "aten.add.Tensor", (3, 1, 2, 4))),
        values=(
            VkTensor("float32", (4, 8)),
            VkTensor("float32", (4, 8), constant_id=0),
            1,
            VkTensor("float32", (4, 8), mem_obj_id=0),
            VkTensor("float32", (4, 8), mem_obj_id=1),
        ),
        input_ids=(0,),
        output_ids=(4,),
        constants=named_constants([WEIGHT]),
    )


def add_program(**changes: Any) -> Program:
    """A whole program around `add_graph`; `changes` replace fields of the graph."""
    graph = dataclasses.replace(add_graph(), **changes)
    return program_of(graph, [WEIGHT] * len(graph.constants), metadata={"get_n": 3, "get_ids": [1, 2]})


def every_kind() -> Program:
    """A program with every kind of value, instruction and constant."""
    values = (
        None,
        True,
        -(2**40),
        0.25,
        "naïve",
        SymInt(7),
        IntList((1, -2)),
        DoubleList((0.5,)),
        BoolList((True, False)),
        ValueList((0, 10)),
        VkTensor("float16", (2, 3), mem_obj_id=1, staging_dtype="float32", storage="BUFFER", layout="PACKED_INT8_4W"),
        VkTensor("uint8", (5,), constant_id=0),
        VkTensor("int8", (2,), constant_id=1, storage="TEXTURE_3D", layout="7"),
        VkTensor("int32", (), constant_id=2),
        VkTensor("bool", (1,), constant_id=0),
    )
    graph = VkGraph(
        version="1.5",
        chain=(OperatorCall(9, "made.up", (11, 12, 6, 9)), OperatorCall(3, "made.up_too", (1, 2, 3, 4, 7, 8, 13, 5))),
        values=values,
        input_ids=(14,),
        output_ids=(10,),
        constants=(Constant(5, offset=3), Constant(2, offset=16), *named_constants([b"abcd"])),
    )
    program = program_of(graph, [b"12345", b"xy", b"abcd"], dynamic=True, metadata={"name": "m", "flags": [True, 2.5]})
    forward = program.methods[0]
    method = Method(
        name="other",
        inputs=(0, 3),
        outputs=(1,),
        values=(
            Tensor("int64", (2, 3), (1, 0), "bound", allocation=Allocation(1, 2**33)),
            Tensor("float32", (2,), (0,), data=Span.of(b"aaaabbbb"), name="layer.weight"),
            Tensor("uint8", (3,), (0,), data=Span.of(b"abc"), allocation=Allocation(1, 0)),
            Tensor("bfloat16", (1,), (), "unbound"),
            TensorList((0, 1)),
            TensorList((0, -1), optional=True),
            True,
            None,
            0.5,
            "s",
            IntList((5,)),
            DoubleList(()),
            BoolList((False,)),
        ),
        chains=(
            Chain((0,), (1,), (KernelCall("aten::add.out", (0, 1, 2)), KernelCall("plain", ()), MoveCall(0, 1))),
            Chain((), (), (JumpFalseCall(6, 2), FreeCall(0), DelegateCall(0, (0, 1)))),
        ),
        operators=("aten::add.out", "plain"),
        delegates=(
            dataclasses.replace(
                forward.delegates[0], id="OtherBackend", graph=None, constants=(), blob=Span.of(b"opaque")
            ),
        ),
        non_const_buffer_sizes=(0, 2**34),
    )
    return dataclasses.replace(program, methods=(*program.methods, method))


def plain(value: Any) -> Any:
    """The same with spans as their bytes and without what only says where in the file things were."""
    if isinstance(value, Program):
        named = {key: span.read() for key, span in value.named.items()}
        return value.version, plain(value.methods), named
    if isinstance(value, Span):
        return value.read()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        skip = {"blob"} if getattr(value, "graph", None) is not None else set()
        return type(value).__name__, {
            f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.name not in skip
        }
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    return type(value).__name__, value
