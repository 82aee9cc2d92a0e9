#!/usr/bin/env python3
"""Run prompts of mixed lengths in a batch and each of them alone, and compare the replies.

    python tests/tools/compare_batch.py [MODEL.pte] [--count 500] [--parallel 16] [-n 24] [--seed 1] [--profile gpu]

The prompts are random token ids, from one to half the context. Half of the replies are greedy, half are sampled with
options of their own. Where a token differs, a line says how far apart the logits of the two tokens are, as a share of
the range of all: kernels for one row and for several may round differently, so a near tie can end either way.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from webgpu_run import LLM
from webgpu_run.gpu.device import Device
from webgpu_run.gpu.tune import open_tuned
from webgpu_run.ops.limits import PROFILES


def device_for(profile: str | None) -> Device:
    """The best adapter, with the kernels that suit it or with those of another profile."""
    device = open_tuned(tune=profile is None)
    if profile is not None:
        named = {p.name: p for p in PROFILES}
        device.limits = replace(device.limits, profile=named[profile])
    return device


def requests(llm: LLM, count: int, new: int, rng: random.Random) -> list[dict[str, Any]]:
    vocabulary = llm.session.interface.vocab
    made: list[dict[str, Any]] = []
    for i in range(count):
        length = max(1, int((llm.context // 2) ** rng.random()))  # as many short prompts as long ones
        ids = [rng.randrange(vocabulary) for _ in range(length)]
        sampled: dict[str, Any] = {"temperature": rng.uniform(0.5, 1.5), "top_k": rng.choice((0, 40)), "seed": i}
        sampled |= {"top_p": rng.choice((1.0, 0.9)), "repeat_penalty": rng.choice((1.0, 1.2))}
        made.append({"ids": ids, "max_new_tokens": rng.randint(1, new), **(sampled if i % 2 else {})})
    return made


def gap(llm: LLM, ids: list[int], one: int, other: int) -> float:
    """How far apart the logits of two next tokens are, as a share of the range of all."""
    llm.session.rewind(0)
    logits = llm.session.prefill(ids).reshape(-1)
    return float(abs(logits[one] - logits[other]) / (logits.max() - logits.min()))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("-n", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", choices=[p.name for p in PROFILES])
    args = parser.parse_args(argv)
    device = device_for(args.profile)
    llm = LLM(args.model, device=device)
    made = requests(llm, args.count, args.n, random.Random(args.seed))
    batched = list(llm.generate_many(made, parallel=args.parallel))
    alone, equal, tokens = LLM(args.model, device=device), 0, 0
    for request, completion in zip(made, batched, strict=True):
        options = {name: value for name, value in request.items() if name != "ids"}
        reply = alone.generate(request["ids"], **options)
        got, want = list(completion.ids), list(reply.ids)
        equal += not completion.error and (got, completion.reason) == (want, reply.reason)
        tokens += len(want)
        at = next((i for i, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), None)
        if at is not None:
            near = gap(alone, request["ids"] + want[:at], got[at], want[at])
            print(f"{len(request['ids'])} ids, token {at}: {got[at]} instead of {want[at]}, {near:.1e} apart")
    lengths = [len(request["ids"]) for request in made]
    print(
        f"{equal} of {len(made)} replies are those of single runs: prompts of {min(lengths)} to {max(lengths)} tokens,"
    )
    profile = llm.model.device.limits.profile.name
    print(f"{sum(lengths)} in all, and {tokens} new tokens; {args.parallel} at a time, kernels for {profile}")
    return int(equal < len(made))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
