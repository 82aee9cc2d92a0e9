"""`webgpu-run MODEL --prompts in.jsonl --out out.jsonl`: replies to many prompts, through a journal."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..console import outfile
from ..console.early import INTERRUPTED
from ..console.interrupt import Interrupts
from ..console.journal import Journal
from ..console.narrow import print_line
from ..console.progress import Progress
from ..console.terminal import stderr_console
from ..errors import RunError, UsageError
from ..formats.digest import digest
from ..formats.pte import Program
from ..llm import tokenizer as tokenizers
from ..llm.language_model import LLM
from ..llm.many import Many
from ..llm.request import Request, parse_lines
from ..llm.sampling import random_seed
from ..llm.session import Interface, Session
from ..llm.template import Template, find_template
from ..llm.tokenizer import Tokenizer
from .options import Settings
from .reply_printer import reply_options, stdout_writer
from .run_report import LoadClock, load_model

# Options that look at one prompt, or give one.
SINGLE = (
    *(
        "prompt",
        "prompt_file",
        "prompt_ids",
        "prompt_cache",
        "turns",
        "trace_resize",
        "timings",
        "timings_out",
        "trace",
    ),
    *("check", "check_resize", "nan_check", "dump"),
)


class Counted(Protocol):
    """What a tally needs of a completion."""

    @property
    def error(self) -> str: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def ids(self) -> Sequence[int]: ...


class Tally:
    """Counts rows and tokens of this process, for the progress bar and the last line."""

    def __init__(self, total: int, done: int) -> None:
        self.total, self.resumed = total, done
        self.rows = self.errors = self.prompt_tokens = self.new_tokens = 0
        self.start_ns = time.perf_counter_ns()

    @property
    def seconds(self) -> float:
        return (time.perf_counter_ns() - self.start_ns) / 1e9

    def add(self, completion: Counted) -> None:
        self.rows += 1
        self.errors += bool(completion.error)
        self.prompt_tokens += completion.prompt_tokens
        self.new_tokens += len(completion.ids)

    def show(self, progress: Progress, who: str = "") -> None:
        """Rows, tokens per second and the time left; `who` does it."""
        done = self.resumed + self.rows
        note = ""
        if self.rows:
            left = self.seconds / self.rows * (self.total - done)
            note = f"{who}{self.new_tokens / self.seconds:,.1f} tok/s, {_duration(left)} left"
        progress("rows", done, self.total, note)

    def line(self) -> str:
        parts = [f"{self.rows} rows"]
        if self.resumed:
            parts.append(f"{self.resumed} from the journal")
        if self.errors:
            parts.append(f"{self.errors} errors")
        parts.append(f"{self.prompt_tokens:,} prompt tokens")
        parts.append(f"{self.new_tokens:,} new tokens {self.new_tokens / self.seconds:,.1f} tok/s")
        return " · ".join([*parts, f"{self.seconds:,.1f} s for the rows"])

    def as_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "resumed": self.resumed,
            "errors": self.errors,
            "prompt_tokens": self.prompt_tokens,
            "new_tokens": self.new_tokens,
            "seconds": round(self.seconds, 3),
        }


class _InOrder:
    """Writes rows in the order of the input: a row that ends before those above it waits for them."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._early: dict[int, dict[str, Any]] = {}
        self._next = 0

    def add(self, index: int, row: dict[str, Any]) -> None:
        self._early[index] = row
        while self._next in self._early:
            self._put(self._next)
            self._next += 1

    def end(self) -> None:
        """Write the rows that still wait, because a row above them was not run."""
        for index in sorted(self._early):
            self._put(index)

    def _put(self, index: int) -> None:
        self._write(json.dumps(self._early.pop(index), ensure_ascii=False) + "\n")


def complete_file(program: Program, settings: Settings) -> int:
    """Run every row of a file; returns the exit code."""
    _check(settings)
    Interface.of(program.method(settings.method), program.metadata)
    data, requests = _read(settings)
    seed = random_seed() if settings.seed is None else settings.seed
    if settings.out is None:
        ordered = _InOrder(stdout_writer())
        run = _run_of(settings)(program, settings, requests, seed)
        try:
            return run.complete(range(len(requests)), ordered.add)
        finally:
            ordered.end()
    with Journal(settings.out, _key(program, settings, data)) as journal:
        journal.begin(seed)
        assert journal.seed is not None
        rows = [i for i in range(len(requests)) if i not in journal]
        run = _run_of(settings)(program, settings, requests, journal.seed)
        code = run.complete(rows, journal.add) if rows else 0
        if code == 0:
            journal.finish()
        elif not settings.quiet:
            done = f"{len(journal)} of {len(requests)} rows are done"
            stderr_console().print(f"{done}; the same command continues", style="dim", soft_wrap=True)
    return code


def _run_of(settings: Settings) -> type[Run]:
    if settings.ray is None:
        return Run
    from .many_ray import RayRun

    return RayRun


class Run:
    """The rows of one process."""

    def __init__(self, program: Program, settings: Settings, requests: Sequence[Request], seed: int) -> None:
        self.program, self.settings, self.requests, self.seed = program, settings, requests, seed
        self.interrupts = Interrupts()

    def complete(self, rows: Sequence[int], add: Callable[[int, dict[str, Any]], None]) -> int:
        """Call `add` with each of these rows as it ends; returns the exit code."""
        settings, interrupts = self.settings, self.interrupts
        clock = LoadClock(time.perf_counter_ns())
        tokenizer, template = self._text_parts()
        with Progress(quiet=settings.quiet) as progress:
            model = load_model(self.program, settings, progress, clock)
            progress.close()
            session = Session(
                model,
                chunk=settings.chunk,
                guard=lambda: interrupts.limit(settings.timeout),
                interrupted=lambda: interrupts.requested,
                lookup=settings.lookup,
            )
            llm = LLM.of(session, tokenizer, template)
            options = {name: value for name, value in reply_options(settings).items() if name != "seed"}
            many = Many(
                llm,
                self.requests,
                options,
                seed=self.seed,
                chat=settings.chat,
                system=settings.system,
                parallel=settings.parallel,
                warn=lambda text: self._note(progress, text),
            )
            tally = Tally(len(self.requests), len(self.requests) - len(rows))
            tally.show(progress)
            code = 0
            try:
                with contextlib.closing(many.run(rows)) as completions, interrupts.deferred():
                    for index, completion in completions:
                        add(index, completion.as_dict())
                        tally.add(completion)
                        tally.show(progress)
            except KeyboardInterrupt:
                code = INTERRUPTED
            finally:
                if template:
                    template.close()
        self.report(tally, clock)
        return code

    def _note(self, progress: Progress, text: str) -> None:
        if not self.settings.quiet:
            progress.close()
            stderr_console().print(f"note: {text}", style="dim", soft_wrap=True)

    def _text_parts(self) -> tuple[Tokenizer | None, Template | None]:
        """The tokenizer and the chat template, each if it is there. A row that needs one that is not is an error."""
        settings = self.settings
        try:
            tokenizer = tokenizers.find(settings.model, settings.tokenizer)
        except RunError:
            if settings.tokenizer or any(request.prompt is not None for request in self.requests):
                raise
            return None, None
        try:
            return tokenizer, find_template(tokenizer, settings.template)
        except RunError:
            if settings.chat or settings.template:
                raise
            return tokenizer, None

    def report(self, tally: Tally, clock: LoadClock) -> None:
        settings = self.settings
        if settings.stats == "json":
            totals = {"schema": 1, "model": settings.model, "load_ms": round(clock.total_ns / 1e6, 3)}
            print(json.dumps(totals | tally.as_dict()), file=sys.stderr, flush=True)
        elif settings.stats == "line" and not settings.quiet:
            print_line(stderr_console(), f"load {clock.total_ns / 1e6:,.0f} ms · {tally.line()}")


def _check(settings: Settings) -> None:
    """Refuse options that are for a single prompt, and an output that cannot be written."""
    assert settings.prompts is not None
    plain = Settings(model="")
    single = [name for name in SINGLE if getattr(settings, name) != getattr(plain, name)]
    if single:
        names = " and ".join("--" + name.replace("_", "-") for name in single)
        raise UsageError(f"{names} cannot be used with --prompts")
    if settings.ray is not None and settings.timeout is not None:
        raise UsageError("--timeout cannot be used with --ray")
    if settings.system is not None and not settings.chat:
        raise UsageError("--system is for --chat")
    if settings.out is not None:
        files = [settings.model, *settings.data, settings.prompts, settings.tokenizer, settings.template]
        target = outfile.check_target(settings.out, [file for file in files if file], "--out")
        if target.exists() and not target.is_file():
            raise UsageError(f"--out: not a regular file ({target}); without --out, rows are written to stdout")


def _read(settings: Settings) -> tuple[bytes, list[Request]]:
    """The bytes of the input, and its rows."""
    path = settings.prompts
    assert path is not None
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the prompts: {str(error.strerror).lower()} ({path})") from None
    requests = parse_lines(data, as_json=True if path.endswith((".jsonl", ".json")) else None)
    if not requests:
        raise UsageError(f"there are no prompts ({path})")
    return data, requests


def _key(program: Program, settings: Settings, data: bytes) -> dict[str, Any]:
    """Everything that the rows depend on."""
    options = {name: value for name, value in reply_options(settings).items() if name != "seed" or value is not None}
    chat = [settings.system or ""] if settings.chat else None
    return {
        "input": hashlib.sha256(data).hexdigest(),
        "model": digest(program),
        "method": settings.method,
        "KV type": settings.kv,
        "tokenizer or template": [settings.tokenizer, settings.template],
        "chat or system message": chat,
        # How many prompts share a call does not matter, but whether any do: that changes kernels, and near ties.
        **({"--parallel": "one at a time"} if settings.parallel == 1 else {}),
        **{f"--{name.replace('_', '-')}": value for name, value in options.items()},
    }


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
