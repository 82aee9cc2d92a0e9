"""Prints replies on stdout, token by token."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping

from ..console.interrupt import Interrupts
from ..console.progress import Progress
from ..console.terminal import stderr_console
from ..errors import RunError
from ..llm.sampling import Sampler, random_seed
from ..llm.session import Reply, Session
from ..llm.tokenizer import StopStrings, TextStream, Tokenizer
from .options import Settings
from .run_totals import RunTotals


class ReplyPrinter:
    """Generates replies in a session and prints each token when its text is complete."""

    def __init__(
        self,
        settings: Settings,
        session: Session,
        tokenizer: Tokenizer | None,
        interrupts: Interrupts,
        progress: Progress,
        totals: RunTotals,
    ) -> None:
        self.settings, self.session, self.tokenizer = settings, session, tokenizer
        self.interrupts, self.progress, self.totals = interrupts, progress, totals
        is_random = settings.temp > 0 and settings.top_k != 1
        totals.seed = settings.seed if settings.seed is not None else random_seed() if is_random else None
        self.sampler = Sampler(settings.temp, settings.top_k, settings.top_p, settings.min_p, totals.seed or 0)
        self.eos: frozenset[int] = frozenset()
        if not settings.ignore_eos:
            self.eos = metadata_eos(session.model.metadata) | (tokenizer.eos_ids() if tokenizer else frozenset())
        self._is_prefilling = False
        interrupts.on_request = self._announce_stop
        self._write = _stdout_writer()
        self._line_is_open = False  # text was printed and does not end with a newline

    def introduce(self) -> None:
        """Name the device, and the seed if it was chosen at random."""
        quiet, model = self.settings.quiet, self.session.model
        device = model.device
        if not quiet and (self.settings.verbose or sys.stderr.isatty()):
            more = f", {device.adapter.driver}, kernels: {device.limits.profile.name} ({device.tuned})"
            more += f", KV cache {model.cache_nbytes / 1e6:,.1f} MB ({self.settings.kv})"
            self.note(device.name + more * bool(self.settings.verbose))
        if self.totals.seed is not None and self.settings.seed is None and not quiet:
            self.note(f"seed {self.totals.seed}")

    def print_reply(self, prompt: list[int], echo: str | None = None) -> tuple[Reply, str]:
        """Prefill the prompt and print the reply. On a terminal, `echo` is printed before it.

        Returns the reply and its text.
        """
        start = time.perf_counter_ns()
        settings, text = self.settings, []
        reply = Reply(
            self.session,
            prompt,
            self.sampler,
            limit=settings.max_new_tokens,
            eos=self.eos,
            interrupted=lambda: self.interrupts.requested,
        )
        stops = StopStrings(settings.stop)
        stream = TextStream(self.tokenizer.decode) if self.tokenizer else None
        self._is_prefilling = True
        with self.interrupts.deferred():
            for token in reply:
                self._is_prefilling = False
                if self.totals.ttft_ns is None:
                    self.totals.ttft_ns = time.perf_counter_ns() - start
                if len(reply.ids) == 1:
                    self._end_prefill(echo)
                piece = stream.push(token) if stream else f"{' ' * (len(reply.ids) > 1)}{token}"
                text.append(stops.push(piece))
                self._print(text[-1])
                if stops.found:
                    reply.stop()
        if not stops.found:
            rest = stops.push(stream.finish()) if stream else ""
            text.append(rest + stops.finish())
            self._print(text[-1])
        self.end_line()
        self.totals.generated += len(reply.ids)
        self.totals.reason = reply.reason
        return reply, "".join(text)

    def _end_prefill(self, echo: str | None) -> None:
        """Remove the progress bar; on a terminal, print the prompt that the reply continues."""
        self.progress.close()
        if echo and not self.settings.quiet and sys.stderr.isatty() and sys.stdout.isatty():
            stderr_console().print(echo, style="dim", end="", soft_wrap=True)

    def end_line(self) -> None:
        """Print a newline if the text does not end with one."""
        if self._line_is_open:
            self._print("\n")

    def _print(self, text: str) -> None:
        if text:
            self._write(text)
            self._line_is_open = not text.endswith("\n")

    def note(self, text: str) -> None:
        """Print one line on stderr."""
        self.progress.close()
        stderr_console().print(text, style="dim", soft_wrap=True)

    def _announce_stop(self) -> None:
        """Tell that Ctrl-C was seen; the line replaces the progress bar.

        This runs in a signal handler, where neither Python's streams nor rich may be used.
        """
        if self._is_prefilling and self.progress.is_shown:
            os.write(2, b"\rstopping after this chunk; again to stop now\x1b[K\n")


def metadata_eos(metadata: Mapping[str, object]) -> frozenset[int]:
    """The end-of-text ids in the metadata of the file."""
    ids: set[int] = set()
    for name in ("get_eos_ids", "get_eos_id"):
        value = metadata.get(name)
        ids |= {i for i in (value if isinstance(value, list) else [value]) if isinstance(i, int)}
    return frozenset(ids)


def _stdout_writer() -> Callable[[str], None]:
    """A function that writes text to stdout and flushes it."""
    out = sys.stdout

    def write(text: str) -> None:
        try:
            out.write(text)
            out.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise RunError(f"cannot write: {str(error.strerror).lower()} (stdout)") from None

    return write
