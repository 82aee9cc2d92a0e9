"""`webgpu-bench agree`: whether every adapter and profile of this machine computes the same.

A profile is first compared with the float64 references, op by op. Then it continues some prompts, and its tokens are
compared with those of the first profile that passed. A different token is a tie, and no error, if the first profile
itself had both tokens closer together than the two sets of logits are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..console import outfile
from ..console.progress import Progress
from ..debug.stepping import Check, Stepper
from ..errors import CheckError, FormatError, RunError, UsageError
from ..formats.pte import Program
from ..gpu.adapters import list_adapters, pick
from ..gpu.device import Device
from ..llm import tokenizer as tokenizers
from ..llm.sampling import Sampler
from ..llm.session import Session
from ..llm.tokenizer import Tokenizer
from ..ops.limits import PROFILES
from ..runtime.open import open_model, open_program
from ..runtime.support import check_method
from ..shapes import Array
from .rows import facts
from .tables import Row, View, sinks
from .trials import LengthLimits

LENGTHS = (1, 13, 64)  # tokens of the prompts, if no text is given
CHECKED = 7  # tokens of the call whose ops are compared with their references, before one with a single token
ROUNDING = 1e-3  # of the range of the logits: a larger difference is not rounding


@dataclass(frozen=True, slots=True)
class Continued:
    """A prompt with the tokens that a profile chose after it, and the logits that chose the first."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logits: Array


def profiles(device: Device) -> Iterator[Device]:
    """The device with every profile that it can run; its own comes first."""
    own = device.limits.profile
    for profile in (own, *(p for p in PROFILES if p.name != own.name)):
        if device.limits.subgroups or not profile.shuffle:
            other = copy.copy(device)
            other.limits = replace(device.limits, profile=profile)
            yield other


class Subject:
    """A model on one adapter with one profile."""

    def __init__(self, program: Program, device: Device) -> None:
        self.model = open_model(program, device, is_checked=True)
        self.session = Session(self.model)

    def check(self, ids: list[int], step: int) -> str | None:
        """The first op that differs from its float64 reference, in a prefill and in a call with `step` tokens."""
        stepper = Stepper([Check()], inputs=True)
        try:
            for runner in self.model.runners:
                runner.visitor = stepper
            self.session.rewind(0)
            self.session.prefill(ids)
            self.session.step(ids[:step])
        except CheckError as error:
            return str(error)
        finally:
            for runner in self.model.runners:
                runner.visitor = None
        return None

    def continued(self, prompt: Sequence[int], count: int) -> Continued:
        """The likeliest tokens after a prompt, chosen as in a normal run."""
        self.session.rewind(0)
        logits = self.session.prefill(prompt)
        sampler, tokens = Sampler(), [int(logits.argmax())]
        while len(tokens) < count:
            if self.model.chooses:
                left = count - len(tokens) - 1
                tokens.append(self.session.advance(tokens[-1], sampler, len(tokens), left=left))
            else:
                tokens.append(int(self.session.step([tokens[-1]]).argmax()))
        return Continued(tuple(prompt), tuple(tokens), logits)

    def logits(self, ids: Sequence[int]) -> Array:
        """The logits after these tokens."""
        self.session.rewind(0)
        return self.session.prefill(ids)


def judged(subject: Subject, base: Subject, before: Sequence[Continued], count: int) -> Row:
    """How the subject continues the prompts that the base has continued."""
    worst, ties = 0.0, 0
    for want in before:
        got = subject.continued(want.prompt, count)
        worst = max(worst, _distance(got.logits, want.logits))
        at = next((i for i, pair in enumerate(zip(got.tokens, want.tokens, strict=True)) if pair[0] != pair[1]), None)
        if at is not None:
            ids = (*want.prompt, *want.tokens[:at])
            own, theirs = subject.logits(ids), base.logits(ids)
            worst = max(worst, _distance(own, theirs))
            margin = float(theirs[want.tokens[at]] - theirs[got.tokens[at]])
            if not margin <= 2 * float(np.abs(own - theirs).max()) or worst > ROUNDING:
                first = {"prompt": len(want.prompt), "index": at, "got": got.tokens[at], "want": want.tokens[at]}
                return {"verdict": "differs", "first_token": first, "distance": worst, "ties": ties}
            ties += 1
    return {
        "verdict": "agrees" if worst <= ROUNDING else "differs",
        "first_token": None,
        "distance": worst,
        "ties": ties,
    }


def _distance(a: Array, b: Array) -> float:
    """The largest difference of two rows of logits, as a share of their range."""
    return float(np.abs(a - b).max() / max(float(b.max() - b.min()), 1e-30))


def run_agree(
    *,
    model: str | None,
    prompt: tuple[str, ...],
    tokenizer: str | None,
    count: int,
    data: tuple[str, ...],
    device: str | None,
    form: str | None,
    out: str | None,
    quiet: bool,
) -> int:
    """One row per adapter and profile; the exit code is that of a failed check if one of them differs."""
    program = open_program(model, data)
    if out:
        outfile.check_target(out, [program.path, *data], "--out")
    check_method(program.method())
    reach = LengthLimits.of(program, program.method())
    words = _tokenizer(program, tokenizer, bool(prompt))
    prompts = [words.encode_prompt(text) for text in prompt] if words and prompt else list(_prompts(reach, count))
    if any(not ids or len(ids) + count > reach.capacity for ids in prompts):
        raise UsageError(f"a prompt is empty, or leaves no room for {count} tokens in {reach.capacity}")
    base: tuple[Subject, list[Continued]] | None = None
    rows: list[Row] = []
    with Progress(quiet=quiet, manual=True) as progress, sinks(form, out, VIEW) as table:
        for adapter in [pick(device)] if device else list_adapters():
            try:
                opened = Device(adapter)
            except RunError as error:
                rows.append({"adapter": adapter.name, "profile": "–", "backend": adapter.backend, **_failed(error)})
                table.show(rows)
                continue
            for place in profiles(opened):
                progress(f"{adapter.name} {place.limits.profile.name}", 0, 1)
                try:
                    subject = Subject(program, place)
                    verdict = _verdict(subject, base, prompts, count, reach, words)
                    if base is None and verdict["verdict"] == "agrees":
                        base = subject, [subject.continued(ids, count) for ids in prompts]
                        verdict["is_base"] = True
                except RunError as error:
                    verdict = _failed(error)
                progress.close()
                rows.append(
                    {
                        "kind": "agreement",
                        "test": "agree",
                        "adapter": adapter.name,
                        "backend": adapter.backend,
                        "profile": place.limits.profile.name,
                        **verdict,
                        **facts(place, program),
                    }
                )
                table.show(rows)
    return CheckError.exit_code if any(row["verdict"] != "agrees" for row in rows) else 0


def _verdict(
    subject: Subject,
    base: tuple[Subject, list[Continued]] | None,
    prompts: Sequence[Sequence[int]],
    count: int,
    reach: LengthLimits,
    words: Tokenizer | None,
) -> Row:
    step = reach.largest if reach.exact else 1
    off = subject.check(list(prompts[-1])[: max(step, CHECKED // step * step)], step)
    row: Row = {"verdict": "agrees", "first_token": None, "distance": 0.0, "ties": 0, "is_base": False}
    if base and base[0] is not subject:
        row |= judged(subject, base[0], base[1], count)
    if off:
        row |= {"verdict": "differs"}
    if row["first_token"] and words:
        row["first_token"] |= {k + "_text": words.decode([row["first_token"][k]]) for k in ("got", "want")}
    return {**row, "first_op": off}


def _failed(error: RunError) -> Row:
    return {"verdict": "failed", "first_op": str(error), "first_token": None, "distance": None, "ties": 0}


def _tokenizer(program: Program, given: str | None, is_needed: bool) -> Tokenizer | None:
    try:
        return tokenizers.find(program.path, given)
    except FormatError:
        if is_needed or given:
            raise
        return None


def _prompts(reach: LengthLimits, count: int) -> Iterator[list[int]]:
    """Pseudo-random prompts of lengths that the model can take, the same in every run."""
    rng = np.random.default_rng(7)
    step = reach.largest if reach.exact else 1
    for n in dict.fromkeys(max(step, min(n, reach.capacity - count) // step * step) for n in LENGTHS):
        yield rng.integers(0, reach.vocab, n).tolist()


def _cells(row: Row) -> dict[str, str]:
    token, distance = row["first_token"], row["distance"]
    texts = [repr(token.get(f"{k}_text", token[k])) for k in ("got", "want")] if token else []
    where = f"{token['index']} after {token['prompt']}: {texts[0]}, not {texts[1]}" if token else "–"
    return {
        "device": row["adapter"].partition(" (")[0],
        "backend": row["backend"],
        "profile": row["profile"],
        "verdict": row["verdict"] + (f", {row['ties']} ties" if row["ties"] else ""),
        "distance": "base" if row.get("is_base") else "–" if distance is None else f"{distance:.1e}",
        "first token": where,
        "first op": row["first_op"] or "–",
    }


VIEW = View(
    _cells,
    ("adapter", "backend", "profile", "verdict", "distance", "ties", "first_op", "first_token", "time", "schema"),
)
