"""The `webgpu-run` command. It parses the options and calls the module that does the work."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import click

from ..console.command import Command, OptionalValue, run
from ..errors import UsageError
from ..version import __version__
from .options import GROUPS, PROFILES, Settings, run_options, text_only

INSPECT = ("summary", "ops", "tensors", "values", "size", "json")


CLOSING = """\b
Exit codes:
  0 ok · 1 unexpected · 2 usage · 3 bad or corrupt file · 4 unsupported op, dtype or version
  5 shape, limit or context overflow · 6 no adapter, device lost, out of memory
  7 a numeric check failed · 130 interrupted

\b
Every option has an environment variable: WEBGPU_RUN_DEVICE=cpu. WEBGPU_RUN_STOP takes one text per line.
Shell completion: eval "$(_WEBGPU_RUN_COMPLETE=bash_source webgpu-run)"; also zsh_source and fish_source."""


@click.command(
    cls=Command, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}, epilog=CLOSING
)
@click.argument("model", required=False, metavar="[MODEL.pte]")
@click.argument("words", required=False, metavar="[PROMPT]")
@click.option("-m", "--model", "model_option", metavar="MODEL.pte", help="The model, as the first argument.")
@click.option("--data", multiple=True, metavar="FILE.ptd", help="External weights of the model. Repeatable.")
@click.option(
    "--device", metavar="WHICH", help="The adapter: an index, part of its name, cpu, gpu, vulkan, metal or d3d12."
)
@click.option("--list-devices", is_flag=True, help="List the adapters, best first.")
@click.option("--doctor", is_flag=True, help="Check this machine: adapter, features, limits, and what to install.")
@click.option(
    "--inspect",
    cls=OptionalValue,
    words=INSPECT,
    metavar="[VIEW]",
    help=f"Show what is in the file. Views: {', '.join(INSPECT)}.",
)
@click.option(
    "--kernels",
    metavar="OUT.jsonl",
    help="Write the shader modules that the model uses, one JSON object per line. - is stdout. Needs no GPU.",
)
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    metavar="NAME",
    help=f"With --kernels: the machine to plan for, gpu by default. One of {', '.join(PROFILES)}.",
)
@run_options
@click.option("-q", "--quiet", is_flag=True, help="Print nothing on stderr but errors.")
@click.option("-v", "--verbose", count=True, help="Print more on stderr: driver, kernels, KV cache.")
@click.option("--debug", is_flag=True, help="Print a traceback with every error.")
@click.version_option(__version__, "--version", message="%(prog)s %(version)s")
def command(
    model: str | None,
    words: str | None,
    model_option: str | None,
    data: tuple[str, ...],
    device: str | None,
    list_devices: bool,
    doctor: bool,
    inspect: str | None,
    kernels: str | None,
    profile: str | None,
    quiet: bool,
    verbose: int,
    debug: bool,
    isolate: bool,
    **options: Any,
) -> int | None:
    """Run an ExecuTorch .pte model on any GPU, through WebGPU.

    Without a model, the bundled demo model is used. Text goes to stdout, everything else to stderr.

    \b
    Examples:
      webgpu-run --prompt "Once upon a time" -n 256       the bundled model tells a story
      webgpu-run model.pte                                talk with a model of yours
      webgpu-run model.pte "Once upon a time"             continue a text
      webgpu-run model.pte < story.txt > more.txt         read the prompt from a pipe
      webgpu-run model.pte --prompts in.jsonl --out out.jsonl   reply to every prompt of a file
      webgpu-run model.pte --input x.npy --output out     run a model that is not for text
      webgpu-run model.pte --inspect                      show what is in the file, without a GPU
      webgpu-run model.pte --prompt hi --trace-resize     show what changed shape in each call
    """
    if model_option is not None:
        if words is not None:
            raise UsageError(f"-m names the model, and so does the first argument ({model})")
        model, words = model_option, model
    if words is not None:
        if options["prompt"] is not None:
            raise UsageError(f"--prompt and the prompt {words!r} exclude each other")
        options["prompt"] = words
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

    if profile and not kernels:
        raise UsageError("--profile is for --kernels only")
    program = open_program(model, data)
    if inspect:
        from ..ops.limits import Limits
        from .inspect_view import show

        show(program, inspect, Limits(kv="f16" if options["kv"] == "f16" else "f32"))
        return None
    from ..runtime.support import check_method

    check_method(program.method(options["method"]))
    if options["trace_resize"] == "json" and not quiet:
        # Programs read this trace, so every line on stderr must be JSON.
        quiet, options["stats"] = True, "json" if options["stats"] == "line" else options["stats"]
    settings = Settings(
        model=program.path, bundled=not model, data=data, device=device, quiet=quiet, verbose=verbose, **options
    )
    if kernels:
        from .kernels import write_kernels

        write_kernels(program, settings, kernels, profile or "gpu")
        return None
    if settings.input or settings.output:
        if text := text_only(click.get_current_context()):
            raise UsageError(f"{' and '.join(text)} cannot be used with --input or --output, which are not for text")
        from .forward import forward

        return forward(program, settings)
    if settings.prompts is not None:
        from .many import complete_file

        return complete_file(program, settings)
    if settings.out is not None:
        raise UsageError("--out is for --prompts")
    if settings.ray is not None:
        raise UsageError("--ray is for --prompts")
    from .generate import generate

    return generate(program, settings)


command.groups = GROUPS


def main() -> NoReturn:
    """The console script."""
    run(command, "webgpu-run")


if __name__ == "__main__":
    main()
