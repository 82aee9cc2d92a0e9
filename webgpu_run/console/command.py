"""Click commands with our conventions: options with an optional value, one error line, documented exit codes."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from ..errors import RunError
from .early import INTERRUPTED, exit_on_interrupt
from .terminal import abandon_stdout, one_line, prepare_streams

_FULL = (errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC))


class OptionalValue(click.Option):
    """An option that may be followed by one of `words`. Any other word is left to be the next argument."""

    def __init__(self, *args: Any, words: Sequence[str], **kwargs: Any) -> None:
        self.words = tuple(words)
        settings = {"is_flag": False, "flag_value": self.words[0], "type": click.Choice(self.words), **kwargs}
        super().__init__(*args, **settings)

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """The variable may also be a yes or a no, as for a flag."""
        value = super().value_from_envvar(ctx)
        word = value.strip().lower() if isinstance(value, str) else ""
        if word in ("1", "true", "yes", "on"):
            return self.words[0]
        return None if word in ("0", "false", "no", "off") else value


class FileName(click.types.StringParamType):
    """A text that shells complete as the name of a file."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Leave it to the shell."""
        return [CompletionItem(incomplete, type="file")]


class Command(click.Command):
    """A command that supports `OptionalValue` and lists its options in sections."""

    groups: Mapping[str, Sequence[str]] = {}  # title -> option names; the last section also lists the unnamed options

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            # The placeholder of an option that takes a file is FILE, PATH, DIR, or has an ending.
            if param.type is click.STRING and re.search(r"FILE|PATH|DIR|\.[a-z]", param.metavar or ""):
                param.type = FileName()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
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
        """Rewrite `--option word` as `--option=word` for every OptionalValue before click parses the arguments."""
        options = {name: param for param in self.params if isinstance(param, OptionalValue) for name in param.opts}
        joined: list[str] = []
        indices = iter(range(len(args)))
        for i in indices:
            option = options.get(args[i])
            if args[i] == "--":
                joined += args[i:]
                break
            if option is None:
                joined.append(args[i])
            elif i + 1 < len(args) and args[i + 1] in option.words:
                joined.append(f"{args[i]}={args[i + 1]}")
                next(indices)
            else:
                self._refuse_unknown_word(ctx, option, *args[i : i + 2])
                joined.append(f"{args[i]}={option.flag_value}")
        return super().parse_args(ctx, joined)

    def _refuse_unknown_word(self, ctx: click.Context, option: OptionalValue, flag: str, following: str = "") -> None:
        """Refuse a plain word after an option that is neither one of its words nor a file."""
        if following.isalnum() and not os.path.exists(following):
            import difflib  # takes 8 ms

            near = difflib.get_close_matches(following, option.words, 1)
            more = f", did you mean {near[0]}?" if near else f": {', '.join(option.words)}"
            raise click.UsageError(f"{flag}: {following!r} is no file and none of its words{more}", ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A closed stdout becomes ClosedPipe, because click treats it like any other OSError."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            raise ClosedPipe from None
        return result


_unfinished: list[BaseException] = []  # see `_held`


class ClosedPipe(Exception):  # noqa: N818
    """The reader of our stdout has gone, as in `webgpu-run ... | head -1`."""


def run(command: click.Command, name: str, args: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit. Every error becomes one line on stderr and an exit code."""
    prepare_streams()
    args = sys.argv[1:] if args is None else list(args)
    prefix = name.upper().replace("-", "_")
    debug = "--debug" in args or os.environ.get(f"{prefix}_DEBUG", "") not in ("", "0")
    code = 0
    if f"_{prefix}_COMPLETE" in os.environ:
        from . import completion  # noqa: F401
    try:
        if signal.getsignal(signal.SIGINT) is exit_on_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _interrupt_again
        result = _held(
            lambda: command.main(list(args), prog_name=name, standalone_mode=False, auto_envvar_prefix=prefix)
        )
        code = result if isinstance(result, int) else 0
        sys.stdout.flush()
    except (ClosedPipe, BrokenPipeError):
        abandon_stdout()
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else name
        code = _report(name, error.format_message(), f"see {path} --help", error.exit_code)
    except RunError as error:
        code = _report(name, str(error), error.hint, error.exit_code, debug)
    except MemoryError:
        code = _report(name, "out of memory", None, 6, debug)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            code = _report(name, f"cannot write: {str(error.strerror).lower()} (stdout)", None, 1, debug)
            abandon_stdout()
        else:
            hint = None if debug else "this is a fault of ours; --debug shows where"
            code = _report(name, f"unexpected {type(error).__name__}: {error}", hint, 1, debug)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C must not interrupt the exit
    sys.exit(code)


def _interrupt_again(ignored: Any) -> None:
    """Repeat a Ctrl-C that came while Python was freeing an object, where an exception is printed and forgotten."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        import _thread
        import threading

        def interrupt() -> None:
            if hasattr(signal, "pthread_kill"):  # which also ends a wait of the main thread
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            else:
                _thread.interrupt_main()

        threading.Timer(0.01, interrupt).start()
    else:
        sys.__unraisablehook__(ignored)


def _held(main: Callable[[], Any]) -> Any:
    """Call a function and keep what it raises. The frames of an exception own the device: if they were freed while the
    driver still computes or compiles, releasing the device would crash the process.
    """
    try:
        return main()
    except BaseException as error:
        _unfinished.append(error)
        raise


def end_process_after(main: Callable[[], None]) -> NoReturn:
    """End the process as soon as a command has ended. The driver may still be computing or compiling, and if its
    library is taken down meanwhile, as a normal exit does, the process crashes or hangs.
    """
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else 1)


def _report(name: str, message: str, hint: str | None, code: int, debug: bool = False) -> int:
    """Print the error line and the hint; returns the exit code."""
    if debug:
        traceback.print_exc()
    try:
        click.echo(f"{name}: error: {one_line(message)}", err=True)
        if hint:
            click.echo(f"hint: {one_line(hint)}", err=True)
    except OSError:
        abandon_stdout()
    return code
