"""`--chat`: reads questions, prints replies, obeys commands such as /reset."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator

from ..console.early import INTERRUPTED
from ..console.terminal import one_line, stderr_console
from ..errors import RunError, UsageError
from ..llm.conversation import Conversation
from ..llm.session import Stopped
from .reply_printer import ReplyPrinter
from .run_report import RunReport

COMMANDS = {
    "/help": "this list",
    "/reset": "forget what was said",
    "/save FILE": "write the chat and its KV cache to a file",
    "/load FILE": "go on with a chat that was saved",
    "/exit": "end the chat, as Ctrl-D does",
}
QUOTES = '"""'
MULTILINE = (
    'A line that ends with \\ continues on the next one. """ begins and ends a message of several lines. '
    "A paste of several lines is one message."
)
CUT = {"length": "cut off after {count} tokens: -n sets the limit", "context": "cut off: the context is full"}


class _Discarded(Exception):  # noqa: N818
    """Ctrl-C while a message was typed."""


def chat(talk: Conversation, printer: ReplyPrinter, report: RunReport, first: str | None) -> int:
    """Answer questions until the input ends; returns the exit code.

    Ctrl-C ends a reply. While a question is awaited, it ends the chat.
    """
    settings, is_typed = printer.settings, sys.stdin.isatty()
    if is_typed and not settings.quiet:
        names = ", ".join(name.split()[0] for name in COMMANDS)
        printer.note(f"{names}; Ctrl-C ends a reply, Ctrl-D the chat")
    with contextlib.closing(talk.llm.template):
        for question in _questions(first, printer):
            if (is_typed or settings.turns) and (command := re.match(r"/[a-z]+(?=\s|$)", question)):
                if command[0] in ("/exit", "/quit"):
                    break
                try:
                    _obey(command[0], question[command.end() :].strip(), talk)
                except RunError as error:
                    stderr_console().print(f"webgpu-run: error: {one_line(str(error))}", soft_wrap=True)
                continue
            try:
                with printer.interrupts.deferred():
                    dropped = talk.dropped
                    reply = talk.ask(question, **printer.options)
                    if talk.dropped > dropped and not settings.quiet:
                        count = talk.dropped - dropped
                        stderr_console().print(f"the context is full: the oldest {count} messages were forgotten")
                    printer.print_reply(reply)
            except RunError as error:
                if not is_typed:
                    raise
                stderr_console().print(f"webgpu-run: error: {one_line(str(error))}", soft_wrap=True)
                continue
            except Stopped:
                if not is_typed:
                    raise
                talk.withdraw()
                printer.note("stopped: the question is forgotten")
                continue
            talk.answered(reply.text)
            printer.totals.turns += 1
            if reply.reason in CUT and not settings.quiet:
                printer.note(f"[{CUT[reply.reason].format(count=len(reply.ids))}]")
            if settings.verbose and not settings.quiet:
                printer.note(str(reply.stats))
            report.pause()
            if reply.reason == "interrupt" and not is_typed:
                return INTERRUPTED
    return 0


def _obey(command: str, file: str, talk: Conversation) -> None:
    if command == "/reset":
        talk.reset()
    elif command in ("/save", "/load"):
        if not file:
            raise UsageError(f"{command} needs the name of a file")
        (talk.save if command == "/save" else talk.load)(file)
    elif command == "/help":
        for name, meaning in COMMANDS.items():
            stderr_console().print(f"{name:11} {meaning}")
        stderr_console().print(MULTILINE)
    else:
        stderr_console().print(f"no such command: {command}; /help lists them, a space before it makes it a question")


def _questions(first: str | None, printer: ReplyPrinter) -> Iterator[str]:
    """The first question, if there is one; then what is typed, or piped: one message, or with --turns its lines."""
    if first:
        yield first
    if not sys.stdin.isatty() and not printer.settings.turns:
        if text := sys.stdin.read().strip("\n"):
            yield text
        return
    read = _line_reader(printer)
    while True:
        try:
            message = _message(read)
        except _Discarded:
            continue
        if message is None:
            return
        if message.strip():
            yield message


def _message(read: Callable[[str], str | None]) -> str | None:
    """One message, which may have several lines; None if the input has ended."""
    line = read("> ")
    if line is None or not sys.stdin.isatty():
        return line
    if line.lstrip().startswith(QUOTES):
        text = line.lstrip().removeprefix(QUOTES)
        while not text.rstrip().endswith(QUOTES):
            if (line := read(". ")) is None:
                return text
            text += f"\n{line}"
        return text.rstrip().removesuffix(QUOTES).strip("\n")
    while line.endswith("\\"):
        more = read(". ")
        line = f"{line[:-1]}\n{more or ''}"
    return line


def _line_reader(printer: ReplyPrinter) -> Callable[[str], str | None]:
    """A function that prompts for one line. Ctrl-C discards the message; at an empty line it ends the chat."""
    is_typed = sys.stdin.isatty()
    has_line_editing = is_typed and sys.stdout.isatty()
    typed_so_far: Callable[[], str] = str
    if has_line_editing:
        with contextlib.suppress(ImportError):
            import readline  # gives input() its line editing

            readline.parse_and_bind("set enable-bracketed-paste on")  # a paste of several lines is one message
            typed_so_far = readline.get_line_buffer

    def read(prompt: str) -> str | None:
        printer.progress.close()
        start_ns = time.perf_counter_ns()
        try:
            if has_line_editing:
                return input(prompt)
            if is_typed and sys.stderr.isatty():
                sys.stderr.write(prompt)
                sys.stderr.flush()
            line = sys.stdin.readline()
            return line.removesuffix("\n") if line else None
        except EOFError:
            print(file=sys.stderr)  # ends the line of the prompt
            return None
        except KeyboardInterrupt:
            print(file=sys.stderr)
            if not typed_so_far() and prompt == "> ":
                raise
            raise _Discarded from None
        finally:
            printer.totals.waited_ns += time.perf_counter_ns() - start_ns

    return read
