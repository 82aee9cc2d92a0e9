"""The options of a run: their click definitions, and `Settings`, which the rest of the program sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from ..console.command import OptionalValue
from .option_types import Count, Ids, Limit, Number, Numbers, PictureSize, Stop, Text

TRACES = ("tree", "json")
TIMINGS = ("op", "dispatch", "layer")
STATS = ("line", "json", "none")
KV = ("auto", "f32", "f16")
_SOFTWARE = ("software", "software-short", "software-wide", "software-plain")
PROFILES = ("gpu", "gpu-plain", "gpu-8x16", "gpu-32x4", *_SOFTWARE)
TEXT = {
    "Prompt": ("prompt", "prompt_file", "prompt_ids", "prompt_cache", "chunk", "tokenizer", "lookup"),
    "Sampling (--temp above 0)": ("temp", "top_k", "top_p", "min_p", "seed"),
    "Repeats": ("repeat_penalty", "repeat_last_n"),
    "Stopping": ("max_new_tokens", "stop", "ignore_eos"),
    "Chat": ("chat", "system", "template", "turns"),
    "Many prompts": ("prompts", "out", "parallel", "ray"),
}
GROUPS = {
    **TEXT,
    "Any other model": ("input", "output", "method", "resize", "mean", "std"),
    "Model and device": (
        "model_option",
        "data",
        "device",
        "list_devices",
        "doctor",
        "kv",
        "no_fuse",
        "no_tune",
        "timeout",
        "isolate",
    ),
    "Looking inside": ("inspect", "kernels", "profile", "trace_resize", "timings", "timings_out", "trace"),
    "Numerics": ("check", "check_resize", "nan_check", "dump"),
    "Output": ("stats",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of one run."""

    model: str
    data: tuple[str, ...] = ()
    bundled: bool = False
    device: str | None = None
    prompt: str | None = None
    prompt_file: str | None = None
    prompt_ids: tuple[int, ...] | None = None
    prompt_cache: str | None = None
    prompts: str | None = None
    out: str | None = None
    parallel: int | None = None
    ray: str | None = None
    max_new_tokens: int = 512
    chunk: int | None = None
    temp: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    chat: bool = False
    system: str | None = None
    template: str | None = None
    turns: bool = False
    tokenizer: str | None = None
    lookup: bool = False
    input: tuple[str, ...] = ()
    output: str | None = None
    method: str | None = None
    resize: tuple[int, int] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    trace_resize: str | None = None
    check_resize: bool = False
    timings: str | None = None
    timings_out: str | None = None
    trace: str | None = None
    check: bool = False
    nan_check: bool = False
    dump: tuple[str, ...] = ()
    stats: str = "line"
    no_fuse: bool = False
    no_tune: bool = False
    kv: str = "auto"
    timeout: float | None = None
    isolate: bool = False
    quiet: bool = False
    verbose: int = 0


_OPTIONS = (
    click.option("--prompt", "-p", type=Text(), metavar="TEXT|-", help="The text to continue. - reads it from stdin."),
    click.option("--prompt-file", "-f", metavar="FILE", help="Read the prompt from a file."),
    click.option("--prompt-ids", type=Ids(), metavar="1,2,3", help="The prompt as token ids. This needs no tokenizer."),
    click.option(
        "--prompt-cache",
        metavar="FILE",
        help="Keep the KV cache of the prompt in a file. A later prompt with the same beginning starts from it.",
    ),
    click.option(
        "--prompts",
        metavar="FILE|-",
        help="Reply to every prompt of a file: one JSON object per line with a prompt, messages or ids, or plain text.",
    ),
    click.option(
        "--out",
        metavar="OUT.jsonl",
        help="Write the replies there when all are done. A run that was killed continues. Default: stdout.",
    ),
    click.option(
        "--parallel",
        type=Count(),
        default="auto",
        metavar="B|auto",
        help="Prompts that share each call of the model. By default as many as memory and speed suggest.",
    ),
    click.option(
        "--ray",
        metavar="ADDRESS|auto",
        help="With --prompts: use all adapters of this Ray cluster. Needs webgpu-run[ray].",
    ),
    click.option(
        "-n",
        "--max-new-tokens",
        "--max-tokens",
        type=Limit(),
        default=512,
        metavar="N",
        help="Generate at most N tokens. -1 means no limit. Default: 512.",
    ),
    click.option(
        "--temp",
        "--temperature",
        type=Number(0),
        default=0.0,
        metavar="T",
        help="Temperature. 0, the default, always takes the likeliest token.",
    ),
    click.option(
        "--top-k",
        type=click.IntRange(0),
        default=0,
        metavar="K",
        help="Sample from the K likeliest tokens only. 0, the default, means all.",
    ),
    click.option(
        "--top-p",
        type=Number(0, 1, above=True),
        default=1.0,
        metavar="P",
        help="Sample from the likeliest tokens whose probabilities add up to P. Default: 1, all tokens.",
    ),
    click.option(
        "--min-p",
        type=Number(0, 1),
        default=0.0,
        metavar="P",
        help="Exclude tokens that are less likely than P times the likeliest one.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**64 - 1),
        metavar="N",
        help="The same seed gives the same text. By default it is random, and printed.",
    ),
    click.option(
        "--repeat-penalty",
        type=Number(0.01, 100),
        default=1.0,
        metavar="P",
        help="Divide the logits of recent tokens by P if they are positive, else multiply them. Default: 1, no change.",
    ),
    click.option(
        "--repeat-last-n",
        type=click.IntRange(0, 1024),
        default=64,
        metavar="N",
        help="How many tokens are recent for --repeat-penalty. Default: 64.",
    ),
    click.option(
        "--stop",
        type=Stop(),
        multiple=True,
        metavar="TEXT",
        help="End the reply before this text appears. Repeatable.",
    ),
    click.option("--ignore-eos", is_flag=True, help="Continue after the end-of-text token."),
    click.option(
        "--chunk",
        type=click.IntRange(1),
        metavar="N",
        help="Prefill at most N tokens per call. Default: as many as the model allows.",
    ),
    click.option(
        "--chat",
        is_flag=True,
        help="Talk with the model. The KV cache is kept between messages. /help lists its commands.",
    ),
    click.option("--system", type=Text(), metavar="TEXT", help="The system message of a chat."),
    click.option(
        "--template",
        metavar="FILE",
        help="The chat template: a jinja file, or a JSON file with a chat_template field. "
        "Default: the one beside the tokenizer.",
    ),
    click.option("--turns", is_flag=True, help="With piped input, each line is a message. Default: all of it is one."),
    click.option(
        "--tokenizer", metavar="PATH", help="A tokenizer file, or the folder it is in. Default: the model's folder."
    ),
    click.option(
        "--lookup",
        is_flag=True,
        help="Guess tokens where the text repeats itself, and verify several per call. The reply is the same.",
    ),
    click.option(
        "--input",
        multiple=True,
        metavar="[NAME=]FILE",
        help="An input: .npy, .npz or a picture. Repeat it for each input, in order or by name (input_0=FILE).",
    ),
    click.option("--output", metavar="DIR", help="Also write the outputs there, as .npy files."),
    click.option("--method", metavar="NAME", help="The method to run. Default: forward."),
    click.option(
        "--resize",
        type=PictureSize(),
        metavar="WxH",
        help="Resize pictures to this size. Default: that of the input, if fixed.",
    ),
    click.option(
        "--mean", type=Numbers(), default="0", metavar="R,G,B", help="Subtracted from pixels in 0 .. 1. Default: 0."
    ),
    click.option("--std", type=Numbers(), default="1", metavar="R,G,B", help="Divides pixels after that. Default: 1."),
    click.option(
        "--trace-resize",
        cls=OptionalValue,
        words=TRACES,
        metavar="[=json]",
        help="For each call, show which tensors changed shape and what that changed: routes, grids, uniforms.",
    ),
    click.option(
        "--check-resize",
        is_flag=True,
        help="Rebuild the model at the shape of each call, and compare plans and outputs bit for bit.",
    ),
    click.option(
        "--timings", cls=OptionalValue, words=TIMINGS, metavar="[BY]", help=f"Print GPU time by {', '.join(TIMINGS)}."
    ),
    click.option(
        "--timings-out",
        metavar="OUT.csv|.json",
        help="Write the timings to a file, with sums in nanoseconds. Without --timings they are by op.",
    ),
    click.option("--trace", metavar="OUT.json", help="Write a timeline for Perfetto or chrome://tracing."),
    click.option("--check", is_flag=True, help="Compare the output of each op with its numpy reference."),
    click.option("--nan-check", is_flag=True, help="Name the first op whose output has a NaN or an infinity."),
    click.option(
        "--dump",
        multiple=True,
        metavar="OP#N=F.npy",
        help="Write the output of an op, named as --trace-resize names it; OP#N@CALL is its output in one call. "
        "Repeatable.",
    ),
    click.option(
        "--stats",
        type=click.Choice(STATS),
        default="line",
        help="The last line on stderr: speeds for people, JSON for programs, or none.",
    ),
    click.option("--no-fuse", is_flag=True, help="Run the graph as the file has it, without fused ops."),
    click.option(
        "--kv",
        type=click.Choice(KV),
        default="auto",
        help="How the KV cache is stored. f16 halves it; it moves logits by about 0.0004 of their range, and the "
        "perplexity of SmolLM2-135M by 0.001 %. auto, the default, is f16 on GPUs with shader-f16, else f32.",
    ),
    click.option("--no-tune", is_flag=True, help="Do not measure which kernels are fastest on the adapter."),
    click.option(
        "--timeout",
        type=Number(0, 1e9, above=True),
        metavar="S",
        help="Give up on a call that takes longer than S seconds.",
    ),
    click.option(
        "--isolate", is_flag=True, help="Run in a child process, so that a crash of the driver becomes an error line."
    ),
)


def text_only(ctx: click.Context) -> list[str]:
    """The options on the command line that apply to text only."""
    names = {name for group in TEXT.values() for name in group}
    on_command_line = click.core.ParameterSource.COMMANDLINE
    params = [p for p in ctx.command.params if p.name in names]
    return [p.opts[0] for p in params if p.name and ctx.get_parameter_source(p.name) is on_command_line]


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a run to a command. It receives them as keyword arguments, named as in Settings."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
