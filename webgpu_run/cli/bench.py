"""The `webgpu-bench` command: the benchmark of a model, and the way to its other commands."""

from __future__ import annotations

import difflib
import os
from typing import Any, ClassVar, NoReturn

import click
from click.shell_completion import CompletionItem

from ..console.command import Command, end_process_after, run
from ..errors import UsageError
from ..version import __version__
from .bench_commands import agree, compare, load, merge, op, quality, roofline, tune
from .bench_options import CONTEXT_SETTINGS, DEVICE, output_options
from .option_types import Formats, Lengths, Pair


class Front(Command):
    """The benchmark of a model, unless the first argument names another command."""

    others: ClassVar = {c.name or "": c for c in (op, load, quality, agree, roofline, tune, merge, compare)}

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> click.Context:
        first = args[0] if args else ""
        other = self.others.get(first)
        if other:
            # As in click's groups: a variable for a flag of `webgpu-bench op` is WEBGPU_BENCH_OP_FLAG.
            extra["auto_envvar_prefix"] = f"{extra['auto_envvar_prefix']}_{first.upper()}"
            return other.make_context(f"{info_name} {first}", args[1:], parent, **extra)
        near = difflib.get_close_matches(first, self.others, 1)
        if near and not os.path.exists(first) and not extra.get("resilient_parsing"):
            raise UsageError(f"no such command or file ({first})", hint=f"did you mean {info_name} {near[0]}?")
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Another command if the first argument begins like one, else files. Click's script for bash cannot offer both."""
    commands = Front.others if incomplete and not ctx.params.get("models") else {}
    named = [(n, c.get_short_help_str(100)) for n, c in commands.items() if n.startswith(incomplete)]
    return [CompletionItem(n, help=h) for n, h in named] or [CompletionItem(incomplete, type="file")]


@click.command(
    cls=Front,
    context_settings=CONTEXT_SETTINGS,
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
@click.argument("models", nargs=-1, metavar="[MODEL.pte...]", shell_complete=_complete)
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
@DEVICE
@output_options
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


def main() -> NoReturn:
    """The console script."""
    run(bench, "webgpu-bench")


if __name__ == "__main__":
    end_process_after(main)
