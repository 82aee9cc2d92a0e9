"""The commands `webgpu-bench` and `webgpu-bench roofline`: from options to rows."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ..console import outfile
from ..console.progress import Progress
from ..console.terminal import plural
from ..errors import UsageError
from ..formats.pte import Program
from ..gpu import roofline
from ..gpu.device import Device
from ..gpu.known import remember
from ..llm import tokenizer as tokenizers
from ..runtime.open import open_device, open_model, open_program
from ..runtime.support import check_method
from . import share as results
from .energy import Meter
from .host import is_busy
from .rows import facts, model_row
from .runner import Bench
from .samples import Measured
from .tables import Row, View, number, sinks, warn
from .trials import LengthLimits, Trial, rounds, trials
from .views import MODEL
from .windows import read_text

SEQ_LENS, DECODES = (1, 64, 512), (32,)


@dataclass(slots=True)
class Variant:
    """A model with a format of its KV cache, and its trials."""

    program: Program
    kv: str
    reach: LengthLimits
    todo: list[Trial]
    shared: Row = field(default_factory=dict)
    settings: Row = field(default_factory=dict)
    bench: Bench | None = None
    gpu_bytes: int = 0
    measured: list[Measured] = field(default_factory=list)

    def rows(self, roof: roofline.Roofline | None) -> list[Row]:
        """The rows of the trials that have run."""
        batch_bytes = self.bench.batch_bytes if self.bench else 0
        return [
            model_row(m, self.shared, self.settings, roof, self.gpu_bytes + batch_bytes * (m.trial.batch > 1))
            for m in self.measured
            if m.samples
        ]


def run_model(
    *,
    models: tuple[str, ...],
    data: tuple[str, ...],
    method: str | None,
    device: str | None,
    seq_lens: tuple[int, ...] | None,
    decode: tuple[int, ...] | None,
    both: tuple[tuple[int, int], ...],
    batch: tuple[int, ...],
    depth: tuple[int, ...],
    repeat: int | None,
    budget: float,
    warmup: int,
    chunk: int | None,
    text: str | None,
    tokenizer: str | None,
    no_fuse: bool,
    no_tune: bool,
    kv: tuple[str, ...],
    no_roofline: bool,
    report: str | None,
    share: str | None,
    form: str | None,
    out: str | None,
    quiet: bool,
) -> int:
    """Measure every trial of every model and format, one row each, in rounds that alternate between all of them.

    Nothing runs if one of the requested trials cannot.
    """
    programs = [open_program(model, data) for model in models or (None,)]
    for path, flag in ((out, "--out"), (report, "--report"), (share, "--share")):
        if path:
            outfile.check_target(path, [*(p.path for p in programs), *data, *([text] if text else [])], flag)
    only_both = both and seq_lens is None and decode is None
    lens = () if only_both else SEQ_LENS if seq_lens is None else seq_lens
    todo = trials(lens, () if only_both else DECODES if decode is None else decode, depth or (0,), both, batch)
    if not todo:
        raise UsageError("nothing to measure: neither prompt lengths (-p) nor tokens to generate (-n)")
    asked = [t for t in todo if t.generate or t.batch or (decode if t.decode else seq_lens) is not None]
    for program in programs:
        check_method(program.method(method))
        LengthLimits.of(program, program.method(method)).check(todo, asked)
    prompts = [_prompt(program, text, tokenizer) for program in programs]
    if is_busy():
        warn("the machine is busy with something else: expect noise", quiet)
    opened = open_device(device, tune=not no_tune, only_model=max(programs, key=lambda p: p.file_size))
    variants = []
    for program in programs:
        reach = LengthLimits.of(program, program.method(method), opened)
        reach.check(todo, asked)
        skipped = [t.label for t in todo if t not in asked and reach.problem(t)]
        if skipped:
            warn(f"left out {', '.join(skipped)}: the model holds {reach.capacity} tokens", quiet)
        variants += [Variant(program, k, reach, [t for t in todo if t.label not in skipped]) for k in kv]
    meter = Meter(opened.adapter.name)
    with closing(meter), Progress(quiet=quiet, manual=True) as progress:
        for variant in variants:
            before = opened.allocated
            loaded = open_model(
                variant.program,
                opened,
                method=method,
                fuse=not no_fuse,
                kv=variant.kv,
                progress=progress,
                is_checked=True,
            )
            variant.gpu_bytes = loaded.device.allocated - before
            prompt = prompts[programs.index(variant.program)]
            sequences = max(batch, default=0)
            variant.bench = Bench(loaded, variant.reach, chunk=chunk, text=prompt, sequences=sequences, meter=meter)
            variant.shared = facts(opened, variant.program)
            variant.settings = {
                "warmup": warmup,
                "chunk": variant.bench.chunk,
                "fuse": not no_fuse,
                "tune": not no_tune,
                "kv": variant.kv,
                "method": loaded.method.name,
                "prompt": Path(text).name if text else "random",
                "models": len(variants),
            }
            variant.measured = [Measured(trial) for trial in variant.todo]
        roof = None if no_roofline else roofline.measure(opened, progress)
        steps = list(_alternating(variants))
        rows: list[Row] = []
        try:
            shown = {
                "% roof": roof is not None,
                "kv": kv != ("f32",),
                "each": bool(batch),
                "J/token": bool(meter.sources),
            }
            known = [{**v.shared, "settings": v.settings, "test": t.label} for v in variants for t in v.todo]
            hidden = (column for column, is_shown in shown.items() if not is_shown)
            with sinks(form, out, MODEL.without(*hidden), known) as table:
                for number in rounds(repeat, budget):
                    for i, (variant, trial) in enumerate(steps):
                        progress(f"round {number + 1}", i, len(steps))
                        assert variant.bench
                        variant.bench.run_round(trial, warmup)
                        if not number or i == len(steps) - 1:
                            progress.close()  # on a terminal, the bar would share a line with the table
                            rows = [row for v in variants for row in v.rows(roof)]
                            table.show(rows)
                if roof:  # again, because other programs may have disturbed the first measurement
                    roof = roof.or_better(roofline.measure(opened, progress))
                    remember(opened, roof)
                    progress.close()
                    rows = [row for v in variants for row in v.rows(roof)]
                    table.show(rows)
        finally:
            if report and rows:
                from .page import page

                outfile.write(report, page(rows).encode())
            if rows and not quiet:
                ran = min(len(row["samples"]) for row in rows)
                print(f"{plural(ran, 'round')} of {plural(len(rows), 'test')}", file=sys.stderr, flush=True)
        if share:
            results.write(share, opened, roof, rows)
        for row in rows:
            for warning in row["warnings"]:
                warn(warning, quiet)
    return 0


def _alternating(variants: list[Variant]) -> Iterator[tuple[Variant, Measured]]:
    """One round: every trial on all models in turn, so that what is compared is measured close together."""
    for trials_of_same_index in itertools.zip_longest(*(v.measured for v in variants)):
        for variant, measured in zip(variants, trials_of_same_index, strict=True):
            if measured:
                yield variant, measured


def _prompt(program: Program, text: str | None, tokenizer: str | None) -> list[int]:
    """The tokens of the text that prompts are taken from."""
    if text is None:
        return []
    content = read_text(Path(text))
    ids = tokenizers.find(program.path, tokenizer).encode_prompt(content)
    if not ids:
        raise UsageError(f"the text is empty ({text})")
    return ids


def roofline_rows(device: Device, roof: roofline.Roofline) -> list[Row]:
    shared = facts(device)
    return [
        {
            **{k: shared[k] for k in ("schema", "time")},
            "kind": "roofline",
            "test": what,
            "unit": unit,
            "better": "lower" if unit == "µs" else "higher",
            "samples": [float(f"{value:.6g}")],
            "mean": float(f"{value:.6g}"),
            **shared,
        }
        for what, value, unit in roof.rows()
    ]


ROOFLINE = View(
    lambda row: {
        "device": row["device"]["name"].partition(" (")[0],
        "test": row["test"],
        "value": number(row["mean"]),
        "unit": row["unit"],
    },
    ("device.name", "device.backend", "device.driver", "test", "mean", "unit", "time", "schema"),
)


def run_roofline(*, device: str | None, form: str | None, out: str | None, quiet: bool) -> int:
    """Measure the adapter itself."""
    if out:
        outfile.check_target(out, (), "--out")
    opened = open_device(device, tune=False)
    with Progress(quiet=quiet, manual=True) as progress:
        roof = roofline.measure(opened, progress)
    remember(opened, roof)
    rows = roofline_rows(opened, roof)
    with sinks(form, out, ROOFLINE, rows) as table:
        table.show(rows)
    return 0
