"""`webgpu-run MODEL --prompt ...` and `--chat`: from settings to text on stdout."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ..console.command import INTERRUPTED
from ..console.interrupt import Interrupts
from ..console.progress import Progress
from ..console.terminal import stderr_console
from ..errors import RunError, UsageError
from ..formats.pte import Program
from ..llm import tokenizer as tokenizers
from ..llm.chat import Conversation, find_template
from ..llm.sampling import Sampler, random_seed
from ..llm.session import Interface, Reply, Session, Stopped
from ..llm.tokenizer import StopStrings, TextStream, Tokenizer
from .options import Settings
from .run_report import Reports, Run, check_files, loaded

DEMO = "Once upon a time"
COMMANDS = {"/help": "this list", "/reset": "forget what was said", "/exit": "end the chat, as Ctrl-D does"}


def generate(program: Program, settings: Settings) -> int:
    """Run a language model; the exit code."""
    zero_ns = time.perf_counter_ns()
    interrupts = Interrupts()
    check_files(settings)
    method = program.method(settings.method)
    interface = Interface.of(method, program.metadata)
    tokenizer, prompt, ids = _prompt(settings, interface)
    _check_sampling(settings)
    template = find_template(tokenizer, settings.template) if settings.chat and tokenizer else None
    with Progress(quiet=settings.quiet) as progress:
        model = loaded(program, settings, progress)
        reports = Reports(settings, model, zero_ns)
        session = Session(
            model,
            chunk=settings.chunk,
            timed=reports.timed,
            observers=reports.observers,
            progress=progress,
            guard=lambda: interrupts.limit(settings.timeout),
        )
        run = Run()
        speaker = Speaker(settings, session, tokenizer, interrupts, progress, run)
        speaker.introduce()
        try:
            if template and tokenizer:
                code = _converse(Conversation(session, tokenizer, template), speaker, reports, prompt)
            else:
                speaker.say(ids, echo=prompt)
                code = INTERRUPTED if run.reason == "interrupt" else 0
        except KeyboardInterrupt:
            run.reason, code = "interrupt", INTERRUPTED
            speaker.end_line()
        progress.close()
        run.calls = session.calls
        reports.finish(run)
    return code


class Speaker:
    """Prints replies as they are made."""

    def __init__(
        self,
        settings: Settings,
        session: Session,
        tokenizer: Tokenizer | None,
        interrupts: Interrupts,
        progress: Progress,
        run: Run,
    ) -> None:
        self.settings, self.session, self.tokenizer = settings, session, tokenizer
        self.interrupts, self.progress, self.run = interrupts, progress, run
        drawn = settings.temp > 0 and settings.top_k != 1
        run.seed = settings.seed if settings.seed is not None else random_seed() if drawn else None
        self.sampler = Sampler(settings.temp, settings.top_k, settings.top_p, settings.min_p, run.seed or 0)
        self.eos: frozenset[int] = frozenset()
        if not settings.ignore_eos:
            self.eos = metadata_eos(session.model.metadata) | (tokenizer.eos_ids() if tokenizer else frozenset())
        self._prefilling = False
        interrupts.on_request = self._stopping
        self._write = _writer()
        self._open = False  # a line has been begun and not ended

    def introduce(self) -> None:
        """The device, and a seed nobody chose."""
        quiet, model = self.settings.quiet, self.session.model
        device = model.device
        if not quiet and (self.settings.verbose or sys.stderr.isatty()):
            more = f", {device.adapter.driver}, kernels: {device.limits.profile.name} ({device.tuned})"
            more += f", KV cache {model.cache_nbytes / 1e6:,.1f} MB ({self.settings.kv})"
            self.aside(device.name + more * bool(self.settings.verbose))
        if self.run.seed is not None and self.settings.seed is None and not quiet:
            self.aside(f"seed {self.run.seed}")

    def say(self, prompt: list[int], echo: str | None = None) -> tuple[Reply, str]:
        """Prefill these tokens, print the reply (on a terminal after `echo`); the reply and its text."""
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
        self._prefilling = True
        with self.interrupts.deferred():
            for token in reply:
                self._prefilling = False
                if self.run.ttft_ns is None:
                    self.run.ttft_ns = time.perf_counter_ns() - start
                if len(reply.ids) == 1:
                    self._before(echo)
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
        self.run.generated += len(reply.ids)
        self.run.reason = reply.reason
        return reply, "".join(text)

    def _before(self, echo: str | None) -> None:
        """Prefill is over: the bar goes, and a terminal shows the text that is gone on from."""
        self.progress.close()
        if echo and not self.settings.quiet and sys.stderr.isatty() and sys.stdout.isatty():
            stderr_console().print(echo, style="dim", end="", soft_wrap=True)

    def end_line(self) -> None:
        """The text is over."""
        if self._open:
            self._print("\n")

    def _print(self, text: str) -> None:
        if text:
            self._write(text)
            self._open = not text.endswith("\n")

    def aside(self, text: str) -> None:
        """One line that is not the text."""
        self.progress.close()
        stderr_console().print(text, style="dim", soft_wrap=True)

    def _stopping(self) -> None:
        """Told from a signal handler, so neither Python's stream nor rich is used; the line takes the bar's place."""
        if self._prefilling and self.progress.is_shown:
            os.write(2, b"\rstopping after this chunk; again to stop now\x1b[K\n")


def _converse(talk: Conversation, speaker: Speaker, reports: Reports, first: str | None) -> int:
    """Turns until the input ends; Ctrl-C ends a reply, or the conversation where a question is awaited."""
    settings, typed = speaker.settings, sys.stdin.isatty()
    if typed and not settings.quiet:
        speaker.aside(f"{', '.join(COMMANDS)}; Ctrl-C ends a reply, Ctrl-D the chat")
    if settings.system:
        talk.messages.append({"role": "system", "content": settings.system})
    with contextlib.closing(talk.template):
        for question in _questions(first, speaker):
            if command := re.match(r"/[a-z]+(?=\s|$)", question):
                if command[0] in ("/exit", "/quit"):
                    break
                _obey(command[0], talk)
                continue
            try:
                with speaker.interrupts.deferred():
                    forgot = talk.dropped
                    ids = talk.ask(question)
                    if talk.dropped > forgot and not settings.quiet:
                        count = talk.dropped - forgot
                        stderr_console().print(f"the context is full: the oldest {count} messages were forgotten")
                    reply, text = speaker.say(ids)
            except RunError as error:
                if not typed:
                    raise
                stderr_console().print(f"webgpu-run: error: {error}")
                continue
            except Stopped:
                if not typed:
                    raise
                talk.withdraw()
                speaker.aside("stopped: the question is forgotten")
                continue
            talk.answered(reply, text)
            speaker.run.turns += 1
            reports.pause()
            if reply.reason == "interrupt" and not typed:
                return INTERRUPTED
    return 0


def _obey(command: str, talk: Conversation) -> None:
    if command == "/reset":
        talk.reset()
    elif command == "/help":
        for name, what in COMMANDS.items():
            stderr_console().print(f"{name:7} {what}")
    else:
        stderr_console().print(f"no such command: {command}; /help lists them, a space before it makes it a question")


def _questions(first: str | None, speaker: Speaker) -> Iterator[str]:
    if first:
        yield first
    typed = sys.stdin.isatty()
    both = typed and sys.stdout.isatty()
    begun: Callable[[], str] = str  # what is typed so far
    if both:
        with contextlib.suppress(ImportError):
            import readline  # gives input() its line editing

            begun = readline.get_line_buffer
    while True:
        speaker.progress.close()
        try:
            if both:
                line = input("> ")
            else:
                if typed and sys.stderr.isatty():
                    sys.stderr.write("> ")
                    sys.stderr.flush()
                line = sys.stdin.readline()
                if not line:
                    return
        except EOFError:
            print(file=sys.stderr)  # the terminal's line is still open
            return
        except KeyboardInterrupt:
            print(file=sys.stderr)
            if not begun():
                raise
            continue
        if line.strip():
            yield line.rstrip("\n")


def metadata_eos(metadata: Mapping[str, object]) -> frozenset[int]:
    """End-of-text ids that the file names."""
    found: set[int] = set()
    for name in ("get_eos_ids", "get_eos_id"):
        value = metadata.get(name)
        found |= {i for i in (value if isinstance(value, list) else [value]) if isinstance(i, int)}
    return frozenset(found)


def _prompt(settings: Settings, interface: Interface) -> tuple[Tokenizer | None, str | None, list[int]]:
    """Tokenizer, text and ids of what to start from, checked as far as can be without a device."""
    given = [n for n in ("prompt", "prompt_file", "prompt_ids") if getattr(settings, n) is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join('--' + n.replace('_', '-') for n in given)} exclude each other")
    if settings.chat and settings.prompt_ids is not None:
        raise UsageError("--chat needs text, --prompt-ids gives token ids")
    if not settings.chat and (settings.system is not None or settings.template is not None):
        raise UsageError("--system and --template are for --chat")
    if settings.prompt_ids is not None:
        ids = list(settings.prompt_ids)
        if not ids:
            raise UsageError("--prompt-ids is empty")
        interface.check(ids)
        tokenizer = None
        try:
            tokenizer = tokenizers.find(settings.model, settings.tokenizer)
        except RunError:
            if settings.tokenizer:
                raise
        return tokenizer, None, ids
    text = read_prompt(settings)
    tokenizer = tokenizers.find(settings.model, settings.tokenizer)
    _compare_sizes(tokenizer, interface, settings)
    if settings.chat:
        return tokenizer, text, []
    ids = tokenizer.encode_prompt(text or "")
    if not ids:
        raise UsageError("the prompt is empty")
    interface.check(ids)
    return tokenizer, text, ids


def read_prompt(settings: Settings) -> str | None:
    """The prompt that flags or a piped stdin give; without any, the demo's (in a chat none: stdin is the talk)."""
    text: str | None
    if settings.prompt_file is not None:
        try:
            text = Path(settings.prompt_file).read_bytes().decode("utf-8", "replace").removesuffix("\n")
        except OSError as error:
            raise UsageError(
                f"cannot read the prompt: {str(error.strerror).lower()} ({settings.prompt_file})"
            ) from None
    elif settings.prompt == "-":
        text = _stdin()
    elif settings.prompt is not None:
        text = settings.prompt
    elif settings.chat:
        return None
    elif _piped():
        text = _stdin()
    else:
        if not settings.bundled and not settings.quiet:
            stderr_console().print(f"no --prompt given: {DEMO!r} is used", style="dim", soft_wrap=True)
        text = DEMO
    if not text:
        raise UsageError("the prompt is empty")
    return text.encode("utf-8", "replace").decode()  # an argument that was not UTF-8 holds lone surrogates


def _stdin() -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace").removesuffix("\n")


def _piped() -> bool:
    """Stdin is a pipe or a file: not a terminal, not /dev/null, not closed."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _check_sampling(settings: Settings) -> None:
    """Warn where options for drawing are given, and nothing is drawn."""
    idle = {"--top-k": settings.top_k, "--top-p": settings.top_p < 1, "--min-p": settings.min_p}
    idle["--seed"] = settings.seed is not None
    given = [name for name, used in idle.items() if used]
    if given and not settings.temp and not settings.quiet:
        text = f"warning: {', '.join(given)} without --temp above 0: the likeliest token is taken"
        stderr_console().print(text, style="yellow", soft_wrap=True)


def _compare_sizes(tokenizer: Tokenizer, interface: Interface, settings: Settings) -> None:
    """Warn where the tokenizer can't be the model's; models may have some unused rows at their end."""
    spare = max(64, tokenizer.size // 100)
    if not settings.quiet and not interface.vocab - spare <= tokenizer.size <= interface.vocab:
        sizes = f"{tokenizer.size:,} tokens, the model {interface.vocab:,}"
        stderr_console().print(f"warning: the tokenizer has {sizes} ({tokenizer.path})", style="yellow", soft_wrap=True)


def _writer() -> Callable[[str], None]:
    """Writes to stdout at once, whatever its encoding."""
    out = sys.stdout
    with contextlib.suppress(AttributeError):
        out.reconfigure(errors="replace")  # type: ignore[union-attr]

    def write(text: str) -> None:
        try:
            out.write(text)
            out.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise RunError(f"cannot write: {str(error.strerror).lower()} (stdout)") from None

    return write
