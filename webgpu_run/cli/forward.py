"""`--input x.npy --output DIR`: one run of any model."""

from __future__ import annotations

import io
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
from .run_report import Reports, Run, check_files, loaded


def forward(program: Program, settings: Settings) -> int:
    """Run the method once on the given arrays; outputs go to files, or are described on stdout."""
    zero_ns = time.perf_counter_ns()
    check_files(settings)
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
        model = loaded(program, settings, progress)
    reports = Reports(settings, model, zero_ns)
    start = time.perf_counter_ns()
    with interrupts.limit(settings.timeout):
        outs = model.run(arrays, timed=reports.timed)
    call = Call(
        0, method.name, 1, 0, start, time.perf_counter_ns() - start, model.stats, tuple(a.shape for a in arrays)
    )
    for observer in reports.observers:
        observer(call)
    for target, out in zip(targets, outs, strict=False):
        data = io.BytesIO()
        np.save(data, np.asarray(out), allow_pickle=False)
        outfile.write(target, data.getvalue())
    if not folder:
        console = stdout_console()
        for k, out in enumerate(outs):
            console.print(f"output {k}  {describe(np.asarray(out))}", soft_wrap=True)
    run = Run()
    run.calls = [call]
    reports.finish(run)
    return 0


def describe(array: Array) -> str:
    """An array in one line."""
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
            ours = file.read(6) == b"\x93NUMPY"
        what = "a .npy file that is cut short or does not hold numbers" if ours else "not a .npy file"
        raise FormatError(f"{what} ({path})") from None
    if not isinstance(array, np.ndarray):
        raise FormatError(f"an .npz archive, not a .npy file ({path})")
    return array
