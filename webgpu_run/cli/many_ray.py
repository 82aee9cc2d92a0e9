"""`--prompts` with `--ray`: the rows of all nodes of a cluster, through the same journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ..cluster import Cluster, ReplyWork, collect_files
from ..console.early import INTERRUPTED
from ..console.progress import Progress
from ..console.terminal import plural, stderr_console
from .many import Run, Tally
from .reply_printer import reply_options
from .run_report import LoadClock


class _CompletionCounts:
    """What a tally counts of a row that another machine completed."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.error = row.get("error", "")
        self.prompt_tokens, self.ids = row.get("prompt_tokens", 0), row.get("ids", ())


class RayRun(Run):
    """The rows of one command, completed by the workers of a cluster."""

    def complete(self, rows: Sequence[int], add: Callable[[int, dict[str, Any]], None]) -> int:
        """Call `add` with each of these rows as it ends; returns the exit code."""
        settings, interrupts = self.settings, self.interrupts
        assert settings.ray is not None
        clock = LoadClock(time.perf_counter_ns())
        tally = Tally(len(self.requests), len(self.requests) - len(rows))
        with Progress(quiet=settings.quiet) as progress, Cluster(settings.ray) as cluster:
            files, model = collect_files(self.program, settings.tokenizer, settings.template)
            model |= {"kv": settings.kv, "method": settings.method, "chunk": settings.chunk, "lookup": settings.lookup}
            model |= {"fuse": not settings.no_fuse, "tune": not settings.no_tune}
            options = {name: value for name, value in reply_options(settings).items() if name != "seed"}
            chat, parallel = (settings.chat, settings.system), settings.parallel
            work = ReplyWork(self.requests, options, self.seed, *chat, parallel, model)
            workers = cluster.start(files, work, settings.device)
            clock.loaded()
            progress("rows", tally.resumed, tally.total, f"{plural(workers, 'worker')} starting")
            with interrupts.deferred():
                for index, row in cluster.complete(rows, parallel, stopped=lambda: interrupts.requested):
                    add(index, row)
                    tally.add(_CompletionCounts(row))
                    tally.show(progress, f"{plural(cluster.ready, 'worker')}, ")
            summary = cluster.summary()
        if not settings.quiet:
            stderr_console().print("\n".join(summary), style="dim", soft_wrap=True, highlight=False)
        self.report(tally, clock)
        return INTERRUPTED if interrupts.requested else 0
