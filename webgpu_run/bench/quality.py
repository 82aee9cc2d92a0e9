"""`webgpu-bench quality`: perplexity on a text, and how far a model's probabilities are from another model's."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from ..assets import model_dir
from ..console import outfile
from ..console.progress import Progress
from ..console.terminal import one_line
from ..errors import UsageError
from ..formats.pte import Program
from ..gpu.device import Device
from ..llm import tokenizer as tokenizers
from ..llm.tokenizer import Tokenizer
from ..runtime.open import open_device, open_model, open_program
from ..runtime.support import check_method
from ..shapes import Array
from .divergence import Position, Scores
from .host import is_busy
from .logits_file import LogitsFile, saving
from .rows import facts, summary
from .tables import Row, View, bytes_text, number, sinks, warn
from .trials import LengthLimits
from .windows import Scorer, TextWindow, cut, read_text, tokens_of

CONTEXT = 512
BEFORE = 12  # tokens shown before a worst position


def bundled_text() -> Path:
    """The text that is scored if no other is given: the opening of a novel of 1818, in the public domain."""
    return model_dir() / "persuasion.txt"


def run_quality(
    *,
    model: str | None,
    text: str | None,
    against: str | None,
    save: str | None,
    context: int | None,
    stride: int | None,
    windows: int | None,
    tokenizer: str | None,
    data: tuple[str, ...],
    method: str | None,
    device: str | None,
    no_fuse: bool,
    no_tune: bool,
    kv: str,
    form: str | None,
    out: str | None,
    quiet: bool,
) -> int:
    """Score the text window by window; the row is updated after each of them."""
    program = open_program(model, data)
    path = Path(text) if text else bundled_text()
    base_program = open_program(against) if against and not against.endswith(".npz") else None
    inputs: list[str | Path] = [program.path, path, *data, *([against] if against else [])]
    for target, flag in ((out, "--out"), (save, "--save")):
        if target:
            outfile.check_target(target, inputs, flag)
    reach = _reach(program, method)
    found = tokenizers.find(program.path, tokenizer)
    ids, bos = tokens_of(read_text(path), found)
    todo = cut(ids, bos, _context(context, stride, reach), stride)[:windows]
    saved = LogitsFile(against) if against and base_program is None else None
    if saved:
        saved.check(todo, reach.vocab)
    if base_program and _reach(base_program, None).vocab != reach.vocab:
        raise UsageError(f"the models have different vocabularies ({program.path}, {against})")
    if is_busy():
        warn("the machine is busy with something else: tokens/s will be too low", quiet)
    opened = open_device(device, tune=not no_tune, only_model=program)
    shared = facts(opened, program)
    settings = {"kv": kv, "fuse": not no_fuse, "method": method, "context": len(todo[0].ids), "stride": stride}
    with Progress(quiet=quiet, manual=True) as progress, ExitStack() as closing:
        scorer = _scorer(program, opened, method, kv, not no_fuse, progress)
        base = _base(base_program, saved, opened, progress)
        writer = closing.enter_context(saving(save, todo, reach.vocab)) if save else None
        scores, rates = Scores(), list[float]()
        table = closing.enter_context(sinks(form, out, VIEW if against else VIEW.without(*AGAINST)))
        for i, window in enumerate(todo):
            progress("windows", i, len(todo))
            spent = scorer.wall_ns
            log_probs = scorer.log_probs(window)
            if i == 1:
                rates.clear()  # the first window also compiled kernels
            rates.append((len(window.ids) - 1) / (scorer.wall_ns - spent) * 1e9)
            scores.add(window, log_probs, base(i, window) if base else None)
            if writer:
                writer.add(window, log_probs)
            progress.close()
            row = _row(scores, rates, shared, settings, todo, path)
            if base:
                row |= {"against": _name(against), **_compared(scores, found)}
            table.show([row])
    if base and form in (None, "table"):
        print(_worst_text(row["worst"]), end="")
    if len(ids) > len(todo) * len(todo[0].ids) and windows is None and not stride and not quiet:
        rest = len(ids) - len(todo) * len(todo[0].ids)
        print(f"the last {rest} tokens fill no window", file=sys.stderr)
    return 0


def _reach(program: Program, method: str | None) -> LengthLimits:
    entry = program.method(method)
    check_method(entry)
    return LengthLimits.of(program, entry)


def _context(given: int | None, stride: int | None, reach: LengthLimits) -> int:
    """Tokens per window: as given, or as llama-perplexity has it, if the model has room. The last one is not run."""
    room = reach.capacity + 1 - (stride or 0) // 2
    context = given or min(CONTEXT, room)
    if given is None and reach.exact:
        context = max(2, (context - 1) // reach.largest * reach.largest + 1)
    if context > room:
        raise UsageError(f"--ctx {context}: the model holds {reach.capacity} tokens")
    if stride and stride > context:
        raise UsageError(f"--stride {stride} is larger than the context of {context}")
    return context


def _scorer(program: Program, device: Device, method: str | None, kv: str, fuse: bool, progress: Progress) -> Scorer:
    return Scorer(
        open_model(program, device, method=method, kv=kv, fuse=fuse, all_rows=True, progress=progress, is_checked=True)
    )


def _base(
    program: Program | None, saved: LogitsFile | None, device: Device, progress: Progress
) -> Callable[[int, TextWindow], Array] | None:
    """What gives the log-probabilities to compare with: another model, or a file of them."""
    if program:
        scorer = _scorer(program, device, None, "f32", True, progress)
        return lambda _, window: scorer.log_probs(window)
    if saved:
        return saved.log_probs
    return None


def _row(scores: Scores, rates: list[float], shared: Row, settings: Row, todo: list[TextWindow], path: Path) -> Row:
    row = {
        "kind": "quality",
        "test": f"ppl{settings['context']}" + (f" stride {settings['stride']}" if settings["stride"] else ""),
        "unit": "t/s",
        "better": "higher",
        **summary(rates),
        "perplexity": scores.perplexity,
        "perplexity_error": scores.perplexity_error,
        "tokens": len(scores.losses),
        "windows": len(scores.losses) // len(todo[0].targets),
        "of_windows": len(todo),
        "text": {
            "file": path.name,
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        },
        "settings": settings,
    }
    return {**{k: shared[k] for k in ("schema", "time", "model")}, **row, **shared}


def _name(path: str | None) -> str:
    return Path(path or "").name


def _compared(scores: Scores, tokenizer: Tokenizer) -> Row:
    return {**scores.comparison(), "worst": [_worst_row(position, tokenizer) for position in scores.worst]}


def _worst_row(position: Position, tokenizer: Tokenizer) -> Row:
    ids, at = position.window.ids, position.at
    before = tokenizer.decode(ids[max(0, at - BEFORE) : at])
    return {
        "kl": position.divergence,
        "token": position.window.start + at,
        "before": before,
        "next": tokenizer.decode(ids[max(0, at - BEFORE) : at + 1])[len(before) :],
        "p": position.probability,
        "base_p": position.base_probability,
        "top": tokenizer.decode([position.top]),
        "base_top": tokenizer.decode([position.base_top]),
    }


def _worst_text(worst: list[Row]) -> str:
    lines = ["", "largest divergences: KL, probability of the next token (and in the base), likeliest token, text"]
    for row in worst:
        tops = f"{row['top']!r} ({row['base_top']!r})"
        text = f"…{row['before'][-48:]}[{row['next']}]".replace("\n", "⏎")
        lines.append(f"{row['kl']:9.3g}  {row['p']:6.1%} ({row['base_p']:6.1%})  {tops:24}  {one_line(text)}")
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> dict[str, str]:
    def plus_minus(name: str, form: str) -> str:
        return f"{row[name]:{form}} ± {row[name + '_error']:{form}}" if name in row else "–"

    return {
        "model": row["model"]["name"],
        "size": bytes_text(row["model"]["bytes"]),
        "kv": row["settings"]["kv"],
        "text": row["text"]["file"],
        "test": row["test"],
        "tokens": f"{row['tokens']:,}",
        "perplexity": plus_minus("perplexity", ".4f"),
        "t/s": number(row["mean"]),
        "against": row.get("against", "–"),
        "ratio": plus_minus("perplexity_ratio", ".5f"),
        "KL mean": plus_minus("kl_mean", ".2g"),
        "KL 99.9%": f"{row['kl_p999']:.3g}" if "kl_p999" in row else "–",
        "same top": f"{row['same_top']:.2%}" if "same_top" in row else "–",
        "RMS Δp": f"{row['rms_dp']:.3%}" if "rms_dp" in row else "–",
    }


AGAINST = ("against", "ratio", "KL mean", "KL 99.9%", "same top", "RMS Δp")
VIEW = View(
    _cells,
    (
        *("model.name", "model.sha256", "model.bytes", "text.file", "text.sha256", "test", "tokens", "windows"),
        *("perplexity", "perplexity_error", "mean", "against", "base_perplexity", "perplexity_ratio"),
        *("perplexity_ratio_error", "kl_mean", "kl_mean_error", "kl_median", "kl_p999", "kl_max", "same_top"),
        *("same_top_error", "rms_dp", "settings.kv", "settings.context", "settings.stride", "device.name", "time"),
        "schema",
    ),
    ("size", "kv", "text", "tokens", "ratio", "against", "model", "RMS Δp", "KL 99.9%"),
)
