"""The commands of `webgpu-bench` other than the benchmark of a model: their options. The work is in `bench`."""

from __future__ import annotations

from typing import Any

import click

from ..console.command import Command
from .bench_options import CONTEXT_SETTINGS, DEVICE, output_options
from .option_types import Lengths, Percent


@click.command("op", cls=Command, context_settings=CONTEXT_SETTINGS)
@click.argument("names", nargs=-1, metavar="[NAME...|all]")
@click.option("--of", metavar="MODEL.pte", help="Measure the linears of this model, inside the model.")
@click.option(
    "-p", "--seq-lens", type=Lengths(), metavar="LIST", help="With --of: tokens per call; 1,4,16,64,256 by default."
)
@click.option("-r", "--repeat", type=click.IntRange(1, 10000), help="Measured runs: 20 by default, 10 with --of.")
@click.option("--no-roofline", is_flag=True, help="Do not measure the adapter; no '% roof'.")
@DEVICE
@output_options
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


@click.command("load", cls=Command, context_settings=CONTEXT_SETTINGS)
@click.argument("models", nargs=-1, metavar="[MODEL.pte...]")
@click.option("-r", "--repeat", type=click.IntRange(1, 1000), default=3, show_default=True, help="Loads of each file.")
@click.option("--report", metavar="OUT.html", help="Also write a page: time and memory by file size.")
@click.option(
    "--timeout", type=click.FloatRange(0, 1e6, min_open=True), default=600.0, show_default=True, metavar="SECONDS",
    help="Give up if one load takes longer.",
)  # fmt: skip
@DEVICE
@output_options
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
    context_settings=CONTEXT_SETTINGS,
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
@DEVICE
@output_options
def quality(debug: bool, **options: Any) -> int | None:
    """Measure how well a language model predicts a text, and how far it is from another model.

    Windows and error are those of llama-perplexity: the text is cut into windows, every window starts with an empty
    cache, and its second half is scored. Figures for different tokenizers cannot be compared. A model that returns only
    the last token's logits is changed to return all of them.
    """
    from ..bench.quality import run_quality

    return run_quality(**options)


@click.command("agree", cls=Command, context_settings=CONTEXT_SETTINGS)
@click.argument("model", required=False, metavar="[MODEL.pte]")
@click.option(
    "--prompt", multiple=True, metavar="TEXT", help="Continue this text; repeatable. By default random tokens."
)
@click.option("--tokenizer", metavar="PATH", help="A tokenizer file or a folder; by default beside the model.")
@click.option(
    "-n", "--tokens", "count", type=click.IntRange(1), default=16, show_default=True, help="Tokens after each prompt."
)
@click.option("--data", multiple=True, metavar="FILE.ptd", help="External weights of the model; repeatable.")
@DEVICE
@output_options
def agree(debug: bool, **options: Any) -> int | None:
    """Check that every adapter and profile of this machine computes the same.

    Each op of two calls is compared with its float64 reference. Then prompts are continued, and the tokens are compared
    with those of the first profile that passed. A row names the first op and the first token that differ. "distance" is
    the largest difference of logits as a share of their range; a tie is another token that was as likely as the first.
    The exit code is 7 if a profile differs or fails.
    """
    from ..bench.agree import run_agree

    return run_agree(**options)


@click.command("roofline", cls=Command, context_settings=CONTEXT_SETTINGS)
@DEVICE
@output_options
def roofline(debug: bool, **options: Any) -> int | None:
    """Measure what this adapter can do at most.

    Reads and copies by working set, multiply-adds in f32 and f16, and the cost of a dispatch, of its encoding, of a
    submission and of a readback. The other commands measure this at their start and compare with it.
    """
    from ..bench.sweep import run_roofline

    return run_roofline(**options)


@click.command("tune", cls=Command, context_settings=CONTEXT_SETTINGS)
@DEVICE
@output_options
def tune(debug: bool, **options: Any) -> int | None:
    """Measure which variant of the 4-bit kernels is fastest on this adapter, and remember it.

    There is one row for each variant (profile), number of rows and shape of a linear. The weights are larger than any
    cache, so one row measures how fast memory is read. All other commands do this once per adapter and driver.
    """
    from ..bench.tuning import run_tune

    return run_tune(**options)


@click.command("merge", cls=Command, context_settings=CONTEXT_SETTINGS)
@click.argument("files", nargs=-1, required=True, metavar="FILE.json...")
@click.option("--report", metavar="OUT.html", help="Also write a page with plots of all devices.")
@output_options
def merge(debug: bool, **options: Any) -> int | None:
    """Show the results of many devices in one table, from files that --share wrote.

    GB/s is the fastest way to read more memory than caches hold, GFLOP/s the multiply-adds in f32, both as measured.
    """
    from ..bench.share import run_merge

    return run_merge(**options)


@click.command(
    "compare",
    cls=Command,
    context_settings=CONTEXT_SETTINGS,
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
    help="With --live: rounds. By default 24 or more, until every verdict is clear.",
)  # fmt: skip
@click.option(
    "--budget", type=click.FloatRange(0), metavar="SECONDS",
    help="With --live: start no round after this; 120 by default.",
)  # fmt: skip
@click.option(
    "--time", "timing", type=click.Choice(("auto", "wall", "cpu")),
    help="With --live: compare by the clock or by processor time; auto is cpu on a software adapter, else wall.",
)  # fmt: skip
@output_options
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
