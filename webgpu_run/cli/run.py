"""The `webgpu-run` command: options here, the work in the modules it hands over to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..console.command import Command, OptionalValue, run
from ..errors import UsageError
from ..version import __version__
from .options import GROUPS, Settings, run_options, text_only

if TYPE_CHECKING:
    pass

INSPECT = ("summary", "ops", "tensors", "values", "size", "json")


CLOSING = """\b
Exit codes:
  0 ok · 1 unexpected · 2 usage · 3 bad or corrupt file · 4 unsupported op, dtype or version
  5 shape, limit or context overflow · 6 no adapter, device lost, out of memory
  7 a numeric check failed · 130 interrupted

\b
Every option has a variable: WEBGPU_RUN_DEVICE=cpu, or WEBGPU_RUN_STOP with a text a line.
Completion by the shell: eval "$(_WEBGPU_RUN_COMPLETE=bash_source webgpu-run)"; also zsh_source, fish_source."""


@click.command(
    cls=Command, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}, epilog=CLOSING
)
@click.argument("model", required=False, metavar="[MODEL.pte]")
@click.option("--data", multiple=True, metavar="FILE.ptd", help="External weights of the model; repeatable.")
@click.option(
    "--device", metavar="WHICH", help="Adapter: an index, part of its name, cpu, gpu, vulkan, metal or d3d12."
)
@click.option("--list-devices", is_flag=True, help="List the adapters, best first.")
@click.option("--doctor", is_flag=True, help="Say what this machine has, what it lacks and how to get it.")
@click.option(
    "--inspect", cls=OptionalValue, words=INSPECT, metavar="[VIEW]", help=f"Look inside: {', '.join(INSPECT)}."
)
@run_options
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@click.option("-v", "--verbose", count=True, help="More on stderr.")
@click.option("--debug", is_flag=True, help="A traceback with every error.")
@click.version_option(__version__, "--version", message="%(prog)s %(version)s")
def command(
    model: str | None,
    data: tuple[str, ...],
    device: str | None,
    list_devices: bool,
    doctor: bool,
    inspect: str | None,
    quiet: bool,
    verbose: int,
    debug: bool,
    isolate: bool,
    **options: Any,
) -> int | None:
    """Run an ExecuTorch .pte model on any GPU, through WebGPU.

    Without a model the bundled demo model is used. Text goes to stdout, all else to stderr.

    \b
    Examples:
      webgpu-run --prompt "Once upon a time" -n 256       the bundled model tells a tale
      webgpu-run model.pte --chat                         talk with yours
      webgpu-run model.pte < story.txt > more.txt         the prompt may be piped
      webgpu-run model.pte --input x.npy --output out     any other model
      webgpu-run model.pte --inspect                      what is in the file, without a GPU
      webgpu-run model.pte --prompt hi --trace-resize     what changed shape in each call
    """
    if list_devices:
        from .devices_view import show_devices

        return show_devices(device)
    if doctor:
        from ..runtime.open import open_program
        from .doctor import show_doctor

        return show_doctor(device, open_program(model, data) if model else None)
    if isolate:
        from ..console.isolation import is_child, run_child

        if not is_child():
            return run_child(sys.argv[1:])
    from ..runtime.open import open_program

    program = open_program(model, data)
    if inspect:
        from ..ops.limits import Limits
        from .inspect_view import show

        show(program, inspect, Limits(kv=options["kv"]))
        return None
    from ..runtime.support import check_method

    check_method(program.method(options["method"]))
    if options["trace_resize"] == "json" and not quiet:
        # Each line on stderr is JSON then, so that programs can read it.
        quiet, options["stats"] = True, "json" if options["stats"] == "line" else options["stats"]
    settings = Settings(
        model=program.path, bundled=not model, data=data, device=device, quiet=quiet, verbose=verbose, **options
    )
    if settings.input or settings.output:
        if text := text_only(click.get_current_context()):
            raise UsageError(f"{' and '.join(text)} can't be with --input or --output, which are not for text")
        from .forward import forward

        return forward(program, settings)
    from .generate import generate

    return generate(program, settings)


command.groups = GROUPS


def main() -> NoReturn:
    """The console script."""
    run(command, "webgpu-run")


if __name__ == "__main__":
    main()
