"""How a command meets its terminal: a console for the answer, one for the rest, errors as one line and an exit code."""

from __future__ import annotations

import difflib
import os
import re
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from ..errors import RunError

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130
PIPE_WIDTH = 10_000  # a folded line of a table is hard to search, and nothing is known about the width of a pipe


class _Pipe:
    """A stream that is no terminal: tables have no spaces at the ends of their lines there."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(re.sub(" +(?=\n)", "", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def answer() -> Console:
    """The console of stdout."""
    from rich.console import Console

    class Answer(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Answer(markup=False, highlight=False, emoji=False, **_place(sys.stdout))


def aside() -> Console:
    """The console of stderr: everything that is not the answer."""
    from rich.console import Console

    return Console(stderr=True, markup=False, highlight=False, emoji=False, **_place(sys.stderr))


def _place(stream: TextIO) -> dict[str, Any]:
    """File and width of a console for this stream."""
    if stream.isatty():
        return {}
    return {"file": _Pipe(stream), "width": None if os.environ.get("COLUMNS") else PIPE_WIDTH}


class OptionalValue(click.Option):
    """A flag that may carry one of some words; a word it does not know is left to be the next argument."""

    def __init__(self, *args: Any, words: Sequence[str], **kwargs: Any) -> None:
        self.words = tuple(words)
        settings = {"is_flag": False, "flag_value": self.words[0], "type": click.Choice(self.words), **kwargs}
        super().__init__(*args, **settings)

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """A variable may say yes or no, as for any flag."""
        value = super().value_from_envvar(ctx)
        said = value.strip().lower() if isinstance(value, str) else ""
        if said in ("1", "true", "yes", "on"):
            return self.words[0]
        return None if said in ("0", "false", "no", "off") else value


class Command(click.Command):
    """A command whose `OptionalValue` options take the word after them only if it is theirs; its help has sections."""

    groups: Mapping[str, Sequence[str]] = {}  # title -> names of options; the last title has all others too

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options by section."""
        if not self.groups:
            return super().format_options(ctx, formatter)
        titles = {name: title for title, names in self.groups.items() for name in names}
        *_, last = self.groups
        for title in self.groups:
            options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
            records = [p.get_help_record(ctx) for p in options if titles.get(p.name or "", last) == title]
            with formatter.section(title):
                formatter.write_dl([record for record in records if record])
        return None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Joins such options with their values before click sees them."""
        options = {name: param for param in self.params if isinstance(param, OptionalValue) for name in param.opts}
        joined: list[str] = []
        rest = iter(range(len(args)))
        for i in rest:
            option = options.get(args[i])
            if args[i] == "--":
                joined += args[i:]
                break
            if option is None:
                joined.append(args[i])
            elif i + 1 < len(args) and args[i + 1] in option.words:
                joined.append(f"{args[i]}={args[i + 1]}")
                next(rest)
            else:
                self._not_a_word(ctx, option, *args[i : i + 2])
                joined.append(f"{args[i]}={option.flag_value}")
        return super().parse_args(ctx, joined)

    def _not_a_word(self, ctx: click.Context, option: OptionalValue, flag: str, after: str = "") -> None:
        """Refuses what follows an option where it can be no other argument either: a plain word that is no file."""
        if after.isalnum() and not os.path.exists(after):
            near = difflib.get_close_matches(after, option.words, 1)
            more = f", did you mean {near[0]}?" if near else f": {', '.join(option.words)}"
            raise click.UsageError(f"{flag}: {after!r} is no file and none of its words{more}", ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; a reader that went away is told apart from other failures, which click does not do."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            raise ClosedPipe from None
        return result


class ClosedPipe(Exception):  # noqa: N818
    """Nobody reads our stdout any more."""


def run(command: click.Command, name: str, args: Sequence[str] | None = None) -> NoReturn:
    """Runs a command to its exit code; whatever goes wrong is one line on stderr."""
    _open_streams()
    args = sys.argv[1:] if args is None else list(args)
    prefix = name.upper().replace("-", "_")
    debug = "--debug" in args or os.environ.get(f"{prefix}_DEBUG", "") not in ("", "0")
    code = 0
    try:
        result = command.main(list(args), prog_name=name, standalone_mode=False, auto_envvar_prefix=prefix)
        code = result if isinstance(result, int) else 0
    except ClosedPipe:
        _abandon_stdout()
    except (KeyboardInterrupt, click.Abort):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # we are leaving already
        code = INTERRUPTED
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else name
        code = _tell(name, error.format_message(), f"see {path} --help", error.exit_code)
    except RunError as error:
        code = _tell(name, str(error), error.hint, error.exit_code, debug)
    except MemoryError:
        code = _tell(name, "out of memory", None, 6, debug)
    except Exception as error:
        hint = None if debug else "this is a fault of ours; --debug shows where"
        code = _tell(name, f"unexpected {type(error).__name__}: {error}", hint, 1, debug)
    sys.exit(code)


def plural(count: int, what: str) -> str:
    """Such as 1 round, 2 rounds."""
    return f"{count} {what}{'s' * (count != 1)}"


def _open_streams() -> None:
    """Opens standard streams that were closed from the start (2>&-): the next file would get their number otherwise,
    and what a driver prints would be written into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def _tell(name: str, message: str, hint: str | None, code: int, debug: bool = False) -> int:
    if debug:
        traceback.print_exc()
    try:
        click.echo(f"{name}: error: {one_line(message)}", err=True)
        if hint:
            click.echo(f"hint: {one_line(hint)}", err=True)
    except OSError:
        _abandon_stdout()
    return code


def one_line(text: str) -> str:
    """The text with line breaks and control characters made harmless."""
    words = " ".join(text.split())
    safe = "".join(c if c.isprintable() else "�" for c in words)
    return safe.encode("utf-8", "replace").decode()


def _abandon_stdout() -> None:
    # Python flushes stdout once more at exit, and would complain about the closed pipe there.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
