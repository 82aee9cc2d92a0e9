"""Reports of a run, on stderr and in files: resize traces, timings, a timeline, numeric checks and the stats line."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..bench.host import peak_rss
from ..console import outfile
from ..console.narrow import print_line
from ..console.progress import Progress
from ..console.terminal import plural, stderr_console
from ..debug.fresh_build import FreshBuilds
from ..debug.stepping import Check, Dump, Dumper, FiniteCheck, Look, Stepper
from ..debug.timeline import Timeline
from ..debug.timings import Timings, as_dict, as_tables
from ..debug.trace import CallTrace, Lines, Tracer, as_json, as_tree, summary
from ..errors import UsageError
from ..formats.pte import Program
from ..gpu.residency import ProgressCallback
from ..llm.lookup import MOST_ROWS
from ..runtime.calls import ModelCall, Observer
from ..runtime.model import Model
from ..runtime.open import open_model
from ..runtime.runner import Visitor
from ..shapes import Array
from .options import Settings
from .run_totals import RunTotals

# Options that look at each call.
STEPWISE = ("trace_resize", "timings", "timings_out", "trace", "check", "check_resize", "nan_check", "dump")


class LoadClock:
    """The parts of loading: each ends where the next begins."""

    def __init__(self, zero_ns: int) -> None:
        self.zero_ns = self._last_ns = zero_ns
        self.parts: list[tuple[str, int, int]] = []  # name, start, duration
        self._current = "device and plans"

    @property
    def total_ns(self) -> int:
        return self._last_ns - self.zero_ns

    def end(self, name: str) -> None:
        """A part ends now."""
        now = time.perf_counter_ns()
        self.parts.append((name, self._last_ns, now - self._last_ns))
        self._last_ns = now

    def watching(self, progress: ProgressCallback) -> ProgressCallback:
        """The same progress, which also tells us what is being loaded."""

        def tell(what: str, done: int, total: int) -> None:
            if what != self._current:
                self.end(self._current)
                self._current = what
            progress(what, done, total)

        return tell

    def loaded(self) -> None:
        """The model is loaded."""
        self.end(self._current)


def load_model(program: Program, settings: Settings, progress: Progress, clock: LoadClock) -> Model:
    """Load the model on its device. Notes about where the run differs from the file are printed on stderr."""
    stepwise = [name for name in STEPWISE if getattr(settings, name)]
    model = open_model(
        program,
        settings.device,
        method=settings.method,
        fuse=not settings.no_fuse,
        tune=not settings.no_tune,
        kv=settings.kv,
        verify=MOST_ROWS if settings.lookup and not stepwise else 0,
        progress=clock.watching(progress),
        only_model=True,
        is_checked=True,
    )
    clock.loaded()
    why = f"--{stepwise[0].replace('_', '-')} looks at single steps" if stepwise else model.no_verify
    notes = [*model.notes, *([f"--lookup has no effect: {why}"] if settings.lookup and why else [])]
    if notes and not settings.quiet:
        progress.close()
        for note in notes:
            stderr_console().print(f"note: {note}", style="dim", soft_wrap=True)
    return model


class RunReport:
    """Owns everything that observes a run. It is created after the model has been loaded."""

    def __init__(self, settings: Settings, model: Model, clock: LoadClock) -> None:
        self.settings, self.model = settings, model
        self.console = stderr_console()
        self._waiting: list[CallTrace | str] = []  # shown by `pause`
        self._lines = Lines()
        self._traces: list[CallTrace] = []
        # If text and trees share a terminal, trees wait for the end of the text.
        self._waits_for_text = sys.stderr.isatty() and sys.stdout.isatty()
        self._tracer = Tracer(model) if settings.trace_resize else None
        has_timings = settings.timings or settings.timings_out
        self._timings = Timings(model, settings.timings or "op") if has_timings else None
        title = f"webgpu-run {Path(settings.model).name}"
        self._timeline = Timeline(title, model, clock.zero_ns) if settings.trace else None
        if self._timeline:
            self._timeline.span("load", clock.zero_ns, clock.total_ns)
            for name, start_ns, nanoseconds in clock.parts:
                self._timeline.span(name, start_ns, nanoseconds)
        self._check: Check | None = None
        self._finite: FiniteCheck | None = None
        self._fresh: FreshBuilds | None = None
        self._dumper: Dumper | None = None
        self._watch(model)

    @property
    def timed(self) -> bool:
        return self._timings is not None or self._timeline is not None

    @property
    def observers(self) -> list[Observer]:
        observers: list[Observer] = [o for o in (self._timings, self._timeline) if o]
        return [*observers, self._trace] if self._tracer else observers

    def _watch(self, model: Model) -> None:
        """Install the numeric checks and dumps as the visitor of every runner."""
        s = self.settings
        looks: list[Look] = []
        dumps = [Dump.parse(d) for d in s.dump]
        dumper = self._dumper = Dumper(dumps, model, save_array, fused=not s.no_fuse) if dumps else None
        if s.nan_check:
            self._finite = FiniteCheck()
            looks.append(self._finite)
        if s.check:
            self._check = Check()
            looks.append(self._check)
        if dumper:
            looks.append(dumper)
        visitor: Visitor | None = None
        if looks:
            stepper = visitor = Stepper(looks, inputs=s.check)
            if dumper:
                dumper.stepper = stepper
        if s.check_resize:
            visitor = self._fresh = FreshBuilds(model, visitor)
        for runner in model.runners:
            runner.visitor = visitor

    def _trace(self, call: ModelCall) -> None:
        assert self._tracer
        trace = self._tracer.trace(call)
        self._traces.append(trace)
        if self.settings.trace_resize == "json":
            sys.stderr.write(as_json(trace) + "\n")
            return
        self._show(self._lines.add(trace))

    def _show(self, items: Sequence[CallTrace | str]) -> None:
        if self._waits_for_text:
            self._waiting += items
            return
        for item in items:
            if isinstance(item, str):
                print_line(self.console, item)
            else:
                self.console.print(as_tree(item))

    def _show_all(self, items: Sequence[Any]) -> None:
        for item in items:
            if isinstance(item, str):
                print_line(self.console, item)
            else:
                self.console.print(item)

    def pause(self) -> None:
        """Show the traces that waited for the end of the text."""
        self._show(self._lines.finish())
        waiting, self._waiting = self._waiting, []
        waits_for_text, self._waits_for_text = self._waits_for_text, False
        self._show(waiting)
        self._waits_for_text = waits_for_text

    def finish(self, totals: RunTotals) -> None:
        """Print the tables, the checks that passed and the stats line; write the timeline."""
        self.pause()
        s = self.settings
        if self._timings and s.timings_out:
            as_csv = s.timings_out.endswith(".csv")
            text = self._timings.to_csv() if as_csv else json.dumps(as_dict(self._timings), indent=1) + "\n"
            outfile.write(s.timings_out, text.encode())
        if self._timings and s.timings and s.stats != "json":
            self._show_all(as_tables(self._timings, self.console.width))
        if self._timeline:
            assert s.trace
            outfile.write(s.trace, self._timeline.to_json())
        for line in self._check_results():
            print_line(self.console, line)
        if s.stats == "json":
            print(json.dumps(self._as_dict(totals)), file=sys.stderr, flush=True)
        elif s.stats == "line" and not s.quiet:
            print_line(self.console, totals.line(self.model.device.allocated))

    def _check_results(self) -> list[str]:
        lines = []
        if self._check:
            worst = max(self._check.worst.items(), key=lambda item: item[1], default=("none", 0.0))
            lines.append(f"check: {self._check.compared} op outputs agree, worst NMSE {worst[1]:.1e} ({worst[0]})")
            if self._check.without:
                lines[-1] += f"; no reference: {', '.join(sorted(self._check.without))}"
        if self._finite:
            lines.append(f"nan-check: {self._finite.checked} op outputs have no NaN and no new infinity")
        if self._fresh:
            calls = plural(self._fresh.compared, "call")
            lines.append(f"check-resize: {calls} compared with a fresh build, equal bit for bit")
        if self._dumper:
            lines += self._dumper.told()
        return [] if self.settings.quiet else lines

    def _as_dict(self, totals: RunTotals) -> dict[str, Any]:
        device = self.model.device
        report: dict[str, Any] = {
            "schema": 1,
            "model": self.settings.model,
            "device": device.adapter.name,
            "backend": device.adapter.backend,
            **totals.as_dict(),
            "gpu_bytes": device.allocated,
            "cache_bytes": self.model.cache_nbytes,
            "peak_rss_bytes": peak_rss(),
        }
        if self._tracer:
            report["resize"] = summary(self._traces)
        if self._timings:
            report["timings"] = as_dict(self._timings)
        if self._check:
            report["check"] = {"compared": self._check.compared, "worst_nmse": self._check.worst}
        if self._finite:
            report["nan_check"] = {"outputs": self._finite.checked}
        if self._fresh:
            report["check_resize"] = {"calls": self._fresh.compared}
        return report


def check_outputs(settings: Settings) -> None:
    """Refuse output files that cannot be written or would overwrite an input. Called before anything is loaded."""
    inputs = [settings.model, *settings.data, *settings.input]
    inputs += [f for f in (settings.tokenizer, settings.template, settings.prompt_file) if f]
    if settings.trace:
        outfile.check_target(settings.trace, inputs, "--trace")
    if settings.prompt_cache:
        outfile.check_target(settings.prompt_cache, inputs, "--prompt-cache")
    if settings.timings_out:
        if not settings.timings_out.endswith((".csv", ".json")):
            raise UsageError(f"--timings-out: the name must end with .csv or .json ({settings.timings_out})")
        outfile.check_target(settings.timings_out, inputs, "--timings-out")
    for text in settings.dump:
        outfile.check_target(Dump.parse(text).path, inputs, "--dump")
    checks = settings.check or settings.nan_check or settings.dump or settings.check_resize
    if checks and (settings.timings or settings.timings_out or settings.trace):
        raise UsageError("times measured while checking mean nothing: --timings and --trace need a run of their own")


def save_array(path: Path, array: Array) -> None:
    """Write a .npy file."""
    data = io.BytesIO()
    np.save(data, array, allow_pickle=False)
    outfile.write(path, data.getvalue())
