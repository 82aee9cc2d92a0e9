"""`--input x.npy --output DIR`: one call of any model."""

from __future__ import annotations

import math
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

_MAGIC = b"\x93NUMPY"


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
    arrays = [read_npy(path) for path in settings.input]
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


def read_npy(path: str) -> Array:
    """Read a .npy file of numbers. Unlike np.load, it compares the shape with the size of the file first."""
    try:
        with open(path, "rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise FormatError(f"not a .npy file ({path})")
            file.seek(0)
            version = np.lib.format.read_magic(file)
            read_header = (
                np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
            )
            shape, is_fortran, dtype = read_header(file)
            data = file.read()
        if dtype.kind not in "biufc" or any(isinstance(dim, bool) or dim < 0 for dim in shape):
            raise ValueError
        if math.prod(shape) * dtype.itemsize > len(data):
            raise ValueError
        array = np.frombuffer(data, dtype, math.prod(shape))
        return array.reshape(shape[::-1]).T if is_fortran else array.reshape(shape)
    except OSError as error:
        raise FormatError(f"cannot read: {(error.strerror or str(error)).lower()} ({path})") from None
    except FormatError:
        raise
    except Exception:  # numpy evaluates the header as a Python literal, which can fail in many ways
        raise FormatError(f"a .npy file that is cut short or does not hold numbers ({path})") from None
