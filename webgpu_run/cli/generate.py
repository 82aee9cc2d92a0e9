"""`webgpu-run MODEL --prompt ...` and `--chat`: from settings to text on stdout."""

from __future__ import annotations

import time

from ..console.early import INTERRUPTED
from ..console.interrupt import Interrupts
from ..console.progress import Progress
from ..console.terminal import stderr_console
from ..formats.pte import Program
from ..llm.chat import Conversation, find_template
from ..llm.session import Interface, Session
from .chat_loop import chat
from .options import Settings
from .prompt import find_prompt
from .reply_printer import ReplyPrinter
from .run_report import RunReport, check_outputs, load_model
from .run_totals import RunTotals


def generate(program: Program, settings: Settings) -> int:
    """Run a language model; returns the exit code."""
    zero_ns = time.perf_counter_ns()
    interrupts = Interrupts()
    check_outputs(settings)
    interface = Interface.of(program.method(settings.method), program.metadata)
    prompt = find_prompt(settings, interface)
    tokenizer = prompt.tokenizer
    _warn_about_sampling(settings)
    template = find_template(tokenizer, settings.template) if settings.chat and tokenizer else None
    with Progress(quiet=settings.quiet) as progress:
        model = load_model(program, settings, progress)
        report = RunReport(settings, model, zero_ns)
        session = Session(
            model,
            chunk=settings.chunk,
            timed=report.timed,
            observers=report.observers,
            progress=progress,
            guard=lambda: interrupts.limit(settings.timeout),
        )
        totals = RunTotals()
        printer = ReplyPrinter(settings, session, tokenizer, interrupts, progress, totals)
        printer.introduce()
        try:
            if template and tokenizer:
                code = chat(Conversation(session, tokenizer, template), printer, report, prompt.text)
            else:
                printer.print_reply(prompt.ids, echo=prompt.text)
                code = INTERRUPTED if totals.reason == "interrupt" else 0
        except KeyboardInterrupt:
            totals.reason, code = "interrupt", INTERRUPTED
            printer.end_line()
        progress.close()
        totals.calls = session.calls
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
