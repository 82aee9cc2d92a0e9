"""`--input FILE --output DIR`: one call of any model."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from ..console import outfile
from ..console.interrupt import Interrupts
from ..console.progress import Progress
from ..console.terminal import stdout_console
from ..errors import UsageError
from ..formats.pte import Program
from ..runtime.calls import ModelCall
from .arrays import PictureSettings, describe, names_of, read_inputs
from .options import Settings
from .run_report import LoadClock, RunReport, check_outputs, load_model, save_array
from .run_totals import RunTotals


def forward(program: Program, settings: Settings) -> int:
    """Call the method once with the given arrays. Outputs are written to files, or summarized on stdout."""
    zero_ns = time.perf_counter_ns()
    check_outputs(settings)
    interrupts = Interrupts()
    method = program.method(settings.method)
    pictures = PictureSettings(settings.resize, settings.mean, settings.std)
    arrays = read_inputs(settings.input, method, pictures)
    names = names_of(method, method.outputs, "output")
    folder = Path(settings.output) if settings.output else None
    targets = [folder / f"{name}.npy" for name in names] if folder else []
    if folder:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--output: {str(error.strerror).lower()} ({folder})") from None
        for target in targets:
            outfile.check_target(
                target, [settings.model, *settings.data, *(i.rpartition("=")[2] for i in settings.input)], "--output"
            )
    with Progress(quiet=settings.quiet) as progress:
        clock = LoadClock(zero_ns)
        clock.end("inputs")
        model = load_model(program, settings, progress, clock)
    totals = RunTotals(zero_ns)
    totals.load_ns = clock.total_ns
    report = RunReport(settings, model, clock)
    start = time.perf_counter_ns()
    with interrupts.limit(settings.timeout):
        outputs = model.run(arrays, timed=report.timed)
    wall_ns = time.perf_counter_ns() - start
    call = ModelCall(0, method.name, 1, 0, start, wall_ns, model.stats, tuple(a.shape for a in arrays))
    for observer in report.observers:
        observer(call)
    for target, output in zip(targets, outputs, strict=False):
        save_array(target, np.asarray(output))
    if not (folder and settings.quiet):
        console = stdout_console()
        for name, output in zip(names, outputs, strict=True):
            for line in describe(name, np.asarray(output)):
                console.print(line, soft_wrap=True)
    totals.calls = [call]
    report.finish(totals)
    return 0
