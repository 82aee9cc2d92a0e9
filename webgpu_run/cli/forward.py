"""`--input x.npy --output DIR`: one call of any model."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from ..console import outfile
from ..console.interrupt import Interrupts
from ..console.progress import Progress
from ..console.terminal import plural, stdout_console
from ..errors import FormatError, UsageError
from ..formats.pte import Program, Tensor
from ..runtime.calls import Call
from ..shapes import Array
from .options import Settings
from .run_report import RunReport, check_outputs, load_model, save_array
from .run_totals import RunTotals


def forward(program: Program, settings: Settings) -> int:
    """Call the method once with the given arrays. Outputs are written to files, or summarized on stdout."""
    zero_ns = time.perf_counter_ns()
    check_outputs(settings)
    interrupts = Interrupts()
    method = program.method(settings.method)
    specs = [v for v in (method.values[i] for i in method.inputs) if isinstance(v, Tensor)]
    takes = ", ".join(f"{t.dtype} {list(t.dims)}" for t in specs)
    if len(settings.input) != len(specs):
        raise UsageError(f"{plural(len(settings.input), 'input')} given, {method.name!r} takes {len(specs)}: {takes}")
    arrays = [_load(path) for path in settings.input]
    folder = Path(settings.output) if settings.output else None
    targets = [folder / f"output_{k}.npy" for k in range(len(method.outputs))] if folder else []
    if folder:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--output: {str(error.strerror).lower()} ({folder})") from None
        for target in targets:
            outfile.check_target(target, [settings.model, *settings.data, *settings.input], "--output")
    with Progress(quiet=settings.quiet) as progress:
        model = load_model(program, settings, progress)
    report = RunReport(settings, model, zero_ns)
    start = time.perf_counter_ns()
    with interrupts.limit(settings.timeout):
        outputs = model.run(arrays, timed=report.timed)
    wall_ns = time.perf_counter_ns() - start
    call = Call(0, method.name, 1, 0, start, wall_ns, model.stats, tuple(a.shape for a in arrays))
    for observer in report.observers:
        observer(call)
    for target, output in zip(targets, outputs, strict=False):
        save_array(target, np.asarray(output))
    if not folder:
        console = stdout_console()
        for k, output in enumerate(outputs):
            console.print(f"output {k}  {describe(np.asarray(output))}", soft_wrap=True)
    totals = RunTotals()
    totals.calls = [call]
    report.finish(totals)
    return 0


def describe(array: Array) -> str:
    """Dtype, shape and range of an array in one line."""
    text = f"{array.dtype} {list(array.shape)}"
    if array.size and array.dtype.kind in "fiu":
        text += f"  min {array.min():.6g}  mean {array.mean():.6g}  max {array.max():.6g}"
    return text


def _load(path: str) -> Array:
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise FormatError(f"cannot read: {(error.strerror or str(error)).lower()} ({path})") from None
    except (ValueError, EOFError):
        with open(path, "rb") as file:
            is_npy = file.read(6) == b"\x93NUMPY"
        what = "a .npy file that is cut short or does not hold numbers" if is_npy else "not a .npy file"
        raise FormatError(f"{what} ({path})") from None
    if not isinstance(array, np.ndarray):
        raise FormatError(f"an .npz archive, not a .npy file ({path})")
    return array
