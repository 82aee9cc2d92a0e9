"""Well-formed files that cannot run: refused by name and number in a real process, before anything is allocated."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_faults import refused

from webgpu_run.formats import pte_writer
from webgpu_run.formats.pte import Chain, DelegateCall, KernelCall, Method, Program
from webgpu_run.formats.vkgraph import Constant, OperatorCall, Value, VkGraph, VkTensor
from webgpu_run.formats.vkgraph_writer import program_of

from helpers.command import execute, webgpu_run
from helpers.samples import add_program

Refuse = Callable[..., None]
F32 = "float32"
CHECKING, OPENING = 10_000_000, 60_000_000  # a third of what importing the ops, and opening an adapter, may take


@pytest.fixture
def refuse(tmp_path: Path) -> Refuse:
    """Runs a program on one small input; it must be refused with this code and message.

    A refusal that needs the adapter's own numbers may take the time to open it; `limits` stand in for those numbers.
    """

    def run(
        program: Program, code: int, message: str, *, inputs: int = 1, limits: str = "", opened: bool = False
    ) -> None:
        path, array = tmp_path / "bad.pte", tmp_path / "x.npy"
        pte_writer.write(path, program)
        np.save(array, np.zeros((1, 1), np.float32))
        args = [str(path), *["--input", str(array)] * inputs]
        size = path.stat().st_size
        if not limits and not opened:
            refused(webgpu_run(*args), code, message, size + CHECKING, late=True)
            return
        if not limits:
            limits = "software=self.limits.software"
        script = (
            "import dataclasses, sys\nfrom webgpu_run.gpu import device\nmade = device.Device.__init__\n"
            "def init(self, *args):\n    made(self, *args)\n"
            f"    self.limits = dataclasses.replace(self.limits, {limits})\n"
            "device.Device.__init__ = init\nfrom webgpu_run.cli.run import main\nmain()"
        )
        result = execute(sys.executable, "-c", script, *args)
        refused(dataclasses.replace(result, seconds=0.0), code, message, size + OPENING, late=True)

    return run


def graph(name: str, args: list[Value], out: VkTensor, inputs: int = 1) -> VkGraph:
    """One call: the first `inputs` arguments are the graph's inputs, and tensors with a constant id have zeros."""
    count = 1 + max((v.constant_id for v in args if isinstance(v, VkTensor)), default=-1)
    sizes = [0] * count
    for v in args:
        if isinstance(v, VkTensor) and v.constant_id >= 0:
            sizes[v.constant_id] = int(np.prod(v.dims)) * {"float32": 4, "float16": 2}.get(v.dtype, 1)
    places = np.concatenate([[0], np.cumsum([-(-n // 16) * 16 for n in sizes])])
    return VkGraph(
        version="0",
        chain=(OperatorCall(0, name, tuple(range(len(args) + 1))),),
        values=(*args, out),
        input_ids=tuple(range(inputs)),
        output_ids=(len(args),),
        constants=tuple(Constant(n, offset=int(places[i])) for i, n in enumerate(sizes)),
    )


def program(made: VkGraph) -> Program:
    return program_of(made, [bytes(constant.length) for constant in made.constants])


def q4(k: int, n: int, group: int, *, half: int | None = None, scales: tuple[int, int] | None = None) -> Program:
    """A 4-bit linear of these sizes, whatever they are."""
    weight = VkTensor("uint8", (n, k // 2 if half is None else half), constant_id=0)
    scale = VkTensor(F32, scales or (k // max(group, 1), n), constant_id=1)
    args: list[Value] = [VkTensor(F32, (1, 4, k)), weight, scale, group, None]
    return program(graph("et_vk.linear_q4gsw.default", args, VkTensor(F32, (1, 4, n))))


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_unsupported_dtype(refuse: Refuse, dtype: str) -> None:
    tensor = VkTensor(dtype, (1, 8))
    made = graph("aten.add.Tensor", [tensor, tensor, 1], tensor, inputs=2)
    refuse(program(made), 4, rf"\b{dtype}\b", inputs=2)


def test_group_size(refuse: Refuse) -> None:
    refuse(q4(64, 32, 0, scales=(2, 32)), 5, r"linear_q4gsw.*group size 0")
    refuse(q4(64, 32, 48, scales=(1, 32)), 5, r"linear_q4gsw.*K = 64 is not a multiple of the group size 48")


def test_weight_and_scale_shapes(refuse: Refuse) -> None:
    refuse(q4(64, 32, 32, half=31), 5, r"weight has dims \[32, 31\], expected \[32, 32\]")
    refuse(q4(64, 32, 32, scales=(3, 32)), 5, r"scales have dims \[3, 32\], expected \[2, 32\]")


def test_embedding_width(refuse: Refuse) -> None:
    args: list[Value] = [
        VkTensor("int32", (1, 4)),
        VkTensor("uint8", (8, 20), constant_id=0),
        VkTensor(F32, (8, 5), constant_id=1),
        8,
        True,
    ]
    made = graph("et_vk.embedding_q4gsw.default", args, VkTensor(F32, (1, 4, 40)))
    made = dataclasses.replace(made, chain=(OperatorCall(0, made.chain[0].name, (1, 2, 3, 0, 4, 5)),))
    refuse(program(made), 5, r"embedding_q4gsw.*rows of 40 are not a multiple of 32")


def test_odd_head_dim(refuse: Refuse) -> None:
    from webgpu_run.formats.vkgraph import ValueList

    x, table = VkTensor(F32, (1, 4, 2, 7)), VkTensor(F32, (4, 3))
    made = VkGraph(
        version="0",
        chain=(OperatorCall(0, "et_vk.apply_rotary_emb.default", (0, 1, 2, 3, 6)),),
        values=(x, x, table, table, x, x, ValueList((4, 5))),
        input_ids=(0, 1, 2, 3),
        output_ids=(4, 5),
        constants=(),
    )
    refuse(program(made), 5, r"apply_rotary_emb.*head_dim 7 is odd", inputs=4)


def test_delegate_of_another_backend(refuse: Refuse) -> None:
    made = add_program()
    forward = made.methods[0]
    other = dataclasses.replace(forward.delegates[0], id="XnnpackBackend", graph=None, constants=())
    methods = (dataclasses.replace(forward, delegates=(other,)), *made.methods[1:])
    refuse(dataclasses.replace(made, methods=methods), 4, r"parts for another backend: XnnpackBackend")


def test_missing_cpu_kernels(refuse: Refuse) -> None:
    made = add_program()
    forward = made.methods[0]
    calls = (
        DelegateCall(0, (0, 1)),
        KernelCall("aten::fft.out", (0, 1, 1)),
        KernelCall("aten::fft.out", (0, 1, 1)),
        KernelCall("llama::custom.out", (0, 1, 1)),
    )
    method = Method(
        forward.name,
        forward.inputs,
        forward.outputs,
        forward.values,
        (Chain((0,), (1,), calls),),
        ("aten::fft.out", "llama::custom.out"),
        forward.delegates,
        forward.non_const_buffer_sizes,
    )
    message = r"aten::fft\.out ×2, llama::custom\.out ×1"
    refuse(dataclasses.replace(made, methods=(method, *made.methods[1:])), 4, message)


def test_tensor_past_the_binding_limit(refuse: Refuse) -> None:
    tensor = VkTensor(F32, (1, 1 << 26))
    message = r"sigmoid\.default \(node 0\): x has dims \[1, 67108864\], 268,435,456 bytes; the adapter binds at most"
    refuse(program(graph("aten.sigmoid.default", [tensor], tensor)), 5, message, limits="max_binding=134217728")


def test_tensor_past_the_largest_buffer(refuse: Refuse) -> None:
    tensor = VkTensor(F32, (1, 1 << 30))
    message = r"4,294,967,296 bytes; the adapter's largest buffer is"
    refuse(program(graph("aten.sigmoid.default", [tensor], tensor)), 5, message, opened=True)


def test_model_past_the_memory_budget(refuse: Refuse) -> None:
    count, tensor = 4000, VkTensor(F32, (1, 1 << 24))
    made = VkGraph(
        version="0",
        chain=tuple(OperatorCall(i, "aten.sigmoid.default", (0, i + 1)) for i in range(count)),
        values=(tensor,) * (count + 1),
        input_ids=(0,),
        output_ids=tuple(range(1, count + 1)),
        constants=(),
    )
    message = r"the model needs 26\d,\d{3},\d{3},\d{3} bytes \(weights 0, activations 26.*\), [\d,]+ are available"
    refuse(program(made), 5, message, limits="software=True")


def test_grid_past_the_limit(refuse: Refuse) -> None:
    tensor = VkTensor(F32, (1, 4096))
    made = program(graph("aten.sigmoid.default", [tensor], tensor))
    refuse(made, 5, r"sigmoid.*16 workgroups are over the adapter's limit of 3 x 3", limits="max_workgroups=3")


def test_workgroup_past_the_limits(refuse: Refuse) -> None:
    tensor = VkTensor(F32, (4, 64))
    made = program(graph("aten._softmax.default", [tensor, -1, False], tensor))
    refuse(made, 5, r"softmax.*shares 32 bytes a workgroup, the adapter has 16", limits="max_workgroup_bytes=16")
    refuse(made, 5, r"softmax.*runs 8 invocations a workgroup, the adapter takes 4", limits="max_invocations=4")


def test_dtype_that_no_kernel_takes(refuse: Refuse) -> None:
    """Not the bits of integers read as floats."""
    whole, real = VkTensor("int32", (4, 64)), VkTensor(F32, (4, 64))
    made = program(graph("aten._softmax.default", [whole, -1, False], real))
    refuse(made, 4, r"aten\._softmax\.default \(node 0\): argument x is int32, the kernel takes float32, float16")
    made = program(graph("aten.slice_copy.Tensor", [whole, 0, 0, 4, 1], real))
    refuse(made, 4, r"aten\.slice_copy\.Tensor \(node 0\): output out is float32, argument x is int32")


def test_training(refuse: Refuse) -> None:
    made = graph("et_vk.linear_dW.default", [VkTensor(F32, (1, 1)), VkTensor(F32, (1, 1))], VkTensor(F32, (1, 1)), 2)
    message = "'forward' trains a model, and only inference is supported: et_vk.linear_dW.default ×1"
    refuse(program(made), 4, message, inputs=2)


def test_ops_of_tests(refuse: Refuse) -> None:
    made = graph("etvk.choose_qparams_per_row.default", [VkTensor(F32, (2, 4)), -128, 127], VkTensor(F32, (2,)))
    refuse(program(made), 4, r"'forward' has ops that only ExecuTorch's C\+\+ tests build: etvk.choose_qparams_per_row")
