"""Prints replies on stdout, token by token."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..console.interrupt import Interrupts
from ..console.progress import Progress
from ..console.terminal import stderr_console
from ..errors import RunError
from ..llm.language_model import LLM
from ..llm.reply import Reply
from ..llm.sampling import random_seed
from ..llm.session import Stopped
from .options import Settings
from .run_totals import RunTotals


class ReplyPrinter:
    """Prints the pieces of replies as they are generated."""

    def __init__(
        self, settings: Settings, llm: LLM, interrupts: Interrupts, progress: Progress, totals: RunTotals
    ) -> None:
        self.settings, self.llm = settings, llm
        self.interrupts, self.progress, self.totals = interrupts, progress, totals
        is_random = settings.temp > 0 and settings.top_k != 1
        totals.seed = settings.seed if settings.seed is not None else random_seed() if is_random else None
        self.options = reply_options(settings) | {"seed": totals.seed}
        self._write = stdout_writer()
        self._line_is_open = False  # text was printed and does not end with a newline

    def introduce(self) -> None:
        """Name the device, and the seed if it was chosen at random."""
        quiet, model = self.settings.quiet, self.llm.model
        device = model.device
        if not quiet and (self.settings.verbose or sys.stderr.isatty()):
            more = f", {device.adapter.driver}, kernels: {device.limits.profile.name} ({device.tuned})"
            more += f", KV cache {model.cache_nbytes / 1e6:,.1f} MB ({device.limits.kv})"
            self.note(device.name + more * bool(self.settings.verbose))
        if self.totals.seed is not None and self.settings.seed is None and not quiet:
            self.note(f"seed {self.totals.seed}")

    def print_reply(self, reply: Reply, echo: str | None = None) -> None:
        """Print a reply while it is generated. On a terminal, `echo` is printed before it.

        Ctrl-C during the prefill raises Stopped at once. Later it ends the reply after the current token.
        """
        interrupts = self.interrupts
        interrupts.at_once = True
        try:
            with interrupts.deferred():
                for piece in reply:
                    if interrupts.at_once:
                        interrupts.at_once = False
                        self._end_prefill(echo)
                    self._print(piece)
        except KeyboardInterrupt:
            if interrupts.at_once:
                raise Stopped from None
            raise
        finally:
            interrupts.at_once = False
            reply.stop()  # an exception of ours must not let it go on
            self.totals.add(reply)
        self.end_line()

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

    def warn(self, text: str) -> None:
        """Print one line on stderr that asks for attention, unless the run is quiet."""
        if not self.settings.quiet:
            self.progress.close()
            stderr_console().print(text, style="yellow", soft_wrap=True)

    def note(self, text: str) -> None:
        """Print one line on stderr."""
        self.progress.close()
        stderr_console().print(text, style="dim", soft_wrap=True)


def reply_options(settings: Settings) -> dict[str, Any]:
    """The keyword arguments of LLM.generate and LLM.chat."""
    return {
        "max_new_tokens": settings.max_new_tokens,
        "temperature": settings.temp,
        "top_k": settings.top_k,
        "top_p": settings.top_p,
        "min_p": settings.min_p,
        "seed": settings.seed,
        "repeat_penalty": settings.repeat_penalty,
        "repeat_last_n": settings.repeat_last_n,
        "stop": settings.stop,
        "ignore_eos": settings.ignore_eos,
    }


def stdout_writer() -> Callable[[str], None]:
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
