"""The `webgpu-bench` command: its options. The work is in the modules of `bench`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from typing import Any, NoReturn

import click

from ..console.command import Command, end_process_after, run
from ..errors import UsageError
from ..version import __version__
from .option_types import Formats, Lengths, Pair, Percent

FORMATS = ("table", "md", "csv", "json", "jsonl")


class Front(Command):
    """The benchmark of a model, unless the first argument names another command."""

    others: dict[str, click.Command] = {}  # noqa: RUF012

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> click.Context:
        first = args[0] if args else ""
        other = self.others.get(first)
        if other:
            # As in click's groups: a variable for a flag of `webgpu-bench op` is WEBGPU_BENCH_OP_FLAG.
            extra["auto_envvar_prefix"] = f"{extra['auto_envvar_prefix']}_{first.upper()}"
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
  quality MODEL   perplexity on a text, and distance from another model
  agree MODEL     whether all adapters and profiles compute the same
  roofline        what this adapter can do at most
  tune            which variant of the kernels is fastest on it
  merge FILE...   the files of --share of many devices, in one table
  compare A B     two result files, or with --live two versions, models or
                  settings that alternate; exit code 1 if B is slower

\b
Examples:
  webgpu-bench                                   the bundled model
  webgpu-bench model.pte --seq-lens 1-512*2      1, 2, 4 ... 512
  webgpu-bench model.pte -p 64 -n 32 -d 0,256    at two depths of the cache
  webgpu-bench a.pte b.pte --kv f32,f16          in rounds that alternate
  webgpu-bench model.pte -o md                   to paste beside llama-bench
  webgpu-bench model.pte --out a.jsonl           also write a file
  webgpu-bench model.pte --report a.html         a page with plots
  webgpu-bench compare a.jsonl b.jsonl --fail-over 5%

\b
How to read a row:
  pp512           prefill of 512 tokens; @ d256: with 256 tokens in the cache
  tg32            32 tokens generated one by one, chosen on the device
  pp64+tg32       both, one after the other (-pg 64,32)
  tg32 b8         32 tokens of each of 8 sequences at the same time (--batch 8):
                  t/s counts the tokens of all, each those of one sequence
  t/s             tokens per second, mean ± standard deviation of the rounds
  95%             half the width of the mean's 95% interval, which allows for a
                  machine that is slower for a while
  median, p90,    ms per prefill; of tg, ms that a reader of the text waits from
  max             one delivery to the next: several tokens come together
  burst           tokens per delivery, mean
  step            ms per token: its share of the wait, median
  ttft            ms to the first token of a prompt after a decode step,
                  without compiling
  compile         ms that the first run took longer than the others
  host, GPU       ms on the host, and on the GPU (median of separate runs, each
                  dispatch in a pass of its own: may be above the wall time)
  attn            the part of the GPU time that reads the KV cache
  % roof          share of the speed that memory and arithmetic would allow
  J/token         joules, if the machine reports them (RAPL, a battery in use,
                  nvidia-smi), with all else that runs on it
  GPU mem         of this model on the device; peak mem: of the process""",
)
@click.argument("models", nargs=-1, metavar="[MODEL.pte...]")
@click.option(
    "-p", "--seq-lens", type=Lengths(), metavar="LIST",
    help="Prompt lengths: 1,64,512 by default; also a-b+s, a-b*m, none.",
)  # fmt: skip
@click.option("-n", "--decode", type=Lengths(0), metavar="LIST", help="Tokens to generate: 32 by default; 0 for none.")
@click.option(
    "-pg", "--both", type=Pair(), multiple=True, metavar="P,N",
    help="A prompt of P tokens and then N generated ones, end to end; repeatable.",
)  # fmt: skip
@click.option(
    "--batch", type=Lengths(), default=(), metavar="LIST",
    help="Also decode this many sequences at the same time, 1,2,4,8,16 for example.",
)  # fmt: skip
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
@click.option("--text", metavar="FILE", help="Take prompts from this text; by default they are pseudo-random tokens.")
@click.option("--tokenizer", metavar="PATH", help="With --text: a tokenizer file or a folder, if not beside the model.")
@click.option("--no-fuse", is_flag=True, help="Run the graph as the file has it, without fusion.")
@click.option(
    "--kv", type=Formats(), default="f32", metavar="LIST",
    help="Formats of the KV cache: f32, f16 or both; f16 halves it and changes logits by about 0.0004 of their range.",
)  # fmt: skip
@click.option("--no-tune", is_flag=True, help="Do not measure which kernels are fastest on this adapter.")
@click.option("--no-roofline", is_flag=True, help="Do not measure the adapter; no '% roof'.")
@click.option("--report", metavar="OUT.html", help="Also write a self-contained page with plots.")
@click.option(
    "--share", metavar="OUT.json",
    help="Also write a file to send: device, limits, tuning, roofline and rows, without names of people or places.",
)  # fmt: skip
@click.option("--data", multiple=True, metavar="FILE.ptd", help="External weights of the model; repeatable.")
@click.option("--method", metavar="NAME", help="The method to run; by default forward.")
@click.option(
    "--ray", metavar="ADDRESS|auto", help="Measure on all adapters of this Ray cluster. Needs webgpu-run[ray]."
)
@_DEVICE
@_output
@click.version_option(__version__, "--version", message="%(prog)s %(version)s")
def bench(debug: bool, ray: str | None, **options: Any) -> int | None:
    """Measure prefill and decode of ExecuTorch .pte models, for every length at every depth.

    Without a model, the bundled demo model is measured. A round runs every test of every model once. On a terminal the
    table appears after the first round and is updated after each round; a pipe or file gets it at the end, or when
    interrupted. The file of --out is complete after every round. Everything else goes to stderr.
    """
    if ray is not None:
        from .bench_ray import bench_on_cluster

        return bench_on_cluster(ray, options)
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


@click.command(
    "quality",
    cls=Command,
    context_settings=_SETTINGS,
    epilog="""\b
How to read a row:
  perplexity      exp of the mean loss per scored token ± its standard error
  t/s             tokens per second, all windows and all rows of logits
  ratio           perplexity over that of the base ± its standard error
  KL mean, 99.9%  divergence of the model from the base, per token, in nats
  same top        tokens for which both have the same likeliest token
  RMS Δp          difference of the probabilities of the text's tokens

\b
Examples:
  webgpu-bench quality                             the bundled model and text
  webgpu-bench quality m.pte --text t.txt -o json
  webgpu-bench quality m.pte --save m.npz          then, with a 16-bit cache:
  webgpu-bench quality m.pte --kv f16 --against m.npz""",
)
@click.argument("model", required=False, metavar="[MODEL.pte]")
@click.option("--text", metavar="FILE", help="The text to score, in UTF-8; by default the opening of a novel.")
@click.option("--against", metavar="FILE", help="Compare with this MODEL.pte, or with the .npz file of --save.")
@click.option("--save", metavar="OUT.npz", help="Save the probabilities of all scored tokens, 16 bits each.")
@click.option(
    "-c", "--ctx", "context", type=click.IntRange(4), metavar="N",
    help="Tokens per window; the second half of each is scored. By default 512, or the model's context.",
)  # fmt: skip
@click.option(
    "--stride", type=click.IntRange(1), metavar="N",
    help="Windows overlap: each starts N tokens later, and its last N tokens are scored.",
)  # fmt: skip
@click.option("--windows", type=click.IntRange(1), metavar="N", help="Score only the first N windows.")
@click.option("--tokenizer", metavar="PATH", help="A tokenizer file or a folder; by default beside the model.")
@click.option("--no-fuse", is_flag=True, help="Run the graph as the file has it, without fusion.")
@click.option("--kv", type=click.Choice(("f32", "f16")), default="f32", help="Format of the KV cache.")
@click.option("--no-tune", is_flag=True, help="Do not measure which kernels are fastest on this adapter.")
@click.option("--data", multiple=True, metavar="FILE.ptd", help="External weights of the model; repeatable.")
@click.option("--method", metavar="NAME", help="The method to run; by default forward.")
@_DEVICE
@_output
def quality(debug: bool, **options: Any) -> int | None:
    """Measure how well a language model predicts a text, and how far it is from another model.

    Windows and error are those of llama-perplexity: the text is cut into windows, every window starts with an empty
    cache, and its second half is scored. Figures for different tokenizers cannot be compared. A model that returns only
    the last token's logits is changed to return all of them.
    """
    from ..bench.quality import run_quality

    return run_quality(**options)


@click.command("agree", cls=Command, context_settings=_SETTINGS)
@click.argument("model", required=False, metavar="[MODEL.pte]")
@click.option(
    "--prompt", multiple=True, metavar="TEXT", help="Continue this text; repeatable. By default random tokens."
)
@click.option("--tokenizer", metavar="PATH", help="A tokenizer file or a folder; by default beside the model.")
@click.option(
    "-n", "--tokens", "count", type=click.IntRange(1), default=16, show_default=True, help="Tokens after each prompt."
)
@click.option("--data", multiple=True, metavar="FILE.ptd", help="External weights of the model; repeatable.")
@_DEVICE
@_output
def agree(debug: bool, **options: Any) -> int | None:
    """Check that every adapter and profile of this machine computes the same.

    Each op of two calls is compared with its float64 reference. Then prompts are continued, and the tokens are compared
    with those of the first profile that passed. A row names the first op and the first token that differ. "distance" is
    the largest difference of logits as a share of their range; a tie is another token that was as likely as the first.
    The exit code is 7 if a profile differs or fails.
    """
    from ..bench.agree import run_agree

    return run_agree(**options)


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


@click.command("tune", cls=Command, context_settings=_SETTINGS)
@_DEVICE
@_output
def tune(debug: bool, **options: Any) -> int | None:
    """Measure which variant of the 4-bit kernels is fastest on this adapter, and remember it.

    There is one row for each variant (profile), number of rows and shape of a linear. The weights are larger than any
    cache, so one row measures how fast memory is read. All other commands do this once per adapter and driver.
    """
    from ..bench.tuning import run_tune

    return run_tune(**options)


@click.command("merge", cls=Command, context_settings=_SETTINGS)
@click.argument("files", nargs=-1, required=True, metavar="FILE.json...")
@click.option("--report", metavar="OUT.html", help="Also write a page with plots of all devices.")
@_output
def merge(debug: bool, **options: Any) -> int | None:
    """Show the results of many devices in one table, from files that --share wrote.

    GB/s is the fastest way to read more memory than caches hold, GFLOP/s the multiply-adds in f32, both as measured.
    """
    from ..bench.share import run_merge

    return run_merge(**options)


@click.command(
    "compare",
    cls=Command,
    context_settings=_SETTINGS,
    epilog="""\b
Examples:
  webgpu-bench compare a.jsonl b.jsonl --fail-over 5%
  webgpu-bench compare --live HEAD~1 . -m model.pte       versions
  webgpu-bench compare --live old.whl new.whl
  webgpu-bench compare --live a.pte b.pte -p 64,256 -n 32
  webgpu-bench compare --live "a.pte --kv f32" "a.pte --kv f16"
  webgpu-bench compare --live . "HEAD~3 --no-fuse" -m model.pte""",
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--fail-over", type=Percent(), metavar="5%",
    help="Exit with 1 if B is slower than A by more than this, and not by chance.",
)  # fmt: skip
@click.option("--fail-unclear", is_flag=True, help="Exit with 1 also if a verdict is unclear.")
@click.option("--live", is_flag=True, help="A and B are no files, but what to run.")
@click.option("-m", "--model", metavar="MODEL.pte", help="With --live: the model, if a side does not name one.")
@click.option("-p", "--seq-lens", type=Lengths(), metavar="LIST", help="With --live: prompt lengths; 64 by default.")
@click.option("-n", "--decode", type=Lengths(0), metavar="LIST", help="With --live: tokens to generate; 16 by default.")
@click.option(
    "-r", "--repeat", type=click.IntRange(2, 10000), metavar="N",
    help="With --live: rounds. By default 20 or more, until every verdict is clear.",
)  # fmt: skip
@click.option(
    "--budget", type=click.FloatRange(0), metavar="SECONDS",
    help="With --live: start no round after this; 120 by default.",
)  # fmt: skip
@click.option(
    "--time", "timing", type=click.Choice(("auto", "wall", "cpu")),
    help="With --live: compare by the clock or by processor time; auto is cpu on a software adapter, else wall.",
)  # fmt: skip
@_output
def compare(debug: bool, a: str, b: str, live: bool, **options: Any) -> int | None:
    """Compare two result files (JSON or JSON lines of this command), row by row, or run both sides now.

    "speed B/A" is the mean speed of B over that of A, with a 95% interval. If the interval excludes 1, B is faster or
    slower. If all of it is within 5% of 1 (or within --fail-over), both are the same. Otherwise the verdict is unclear,
    with the number of rounds (-r) that should settle it.

    With --live, each of A and B is a version (a git revision, a wheel, or . for the one that runs), a model, settings,
    or several of these in quotes. Settings are --kv, --chunk, --device, --method, --no-fuse and --no-tune. Both make
    the same calls alternately, so a busy machine slows down both. Prefill (pp) is the time to the first token of a
    prompt after a shorter one. "speed B/A" is the median of the ratios of all pairs of calls, with a 99% interval. A
    difference of less than 2% is not called faster or slower, because two processes that run the same code differ by
    that much. A test ends when its interval is narrow enough for a verdict, or the difference is beyond four standard
    errors.

    On a software adapter, speeds are tokens per second of processor time (t/cpu-s), of all threads, because other
    programs on the machine change the time on the clock several times as much. "by the clock" has the ratio of the
    times on the clock, which also depends on how well the threads share the work; --time wall gives verdicts by it.
    """
    from ..bench.compare import run_compare

    defaults = {"model": None, "seq_lens": (64,), "decode": (16,), "repeat": None, "budget": 120.0, "timing": "auto"}
    given = {name: value for name in defaults if (value := options.pop(name)) is not None}
    if given and not live:
        raise click.UsageError("-m, -p, -n, -r, --budget and --time are for --live", click.get_current_context())
    return run_compare(a=a, b=b, live={**defaults, **given} if live else None, **options)


Front.others = {c.name or "": c for c in (op, load, quality, agree, roofline, tune, merge, compare)}


def main() -> NoReturn:
    """The console script."""
    run(bench, "webgpu-bench")


if __name__ == "__main__":
    end_process_after(main)
