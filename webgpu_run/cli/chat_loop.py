"""`--chat`: reads questions, prints replies, obeys commands such as /reset."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator

from ..console.early import INTERRUPTED
from ..console.terminal import one_line, stderr_console
from ..errors import RunError
from ..llm.chat import Conversation
from ..llm.session import Stopped
from .reply_printer import ReplyPrinter
from .run_report import RunReport

COMMANDS = {"/help": "this list", "/reset": "forget what was said", "/exit": "end the chat, as Ctrl-D does"}


def chat(talk: Conversation, printer: ReplyPrinter, report: RunReport, first: str | None) -> int:
    """Answer questions until the input ends; returns the exit code.

    Ctrl-C ends a reply. While a question is awaited, it ends the chat.
    """
    settings, is_typed = printer.settings, sys.stdin.isatty()
    if is_typed and not settings.quiet:
        printer.note(f"{', '.join(COMMANDS)}; Ctrl-C ends a reply, Ctrl-D the chat")
    if settings.system:
        talk.messages.append({"role": "system", "content": settings.system})
    with contextlib.closing(talk.template):
        for question in _questions(first, printer):
            if command := re.match(r"/[a-z]+(?=\s|$)", question):
                if command[0] in ("/exit", "/quit"):
                    break
                _obey(command[0], talk)
                continue
            try:
                with printer.interrupts.deferred():
                    dropped = talk.dropped
                    ids = talk.ask(question)
                    if talk.dropped > dropped and not settings.quiet:
                        count = talk.dropped - dropped
                        stderr_console().print(f"the context is full: the oldest {count} messages were forgotten")
                    reply, text = printer.print_reply(ids)
            except RunError as error:
                if not is_typed:
                    raise
                stderr_console().print(f"webgpu-run: error: {one_line(str(error))}")
                continue
            except Stopped:
                if not is_typed:
                    raise
                talk.withdraw()
                printer.note("stopped: the question is forgotten")
                continue
            talk.answered(reply, text)
            printer.totals.turns += 1
            report.pause()
            if reply.reason == "interrupt" and not is_typed:
                return INTERRUPTED
    return 0


def _obey(command: str, talk: Conversation) -> None:
    if command == "/reset":
        talk.reset()
    elif command == "/help":
        for name, meaning in COMMANDS.items():
            stderr_console().print(f"{name:7} {meaning}")
    else:
        stderr_console().print(f"no such command: {command}; /help lists them, a space before it makes it a question")


def _questions(first: str | None, printer: ReplyPrinter) -> Iterator[str]:
    """The first question, if there is one, then the lines of stdin that are not blank."""
    if first:
        yield first
    is_typed = sys.stdin.isatty()
    has_line_editing = is_typed and sys.stdout.isatty()
    typed_so_far: Callable[[], str] = str
    if has_line_editing:
        with contextlib.suppress(ImportError):
            import readline  # gives input() its line editing

            typed_so_far = readline.get_line_buffer
    while True:
        printer.progress.close()
        try:
            if has_line_editing:
                line = input("> ")
            else:
                if is_typed and sys.stderr.isatty():
                    sys.stderr.write("> ")
                    sys.stderr.flush()
                line = sys.stdin.readline()
                if not line:
                    return
        except EOFError:
            print(file=sys.stderr)  # ends the line of the prompt
            return
        except KeyboardInterrupt:
            print(file=sys.stderr)
            if not typed_so_far():
                raise
            continue
        if line.strip():
            yield line.rstrip("\n")
