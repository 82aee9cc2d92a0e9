"""`webgpu-run MODEL --prompt ...` and `--chat`: from settings to text on stdout."""

from __future__ import annotations

import time

from ..console.early import INTERRUPTED
from ..console.interrupt import Interrupts
from ..console.progress import Progress
from ..console.terminal import stderr_console
from ..formats.digest import digest_ahead
from ..formats.pte import Program
from ..llm.conversation import Conversation
from ..llm.language_model import LLM
from ..llm.lookup import LookupDecoder
from ..llm.session import Interface, Session
from .chat_loop import chat
from .options import Settings
from .prompt import find_prompt
from .prompt_cache import PromptCache
from .reply_printer import ReplyPrinter
from .run_report import LoadClock, RunReport, check_outputs, load_model
from .run_totals import RunTotals


def generate(program: Program, settings: Settings) -> int:
    """Run a language model; returns the exit code."""
    zero_ns = time.perf_counter_ns()
    interrupts = Interrupts()
    check_outputs(settings)
    interface = Interface.of(program.method(settings.method), program.metadata)
    clock = LoadClock(zero_ns)
    prompt = find_prompt(settings, interface)
    clock.end("prompt and tokenizer")
    _warn_about_sampling(settings)
    totals = RunTotals(zero_ns)
    digest_of = digest_ahead(program) if settings.prompt_cache else None
    with Progress(quiet=settings.quiet) as progress:
        model = load_model(program, settings, progress, clock)
        totals.load_ns = clock.total_ns
        report = RunReport(settings, model, clock)
        session = Session(
            model,
            chunk=settings.chunk,
            timed=report.timed,
            observers=report.observers,
            progress=progress if progress.is_shown else None,
            guard=lambda: interrupts.limit(settings.timeout),
            interrupted=lambda: interrupts.requested,
            lookup=settings.lookup,
        )
        llm = LLM.of(session, prompt.tokenizer, prompt.template, digest_of)
        printer = ReplyPrinter(settings, llm, interrupts, progress, totals)
        printer.introduce()
        cache = PromptCache(llm, settings.prompt_cache, printer.warn) if settings.prompt_cache else None
        try:
            if prompt.template:
                code = chat(Conversation(llm, settings.system), printer, report, prompt.text)
                if cache:
                    cache.save_chat()
            else:
                prefix = cache.prefix(prompt.ids) if cache else 0
                printer.print_reply(llm.generate(prompt.ids, **printer.options, prefix=prefix), echo=prompt.text)
                if cache:
                    cache.save()
                code = INTERRUPTED if totals.reason == "interrupt" else 0
        except KeyboardInterrupt:
            totals.reason, code = "interrupt", INTERRUPTED
            printer.end_line()
        progress.close()
        if settings.verbose and isinstance(session.decoder, LookupDecoder):
            printer.note(str(session.decoder.gate))
        report.finish(totals)
    return code


def _warn_about_sampling(settings: Settings) -> None:
    """Warn about sampling options that have no effect because the temperature is 0."""
    idle = {"--top-k": settings.top_k, "--top-p": settings.top_p < 1, "--min-p": settings.min_p}
    idle["--seed"] = settings.seed is not None
    given = [name for name, used in idle.items() if used]
    if given and not settings.temp and not settings.quiet:
        text = f"warning: {', '.join(given)} without --temp above 0: the likeliest token is taken"
        stderr_console().print(text, style="yellow", soft_wrap=True)
