"""What a run tells about itself on stderr and in files: resize traces, timings, a timeline, checks, the last line."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..bench.host import peak_rss
from ..console import outfile
from ..console.progress import Progress
from ..console.terminal import stderr_console
from ..debug.fresh_build import FreshBuilds
from ..debug.stepping import Check, Dump, Dumper, Look, Stepper, check_finite
from ..debug.timeline import Timeline
from ..debug.timings import Timings, as_dict, as_tables
from ..debug.trace import CallTrace, Lines, Tracer, as_json, as_tree, summary
from ..errors import UsageError
from ..formats.pte import Program
from ..runtime.calls import Call, Observer
from ..runtime.model import Model
from ..runtime.open import open_model
from ..runtime.runner import Visitor
from ..shapes import Array
from .options import Settings


def loaded(program: Program, settings: Settings, progress: Progress) -> Model:
    """The model on its device, as the settings have it; what it does otherwise than the file says is told."""
    model = open_model(
        program,
        settings.device,
        method=settings.method,
        fuse=not settings.no_fuse,
        tune=not settings.no_tune,
        kv=settings.kv,
        progress=progress,
        only_model=True,
    )
    if model.notes and not settings.quiet:
        progress.close()
        for note in model.notes:
            stderr_console().print(f"note: {note}", style="dim", soft_wrap=True)
    return model


class Reports:
    """Everything that watches a run; made after the model is loaded."""

    def __init__(self, settings: Settings, model: Model, zero_ns: int) -> None:
        self.settings, self.model, self.zero_ns = settings, model, zero_ns
        self.loaded_ns = time.perf_counter_ns() - zero_ns
        self.console = stderr_console()
        self._held: list[CallTrace | str] = []
        self._lines = Lines()
        self._traces: list[CallTrace] = []
        # Text and trees on one terminal would be mixed up, so there the trees wait for the end of the text.
        self._hold = sys.stderr.isatty() and sys.stdout.isatty()
        self._tracer = Tracer(model) if settings.trace_resize else None
        self._timings = Timings(model, settings.timings) if settings.timings else None
        title = f"webgpu-run {Path(settings.model).name}"
        self._timeline = Timeline(title, model.device.name, zero_ns) if settings.trace else None
        if self._timeline:
            self._timeline.span("load", zero_ns, self.loaded_ns)
        self._check: Check | None = None
        self._fresh: FreshBuilds | None = None
        self._dumper: Dumper | None = None
        self._watch(model)

    @property
    def timed(self) -> bool:
        return self._timings is not None or self._timeline is not None

    @property
    def observers(self) -> list[Observer]:
        found: list[Observer] = [o for o in (self._timings, self._timeline) if o]
        return [*found, self._trace] if self._tracer else found

    def _watch(self, model: Model) -> None:
        """Put the numeric checks in the executor's place."""
        s = self.settings
        looks: list[Look] = []
        dumps = [Dump.parse(d) for d in s.dump]
        dumper = self._dumper = Dumper(dumps, model, _save, fused=not s.no_fuse) if dumps else None
        if s.nan_check:
            looks.append(check_finite)
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

    def _trace(self, call: Call) -> None:
        assert self._tracer
        trace = self._tracer.trace(call)
        self._traces.append(trace)
        if self.settings.trace_resize == "json":
            sys.stderr.write(as_json(trace) + "\n")
            return
        self._show(self._lines.add(trace))

    def _show(self, items: Sequence[CallTrace | str]) -> None:
        if self._hold:
            self._held += items
            return
        for item in items:
            if isinstance(item, str):
                self._tell(item)
            else:
                self.console.print(as_tree(item))

    def _show_all(self, items: Sequence[Any]) -> None:
        for item in items:
            if isinstance(item, str):
                self._tell(item)
            else:
                self.console.print(item)

    def pause(self) -> None:
        """The text has ended, for now: show what waited for that."""
        self._show(self._lines.finish())
        held, self._held, hold = self._held, [], self._hold
        self._hold = False
        self._show(held)
        self._hold = hold

    def finish(self, run: Run) -> None:
        """The tables, the checks that passed, the files, and the last line."""
        self.pause()
        s = self.settings
        if self._timings and s.stats != "json":
            self._show_all(as_tables(self._timings, self.console.width))
        if self._timeline:
            assert s.trace
            outfile.write(s.trace, self._timeline.to_json())
        for line in self._passed():
            self._tell(line)
        if s.stats == "json":
            print(json.dumps(self._as_dict(run)), file=sys.stderr, flush=True)
        elif s.stats == "line" and not s.quiet:
            self._tell(run.line(self.model.device.allocated))

    def _tell(self, line: str) -> None:
        """One line, which only a terminal may fold."""
        self.console.print(line, soft_wrap=not self.console.is_terminal)

    def _passed(self) -> list[str]:
        lines = []
        if self._check:
            worst = max(self._check.worst.items(), key=lambda item: item[1], default=("none", 0.0))
            lines.append(f"check: {self._check.compared} op outputs agree, worst NMSE {worst[1]:.1e} ({worst[0]})")
            if self._check.without:
                lines[-1] += f"; no reference: {', '.join(sorted(self._check.without))}"
        if self._fresh:
            lines.append(f"check-resize: {self._fresh.compared} calls equal a fresh build, bit for bit")
        if self._dumper:
            lines += self._dumper.told()
        return [] if self.settings.quiet else lines

    def _as_dict(self, run: Run) -> dict[str, Any]:
        device = self.model.device
        found: dict[str, Any] = {
            "schema": 1,
            "model": self.settings.model,
            "device": device.adapter.name,
            "backend": device.adapter.backend,
            "load_ms": round(self.loaded_ns / 1e6, 3),
            **run.as_dict(),
            "gpu_bytes": device.allocated,
            "cache_bytes": self.model.cache_nbytes,
            "peak_rss_bytes": peak_rss(),
        }
        if self._tracer:
            found["resize"] = summary(self._traces)
        if self._timings:
            found["timings"] = as_dict(self._timings)
        if self._check:
            found["check"] = {"compared": self._check.compared, "worst_nmse": self._check.worst}
        if self._fresh:
            found["check_resize"] = {"calls": self._fresh.compared}
        return found


class Run:
    """Totals of a run: tokens and times of prefill and decode, and why it ended."""

    def __init__(self) -> None:
        self.calls: Sequence[Call] = ()
        self.generated = 0
        self.ttft_ns: int | None = None
        self.reason = ""
        self.seed: int | None = None
        self.turns = 0

    def _phase(self, name: str) -> tuple[int, int, int]:
        """Tokens, calls, nanoseconds without compiling."""
        calls = [c for c in self.calls if c.phase == name]
        return sum(c.tokens for c in calls), len(calls), sum(c.wall_ns - c.stats.compile_ns for c in calls)

    @property
    def _compile_ns(self) -> int:
        return sum(c.stats.compile_ns for c in self.calls)

    @property
    def _method(self) -> str | None:
        """What was run, where it was not text."""
        return next((c.phase for c in self.calls if c.phase not in ("prefill", "decode")), None)

    def line(self, gpu_bytes: int) -> str:
        """The stats line."""
        if self._method:
            ns = self._phase(self._method)[2]
            return f"{self._method} {ns / 1e6:,.1f} ms · GPU {gpu_bytes / 1e6:,.0f} MB"
        tokens, _, ns = self._phase("prefill")
        parts = [f"prefill {tokens} tok {_rate(tokens, ns)}"]
        steps, _, ns = self._phase("decode")
        parts.append(f"decode {self.generated} tok {_rate(steps, ns)}" if steps else f"decode {self.generated} tok")
        if self.ttft_ns is not None:
            parts.append(f"ttft {self.ttft_ns / 1e6:,.0f} ms")
            if self._compile_ns > self.ttft_ns / 2:  # a driver remembers what it compiled, so the next run has less
                parts.append(f"compiled kernels {self._compile_ns / 1e6:,.0f} ms")
        parts.append(f"GPU {gpu_bytes / 1e6:,.0f} MB")
        if self.reason:
            parts.append(f"stop: {self.reason}")
        return " · ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._method:
            _, calls, ns = self._phase(self._method)
            return {
                self._method: {"calls": calls, "ms": round(ns / 1e6, 3)},
                "compile_ms": round(self._compile_ns / 1e6, 3),
            }
        for name in ("prefill", "decode"):
            tokens, calls, ns = self._phase(name)
            rate = round(tokens / ns * 1e9, 3) if ns else None
            found[name] = {"tokens": tokens, "calls": calls, "ms": round(ns / 1e6, 3), "tok_s": rate}
        found["compile_ms"] = round(self._compile_ns / 1e6, 3)
        found["generated"] = self.generated
        found["ttft_ms"] = round(self.ttft_ns / 1e6, 3) if self.ttft_ns is not None else None
        found["stop"] = self.reason or None
        found["seed"] = self.seed
        if self.turns:
            found["turns"] = self.turns
        return found


def check_files(settings: Settings) -> None:
    """Refuse, before anything is loaded, output files that cannot be or must not be written."""
    inputs = [settings.model, *settings.data, *settings.input]
    inputs += [f for f in (settings.tokenizer, settings.template, settings.prompt_file) if f]
    if settings.trace:
        outfile.check_target(settings.trace, inputs, "--trace")
    for text in settings.dump:
        outfile.check_target(Dump.parse(text).path, inputs, "--dump")
    looks = settings.check or settings.nan_check or settings.dump or settings.check_resize
    if looks and (settings.timings or settings.trace):
        raise UsageError("times measured while checking mean nothing: --timings and --trace need a run of their own")


def _save(path: Path, array: Array) -> None:
    import io

    data = io.BytesIO()
    np.save(data, array, allow_pickle=False)
    outfile.write(path, data.getvalue())


def _rate(tokens: int, ns: int) -> str:
    return f"{tokens / ns * 1e9:,.1f} tok/s" if ns > 0 else "– tok/s"
