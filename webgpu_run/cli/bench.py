"""The `webgpu-bench` command: options here, the work in the modules it hands over to."""

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
    """A list of lengths; `none` is none of them."""

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
    """5% or 5 as 0.05."""

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
    """The benchmark of a model; its first word may name another command instead."""

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
    """Options that all commands have."""
    for option in (
        click.option("--debug", is_flag=True, help="A traceback with every error."),
        click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors."),
        click.option(
            "--out", metavar="FILE", help="Also write there: as the name ends (.jsonl, .json, .csv, .md), else as -o."
        ),
        click.option("-o", "--output", "form", type=click.Choice(FORMATS), help="The format; a table by default."),
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
  op --of MODEL   the model's linears by shape and route, against the roofline
  load MODEL...   time to load and memory, against the size of the file
  roofline        what this adapter can do at most
  compare A B     two result files; exit 1 when B is slower

\b
Examples:
  webgpu-bench                                   the bundled model
  webgpu-bench model.pte --seq-lens 1-512*2      1, 2, 4 ... 512
  webgpu-bench model.pte -p 64 -n 32 -d 0,256    and with 256 tokens before
  webgpu-bench model.pte -o md                   to paste beside llama-bench
  webgpu-bench model.pte --out a.jsonl           kept even if killed
  webgpu-bench model.pte --report a.html         a page with plots
  webgpu-bench compare a.jsonl b.jsonl --fail-over 5%

\b
How to read a row:
  pp512           prefill of 512 tokens; @ d256: with 256 tokens in the cache
  tg32            32 tokens generated one by one, chosen on the device
  t/s             tokens a second, mean ± standard deviation of the rounds
  95%             how far that mean may be off: an interval that allows for a
                  machine that is slower for a while, within this run
  median, p90     ms of one prefill, or of one token
  ttft            ms to the first token of a prompt after a decode step
  host, GPU       ms of Python, and on the GPU (from repeats of its own)
  attn            of that attention, where it is a kernel of its own
  % roof          of the speed that memory and arithmetic would allow""",
)
@click.argument("model", required=False, metavar="[MODEL.pte]")
@click.option(
    "-p", "--seq-lens", type=Lengths(), metavar="LIST",
    help="Prompt lengths: 1,64,512 by default; also a-b+s, a-b*m, none.",
)  # fmt: skip
@click.option("-n", "--decode", type=Lengths(0), metavar="LIST", help="Tokens to generate: 32 by default; 0 is none.")
@click.option("-d", "--depth", type=Lengths(0), default="0", metavar="LIST", help="Tokens in the KV cache before.")
@click.option(
    "-r", "--repeat", type=click.IntRange(1, 10000), metavar="N",
    help="Rounds, in each of which every test runs once; by default 5 to 30, as the budget allows.",
)  # fmt: skip
@click.option(
    "--budget", type=click.FloatRange(0), default=30.0, show_default=True, metavar="SECONDS",
    help="No round past the fifth that would end later than this.",
)  # fmt: skip
@click.option("-w", "--warmup", type=click.IntRange(0, 10000), default=2, show_default=True, help="Runs before them.")
@click.option("--chunk", type=click.IntRange(1), metavar="N", help="Prefill at most N tokens a call.")
@click.option("--no-fuse", is_flag=True, help="Run the graph as it was written.")
@click.option(
    "--kv",
    type=click.Choice(("f32", "f16")),
    default="f32",
    help="How the KV cache is stored; f16 halves it, and moves logits by about 0.0004 of their range.",
)
@click.option("--no-tune", is_flag=True, help="Do not measure which kernels fit the adapter best.")
@click.option("--no-roofline", is_flag=True, help="Do not measure the adapter; no '% roof'.")
@click.option("--report", metavar="OUT.html", help="Also write one self-contained page with plots.")
@click.option("--data", multiple=True, metavar="FILE.ptd", help="External weights of the model; repeatable.")
@click.option("--method", metavar="NAME", help="The method to run; by default forward.")
@_DEVICE
@_output
@click.version_option(__version__, "--version", message="%(prog)s %(version)s")
def bench(debug: bool, **options: Any) -> int | None:
    """Measure prefill and decode of an ExecuTorch .pte model, for every length at every depth.

    Without a model the bundled demo model is measured. Tests take turns, round by round. On a terminal
    the table is there after the first round and gets better; in a pipe or file it is written at the end, or when
    interrupted; --out is up to date after every round. All else is on stderr.
    """
    from ..bench.sweep import run_model

    return run_model(**options)


@click.command("op", cls=Command, context_settings=_SETTINGS)
@click.argument("names", nargs=-1, metavar="[NAME...|all]")
@click.option("--of", metavar="MODEL.pte", help="Instead the linears of this model, each timed inside it.")
@click.option(
    "-p", "--seq-lens", type=Lengths(), metavar="LIST", help="With --of: tokens a call; 1,4,16,64,256 by default."
)
@click.option("-r", "--repeat", type=click.IntRange(1, 10000), help="Measured runs: 20 by default, with --of 10.")
@click.option("--no-roofline", is_flag=True, help="Do not measure the adapter; no share of it.")
@_DEVICE
@_output
def op(
    debug: bool, names: tuple[str, ...], of: str | None, seq_lens: tuple[int, ...] | None, **options: Any
) -> int | None:
    """Measure ops by their own test cases, at every live shape and by every route.

    A NAME is short (linear_q4gsw) or full (et_vk.linear_q4gsw.default). Routes that this adapter would not take, but
    another kind of adapter would, are run too and marked in the column `for`. The cases are small: most of the time is
    that of a dispatch, which `webgpu-bench roofline` gives.

    With --of, a row for each shape M×K×N that the model multiplies by, and the route that served it: microseconds of
    one, GB/s and GFLOP/s of the least work there is, and the share of the nearer limit, which is the fastest way that
    this adapter has to read memory, or its multiply-adds.
    """
    if bool(names) == bool(of) or (seq_lens and not of):
        context = click.get_current_context()
        raise click.UsageError("either ops by their NAME, or --of MODEL.pte, perhaps with -p", context)
    if of:
        from ..bench.linears import run_model_ops

        return run_model_ops(of=of, seq_lens=seq_lens, **options)
    from ..bench.op import run_ops

    return run_ops(names=names, **options)


@click.command("load", cls=Command, context_settings=_SETTINGS)
@click.argument("models", nargs=-1, metavar="[MODEL.pte...]")
@click.option("-r", "--repeat", type=click.IntRange(1, 1000), default=3, show_default=True, help="Loads of each file.")
@click.option("--report", metavar="OUT.html", help="Also write one page: time and memory against the file's size.")
@_DEVICE
@_output
def load(debug: bool, **options: Any) -> int | None:
    """Measure how long files take to load, and how much memory they take.

    Every load is a process of its own, from an open device to weights that are ready on it; the first token also
    compiles kernels, unless the driver remembers them. The process's peak is given beside what it had before the load;
    on a software adapter the GPU's memory is in it too.
    """
    from ..bench.load import run_load

    return run_load(**options)


@click.command("roofline", cls=Command, context_settings=_SETTINGS)
@_DEVICE
@_output
def roofline(debug: bool, **options: Any) -> int | None:
    """Measure what this adapter can do at most.

    Reads and copies by working set, multiply-adds in f32 and f16, and what a dispatch, an encode, a submit and a
    readback cost. The other commands measure it once a run and compare with it.
    """
    from ..bench.sweep import run_roofline

    return run_roofline(**options)


@click.command("compare", cls=Command, context_settings=_SETTINGS)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--fail-over", type=Percent(), metavar="5%",
    help="Exit 1 where B is slower than A by more than this, and not by chance.",
)  # fmt: skip
@_output
def compare(debug: bool, **options: Any) -> int | None:
    """Compare two result files (JSON or JSON lines of this command), row by row.

    The ratio is B's speed over A's, with a 95% interval. A difference counts where the interval excludes 1; a single
    sample has no interval, so there the verdict is unknown.
    """
    from ..bench.compare import run_compare

    return run_compare(**options)


Front.others = {"op": op, "load": load, "roofline": roofline, "compare": compare}


def main() -> NoReturn:
    """The console script."""
    run(bench, "webgpu-bench")


if __name__ == "__main__":
    main()
