"""Compares the reference and the output dims of every op with PyTorch, over a grid of attributes and dtypes.

    python tests/tools/compare_with_torch.py [--table] [OP ...]

Needs torch, but no adapter: tests compare the kernels with the references. Prints a row per op: combinations tried,
those that agree, and those that our plan refuses by name though PyTorch computes them. --table prints the rows as
tests/README.md has them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from torch_grids import GRIDS, Torch, quantized  # noqa: E402
from torch_grids_conv import BY_DEFINITION  # noqa: E402
from torch_grids_create import CREATED  # noqa: E402
from torch_grids_quantize import QUANTIZED  # noqa: E402

from webgpu_run.errors import RunError  # noqa: E402
from webgpu_run.ops.limits import Limits  # noqa: E402
from webgpu_run.ops.spec import Args, load_all  # noqa: E402


def tensors(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {n: torch.from_numpy(np.array(x)) for n, x in arrays.items()}


def trial(name: str, call: Torch, arrays: Mapping[str, Any], attrs: Mapping[str, Any]) -> str:
    """ "agree", "refused", "invalid" where PyTorch refuses it, or what is different."""
    op = load_all()[name]
    arrays = {n: np.asarray(x) for n, x in arrays.items()}
    if name == "aten.div.Tensor_mode":
        arrays["b"] = arrays["b"] + (arrays["b"] == 0)
    try:
        made = call(tensors(arrays), attrs)
    except (RuntimeError, IndexError, NotImplementedError, ValueError):
        return "invalid"
    outs = [x.numpy() for x in (made if isinstance(made, tuple | list) else [made])]
    narrow = {"int64": "int32", "float64": "float32"}
    names = {n: narrow.get(str(x.dtype), str(x.dtype)) for n, x in arrays.items()}
    if any(str(x.dtype) in ("int16",) for x in outs):
        return "invalid"
    op = op.sized(len(outs))
    dtypes = names | {n: narrow.get(str(x.dtype), str(x.dtype)) for n, x in zip(op.outs, outs, strict=True)}
    dims = {n: x.shape for n, x in arrays.items()}
    largest = dims | {n: x.shape for n, x in zip(op.outs, outs, strict=True)}
    args = Args(dims, {**attrs, "aliased": False}, slots={"pos": 0}, max_dims=largest, dtypes=dtypes)
    try:
        planned = op.plan(args, Limits()).outs
    except RunError as err:
        return f"refused: {err}"
    assert op.reference is not None
    with np.errstate(all="ignore"):
        wanted = op.reference(args, {n: x.astype(names[n]) for n, x in arrays.items()})
    for out, want, dims_ in zip(outs, wanted, planned, strict=True):
        if out.shape != want.shape or out.shape != dims_:
            return f"dims {out.shape}, ours {want.shape}, planned {dims_}"
        a, b = out.astype(np.float64), np.asarray(want).astype(out.dtype).astype(np.float64)
        top = max(1.0, float(np.abs(a[np.isfinite(a)]).max(initial=0)))
        close = np.isclose(a, b, rtol=2e-5, atol=2e-5 * top, equal_nan=True)
        if not close.all():
            at = tuple(int(i) for i in np.argwhere(~close)[0])
            return f"at {list(at)}: torch {a[at]}, ours {b[at]}"
    return "agree"


def table(counts: Mapping[str, tuple[int, int, int]]) -> str:
    """Ops with the same counts share a row."""
    groups: dict[tuple[int, int, int], list[str]] = {}
    for name, row in sorted(counts.items()):
        groups.setdefault(row, []).append(f"`{name.removeprefix('aten.').removesuffix('.default')}`")
    rows = [(", ".join(names), *row) for row, names in sorted(groups.items(), reverse=True)]
    rows.append((f"all {len(counts)}", *(sum(column) for column in zip(*counts.values(), strict=True))))
    return "\n".join(f"| {names} | {n} | {agree} | {refused} |" for names, n, agree, refused in rows)


def main(argv: list[str]) -> int:
    as_table, argv = "--table" in argv, [word for word in argv if word != "--table"]
    total = agreed = bad = 0
    counts: dict[str, tuple[int, int, int]] = {}
    print(f"{'op':52} {'tried':>6} {'agree':>6} {'refused':>8}  first disagreement")
    for name, (call, trials) in sorted({**GRIDS, **CREATED, **BY_DEFINITION, **QUANTIZED, **quantized()}.items()):
        if argv and not any(word in name for word in argv):
            continue
        results = [(trial(name, call, *t), t) for t in trials]
        results = [(r, t) for r, t in results if r != "invalid"]
        agree, refused = (sum(r.startswith(word) for r, _ in results) for word in ("agree", "refused"))
        wrong = [(r, {n: (str(np.asarray(x).dtype), np.shape(x)) for n, x in t[0].items()}, t[1])
                 for r, t in results if not r.startswith(("agree", "refused"))]  # fmt: skip
        print(f"{name:52} {len(results):6} {agree:6} {refused:8}  {wrong[0] if wrong else ''}")
        counts[name] = len(results), agree, refused
        total, agreed, bad = total + len(results), agreed + agree, bad + len(wrong)
    print(f"{'all':52} {total:6} {agreed:6} {total - agreed - bad:8}")
    missing = sorted(
        n for n, op in load_all().items() if n.startswith("aten.") and n not in {**GRIDS, **CREATED} and op.reference
    )
    if as_table:
        print(table(counts))
    print("aten ops without a grid:", ", ".join(missing) or "none")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
