"""The `webgpu-bench` command: its options. The work is in the modules of `bench`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..console.command import Command, run
from ..errors import UsageError
from ..version import __version__
from .lengths import parse

if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:
    _Type = click.ParamType  # generic in click 8.2 and later only

FORMATS = ("table", "md", "csv", "json", "jsonl")


class Lengths(_Type):
    """A list of lengths; `none` is the empty list."""

    name = "lengths"

    def __init__(self, least: int = 1) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return () if value == "none" else parse(str(value), self.least)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Percent(_Type):
    """A percentage: 5% and 5 are 0.05."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            share = float(str(value).strip().removesuffix("%")) / 100
        except ValueError:
            share = -1.0
        if not 0 <= share < 10:
            self.fail(f"{value!r} is not a percentage such as 5%", param, ctx)
        return share


class Front(Command):
    """The benchmark of a model, unless the first argument names another command."""

    others: dict[str, click.Command] = {}  # noqa: RUF012

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> click.Context:
        first = args[0] if args else ""
        other = self.others.get(first)
        if other:
            return other.make_context(f"{info_name} {first}", args[1:], parent, **extra)
        near = difflib.get_close_matches(first, self.others, 1)
        if near and not os.path.exists(first):
            raise UsageError(f"no such command or file ({first})", hint=f"did you mean {info_name} {near[0]}?")
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)


def _output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that all commands have."""
    for option in (
        click.option("--debug", is_flag=True, help="A traceback with every error."),
        click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors."),
        click.option(
            "--out",
            metavar="FILE",
            help="Also write this file, in the format of its ending (.jsonl, .json, .csv, .md) or of -o.",
        ),
        click.option(
            "-o", "--output", "form", type=click.Choice(FORMATS), help="The format of stdout: by default a table."
        ),
    ):
        command = option(command)
    return command


_DEVICE = click.option(
    "--device", metavar="WHICH", help="Adapter: an index, part of its name, cpu, gpu, vulkan, metal or d3d12."
)
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.command(
    cls=Front,
    context_settings=_SETTINGS,
    epilog="""\b
Other commands (webgpu-bench COMMAND --help):
  op NAME|all     each case and route of an op: µs, GB/s, GFLOP/s, error
  op --of MODEL   the model's linears by shape and route, and the roofline
  load MODEL...   time to load and memory, by file size
  roofline        what this adapter can do at most
  compare A B     two result files; exit code 1 if B is slower

\b
Examples:
  webgpu-bench                                   the bundled model
  webgpu-bench model.pte --seq-lens 1-512*2      1, 2, 4 ... 512
  webgpu-bench model.pte -p 64 -n 32 -d 0,256    at two depths of the cache
  webgpu-bench model.pte -o md                   to paste beside llama-bench
  webgpu-bench model.pte --out a.jsonl           also write a file
  webgpu-bench model.pte --report a.html         a page with plots
  webgpu-bench compare a.jsonl b.jsonl --fail-over 5%

\b
How to read a row:
  pp512           prefill of 512 tokens; @ d256: with 256 tokens in the cache
  tg32            32 tokens generated one by one, chosen on the device
  t/s             tokens per second, mean ± standard deviation of the rounds
  95%             half the width of the mean's 95% interval, which allows for a
                  machine that is slower for a while
  median, p90     ms per prefill, or per token
  ttft            ms to the first token of a prompt after a decode step
  host, GPU       ms on the host, and on the GPU (from separate runs)
  attn            the part of the GPU time that reads the KV cache
  % roof          share of the speed that memory and arithmetic would allow""",
)
@click.argument("model", required=False, metavar="[MODEL.pte]")
@click.option(
    "-p", "--seq-lens", type=Lengths(), metavar="LIST",
    help="Prompt lengths: 1,64,512 by default; also a-b+s, a-b*m, none.",
)  # fmt: skip
@click.option("-n", "--decode", type=Lengths(0), metavar="LIST", help="Tokens to generate: 32 by default; 0 for none.")
@click.option("-d", "--depth", type=Lengths(0), default="0", metavar="LIST", help="Tokens already in the KV cache.")
@click.option(
    "-r", "--repeat", type=click.IntRange(1, 10000), metavar="N",
    help="Rounds; each runs every test once. By default 5 to 30, as the budget allows.",
)  # fmt: skip
@click.option(
    "--budget", type=click.FloatRange(0), default=30.0, show_default=True, metavar="SECONDS",
    help="After five rounds, start no round that would end later than this.",
)  # fmt: skip
@click.option(
    "-w",
    "--warmup",
    type=click.IntRange(0, 10000),
    default=2,
    show_default=True,
    help="Runs to warm up.",
)
@click.option("--chunk", type=click.IntRange(1), metavar="N", help="Prefill at most N tokens per call.")
@click.option("--no-fuse", is_flag=True, help="Run the graph as the file has it, without fusion.")
@click.option(
    "--kv",
    type=click.Choice(("f32", "f16")),
    default="f32",
    help="Format of the KV cache; f16 halves it and changes logits by about 0.0004 of their range.",
)
@click.option("--no-tune", is_flag=True, help="Do not measure which kernels are fastest on this adapter.")
@click.option("--no-roofline", is_flag=True, help="Do not measure the adapter; no '% roof'.")
@click.option("--report", metavar="OUT.html", help="Also write a self-contained page with plots.")
@click.option("--data", multiple=True, metavar="FILE.ptd", help="External weights of the model; repeatable.")
@click.option("--method", metavar="NAME", help="The method to run; by default forward.")
@_DEVICE
@_output
@click.version_option(__version__, "--version", message="%(prog)s %(version)s")
def bench(debug: bool, **options: Any) -> int | None:
    """Measure prefill and decode of an ExecuTorch .pte model, for every length at every depth.

    Without a model, the bundled demo model is measured. A round runs every test once. On a terminal the table appears
    after the first round and is updated after each round; a pipe or file gets it at the end, or when interrupted. The
    file of --out is complete after every round. Everything else goes to stderr.
    """
    from ..bench.sweep import run_model

    return run_model(**options)


@click.command("op", cls=Command, context_settings=_SETTINGS)
@click.argument("names", nargs=-1, metavar="[NAME...|all]")
@click.option("--of", metavar="MODEL.pte", help="Measure the linears of this model, inside the model.")
@click.option(
    "-p", "--seq-lens", type=Lengths(), metavar="LIST", help="With --of: tokens per call; 1,4,16,64,256 by default."
)
@click.option("-r", "--repeat", type=click.IntRange(1, 10000), help="Measured runs: 20 by default, 10 with --of.")
@click.option("--no-roofline", is_flag=True, help="Do not measure the adapter; no '% roof'.")
@_DEVICE
@_output
def op(
    debug: bool, names: tuple[str, ...], of: str | None, seq_lens: tuple[int, ...] | None, **options: Any
) -> int | None:
    """Measure ops on their own test cases, at every live shape and on every route.

    A NAME is short (linear_q4gsw) or full (et_vk.linear_q4gsw.default). Routes for other kinds of adapters are measured
    too; the column `for` names the kind. The cases are small, so most of the time is the cost of a dispatch, which
    `webgpu-bench roofline` measures.

    With --of there is one row for each shape M×K×N of the model's linears and its route: microseconds per linear, GB/s
    and GFLOP/s of the least possible work, and the share of the nearer limit. The limits are the adapter's fastest way
    to read memory, and its multiply-adds.
    """
    if bool(names) == bool(of) or (seq_lens and not of):
        context = click.get_current_context()
        raise click.UsageError("give either the NAME of ops, or --of MODEL.pte (which may have -p)", context)
    if of:
        from ..bench.linears import run_model_ops

        return run_model_ops(of=of, seq_lens=seq_lens, **options)
    from ..bench.op import run_ops

    return run_ops(names=names, **options)


@click.command("load", cls=Command, context_settings=_SETTINGS)
@click.argument("models", nargs=-1, metavar="[MODEL.pte...]")
@click.option("-r", "--repeat", type=click.IntRange(1, 1000), default=3, show_default=True, help="Loads of each file.")
@click.option("--report", metavar="OUT.html", help="Also write a page: time and memory by file size.")
@click.option(
    "--timeout", type=click.FloatRange(0, 1e6, min_open=True), default=600.0, show_default=True, metavar="SECONDS",
    help="Give up if one load takes longer.",
)  # fmt: skip
@_DEVICE
@_output
def load(debug: bool, **options: Any) -> int | None:
    """Measure how long files take to load, and how much memory they need.

    Every load is a new process. The time starts with an open device and ends when the weights are ready on it. The
    first token also compiles kernels, unless the driver has cached them. Memory is the peak of the process, and the
    peak before the load. On a software adapter, GPU memory is part of the process.
    """
    from ..bench.load import run_load

    return run_load(**options)


@click.command("roofline", cls=Command, context_settings=_SETTINGS)
@_DEVICE
@_output
def roofline(debug: bool, **options: Any) -> int | None:
    """Measure what this adapter can do at most.

    Reads and copies by working set, multiply-adds in f32 and f16, and the cost of a dispatch, of its encoding, of a
    submission and of a readback. The other commands measure this at their start and compare with it.
    """
    from ..bench.sweep import run_roofline

    return run_roofline(**options)


@click.command("compare", cls=Command, context_settings=_SETTINGS)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--fail-over", type=Percent(), metavar="5%",
    help="Exit with 1 if B is slower than A by more than this, and not by chance.",
)  # fmt: skip
@_output
def compare(debug: bool, **options: Any) -> int | None:
    """Compare two result files (JSON or JSON lines of this command), row by row.

    The ratio is the speed of B over that of A, with a 95% interval. A difference counts if the interval excludes 1. A
    single sample has no interval, so its verdict is unknown.
    """
    from ..bench.compare import run_compare

    return run_compare(**options)


Front.others = {"op": op, "load": load, "roofline": roofline, "compare": compare}


def main() -> NoReturn:
    """The console script."""
    run(bench, "webgpu-bench")


if __name__ == "__main__":
    main()
