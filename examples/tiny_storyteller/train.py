#!/usr/bin/env python3
"""Train the small Llama on the streams made by corpus.py; the last part is quantization-aware.

    OMP_NUM_THREADS=1 python train.py --work work

One CPU core is enough (40 minutes).  The schedule follows the fraction of the steps or minutes that is spent:

    0.00 - 0.30   windows of 192 tokens: tales, a fifth of old books; drills, first for two windows in five, then fewer
    0.30 - 0.40   the same without drills
    0.40 - 0.80   windows of 384 tokens
    0.80 - 1.00   fake 4-bit weights, almost only tales, 512 and then 1024 tokens

Writes WORK/checkpoint.pth (Meta's names, replaced atomically every --save minutes) and WORK/train_log.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
from drills import Drills
from model import Config, Llama
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

# How often a window is taken from each work: in the main part, and at the end.
MIX = {
    "tales": (0.82, 0.93),
    "bryant-stories": (0.08, 0.03),
    "burgess-busterbrown": (0.04, 0.02),
    "carroll-alice": (0.03, 0.01),
    "edgeworth-parents": (0.03, 0.01),
}
TOKENS_PER_STEP = 3072
PROMPTS = ("Once upon a time", "The little fox", "One cold winter night an old man")


class Streams:
    """Windows of the token streams: of the tales one after the other, each once; of the books at random places."""

    def __init__(self, path: Path, seed: int, bos: int) -> None:
        data = np.load(path)
        self.train = {n: data[f"{n}/train"].astype(np.int64) for n in MIX}
        self.val = {n: data[f"{n}/val"].astype(np.int64) for n in MIX}
        self.starts = {n: np.flatnonzero(ids == bos) for n, ids in self.train.items()}
        self.rng = np.random.default_rng(seed)
        self.cursor = 0  # the next tale

    def batch(self, rows: int, length: int, tail: bool) -> Tensor:
        weights = np.array([w[tail] for w in MIX.values()])
        out = np.empty((rows, length + 1), np.int64)
        for row, i in zip(out, self.rng.choice(len(weights), rows, p=weights / weights.sum()), strict=True):
            name = list(MIX)[i]
            last = len(self.train[name]) - length - 1
            starts = self.starts[name][self.starts[name] <= last]
            if name == "tales":
                at = starts[self.cursor % len(starts)]
                self.cursor += int(np.searchsorted(starts, at + length)) - self.cursor % len(starts)
            else:
                at = self.rng.choice(starts) if self.rng.random() < 1 / 3 else self.rng.integers(last + 1)
            row[:] = self.train[name][at : at + length + 1]
        return torch.from_numpy(out)


def orthogonal(g: Tensor) -> Tensor:
    """Nearest semi-orthogonal matrix, roughly: five steps of Newton-Schulz."""
    wide = g.shape[0] <= g.shape[1]
    x = (g if wide else g.T) / (g.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x if wide else x.T


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal, for the matrices inside the layers (Jordan et al., 2024)."""

    def __init__(self, params: list[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.05) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.lerp_(p.grad, 1 - group["momentum"])
                update = orthogonal(p.grad.lerp(m, group["momentum"]))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"] * max(1.0, p.shape[0] / p.shape[1]) ** 0.5)


@torch.no_grad()
def evaluate(model: Llama, streams: Streams, names: tuple[str, ...], length: int = 512) -> float:
    """Mean loss per token over non-overlapping windows of the validation parts."""
    model.eval()
    total, count = 0.0, 0
    for name in names:
        ids = torch.from_numpy(streams.val[name])
        for at in range(0, len(ids) - 1, length):
            window = ids[at : at + length + 1][None]
            total += functional.cross_entropy(model(window[:, :-1])[0], window[0, 1:], reduction="sum").item()
            count += window.shape[1] - 1
    model.train()
    return total / count


@torch.no_grad()
def greedy(model: Llama, tok: Tokenizer, prompt: str, n: int = 90) -> str:
    ids = tok.encode(prompt).ids
    for _ in range(n):
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
        if ids[-1] == tok.token_to_id("</s>"):
            break
    return tok.decode(ids)


def save(path: Path, value: object) -> None:
    torch.save(value, path.with_suffix(".tmp"))
    os.replace(path.with_suffix(".tmp"), path)


def rate(p: float) -> float:
    """Learning rate factor at progress p: linear warm-up, then a cosine down to 3 %."""
    return min(1.0, p / 0.02 + 0.02) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * min(p, 1.0))))


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--work", type=Path, default=Path("work"), help="directory made by corpus.py (default: work)")
    ap.add_argument("--steps", type=int, default=1300, help="steps of 3072 tokens (default: 1300)")
    ap.add_argument("--minutes", type=float, default=math.inf, help="take fewer steps where these are over")
    ap.add_argument("--save", type=float, default=5, help="minutes between checkpoints (default: 5)")
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    tok = Tokenizer.from_file(str(args.work / "tokenizer.json"))
    streams = Streams(args.work / "tokens.npz", args.seed, tok.token_to_id("<s>"))
    drill = Drills(args.seed)
    cfg = Config(vocab_size=tok.get_vocab_size())
    model = Llama(cfg)
    hidden = [p for n, p in model.named_parameters() if p.ndim == 2 and n.startswith("layers.")]
    other = [p for n, p in model.named_parameters() if not (p.ndim == 2 and n.startswith("layers."))]
    optimizers = [Muon(hidden, lr=0.012), torch.optim.AdamW(other, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0)]
    base = [o.param_groups[0]["lr"] for o in optimizers]
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {cfg}", flush=True)

    log: list[dict[str, object]] = []
    begin = last_save = time.monotonic()
    step = seen = 0
    running = 0.0
    progress = 0.0
    while True:
        elapsed = (time.monotonic() - begin) / 60
        progress = max(step / args.steps, elapsed / args.minutes)
        tail = progress >= 0.8
        if tail and not model.quant:
            model.set_quant(True)
        done = progress >= 1
        if done or time.monotonic() - last_save > args.save * 60:
            last_save = time.monotonic()
            row: dict[str, object] = {"step": step, "tokens": seen, "minutes": round(elapsed, 1), "train": running}
            row |= {"quant": model.quant, "val_tales": evaluate(model, streams, ("tales",))}
            row |= {"val_books": evaluate(model, streams, tuple(n for n in MIX if n != "tales"))} if done else {}
            log.append(row)
            print(json.dumps(row), *(greedy(model, tok, p) for p in PROMPTS), sep="\n  ", flush=True)
            save(args.work / "checkpoint.pth", {"params": cfg.params(), "state": model.checkpoint(), "log": log})
            (args.work / "train_log.json").write_text(json.dumps(log, indent=1) + "\n")
        if done:
            break
        length = 192 if progress < 0.4 else 384 if progress < 0.8 else 512 if progress < 0.93 else 1024
        batch = streams.batch(TOKENS_PER_STEP // length, length, tail)
        for row in batch[: round(0.4 * len(batch) * max(0.0, 1 - progress / 0.3))]:
            ids = tok.encode(drill()).ids[: len(row)]
            row[: len(ids)] = torch.tensor(ids)
            row[len(ids) :] = tok.token_to_id("</s>")
        for o, lr in zip(optimizers, base, strict=True):
            o.param_groups[0]["lr"] = lr * rate(progress)
        loss = functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(other, 1.0)
        for o in optimizers:
            o.step()
            o.zero_grad()
        step, seen = step + 1, seen + TOKENS_PER_STEP
        running = loss.item() if step == 1 else 0.98 * running + 0.02 * loss.item()
        if step % 20 == 0:
            print(f"step {step} {elapsed:.1f} min, loss {running:.3f}, {seen / elapsed / 60:.0f} tokens/s", flush=True)


if __name__ == "__main__":
    main()
