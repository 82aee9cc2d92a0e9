"""Compares every CPU kernel with PyTorch, over grids of dtypes, dims and options.

    python tests/tools/cpu_with_torch.py [--store] [NAME ...]

Needs torch and executorch, but no adapter. Prints the kernels that disagree, the names without a grid, and the kernels
of ExecuTorch's portable library that we lack. With --store, the calls go to tests/fixtures/cpu_kernels.json.z, which
tests/test_cpu_kernels.py reads.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

from cpu_grids import GRIDS  # noqa: E402

from webgpu_run.errors import RunError  # noqa: E402
from webgpu_run.runtime.cpu import KERNELS  # noqa: E402

from helpers.kernel_calls import KernelCase, difference, store  # noqa: E402

with contextlib.suppress(ImportError):
    for module in ("exir.passes._quant_patterns_and_replacements", "kernels.quantized"):  # they register ops
        importlib.import_module(f"executorch.{module}")
STORED_PER_KERNEL = 8


def functional(name: str) -> Any:
    """The overload with the same arguments that returns its result; in-place ones are called on a copy."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    ops = getattr(getattr(torch.ops, namespace), packet)
    inputs = [a for a in getattr(ops, overload or "default")._schema.arguments if not a.is_out]
    if packet.endswith("_"):
        return ops.default, inputs
    wanted = {(a.name, str(a.type)) for a in inputs}
    for other in ops.overloads():
        args = getattr(ops, other)._schema.arguments
        is_same = wanted <= {(a.name, str(a.type)) for a in args} and not any(a.is_out for a in args)
        if is_same and all(a.has_default_value() for a in args if (a.name, str(a.type)) not in wanted):
            return getattr(ops, other), inputs
    return None, inputs


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().contiguous().numpy().copy()
    if isinstance(value, torch.dtype):
        return 6
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


def trial(f: Any, inputs: list[Any], name: str, args: tuple[Any, ...]) -> tuple[str, KernelCase | None]:
    """ "agree", "invalid" where PyTorch refuses it, or what is different."""
    given = tuple(plain(a) for a in args)
    try:
        made = f(**{arg.name: value for arg, value in zip(inputs, args, strict=False)})
    except (RuntimeError, IndexError, NotImplementedError, ValueError, TypeError):
        return "invalid", None
    outs = tuple(plain(x) for x in (made if isinstance(made, tuple | list) else [made]))
    if any(o.dtype == np.int16 for o in outs):
        return "invalid", None
    case = KernelCase(name, given, outs)
    try:
        return difference(case) or "agree", case
    except (RunError, AttributeError) as error:
        return f"refused: {error}", case


def main(argv: list[str]) -> int:
    warnings.filterwarnings("ignore")
    words = [a for a in argv if not a.startswith("--")]
    cases: list[KernelCase] = []
    kernels = tried = bad = 0
    for short, grid in sorted(GRIDS.items()):
        name = short if "::" in short else f"aten::{short}"
        if words and not any(word in name for word in words):
            continue
        f, inputs = functional(name)
        if KERNELS[name].inputs != len(inputs):
            print(f"{name}: takes {KERNELS[name].inputs} arguments, the schema has {len(inputs)}")
            bad += 1
        if f is None:
            print(f"{name}: no overload returns the result")
            continue
        results = [(trial(f, inputs, name, args), args) for args in grid()]
        results = [(r, args) for r, args in results if r[0] != "invalid"]
        wrong = [(r[0], args) for r, args in results if r[0] != "agree"]
        if wrong or not results:
            shown = (
                [(str(a.dtype), list(a.shape)) if isinstance(a, torch.Tensor) else a for a in wrong[0][1]]
                if wrong
                else []
            )
            print(f"{name}: {len(results)} tried, {len(wrong)} differ; {wrong[0][0] if wrong else ''} {shown}")
        kernels, tried, bad = kernels + 1, tried + len(results), bad + len(wrong)
        agreed = [r[1] for r, _ in results if r[0] == "agree" and r[1]]
        cases += agreed[:: max(1, len(agreed) // STORED_PER_KERNEL)]
    print(f"{kernels} kernels, {tried} calls, {bad} differ")
    if "--store" in argv:
        store(cases)
        print(f"{len(cases)} calls stored")
    if not words:
        print("without a grid:", ", ".join(sorted(set(KERNELS) - {n if "::" in n else f"aten::{n}" for n in GRIDS})))
        spec = importlib.util.find_spec("executorch")
        folder = Path(next(iter(spec.submodule_search_locations or ()))) if spec else HERE
        for part in ("portable/functions.yaml", "quantized/quantized.yaml"):
            text = (folder / "kernels" / part).read_text()
            names = re.findall(r"^- (?:op|func): ([\w:.]+)", text, re.M)
            lacking = [n for n in names if (n if "::" in n else f"aten::{n}") not in KERNELS]
            print(f"{part}: {len(names)} kernels, we lack: {', '.join(lacking) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
