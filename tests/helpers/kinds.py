"""The kinds of language-model files: a fixture per kind, and its logits compared with the eager model's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from webgpu_run.gpu.device import Device
from webgpu_run.runtime.model import Model
from webgpu_run.runtime.open import load
from webgpu_run.shapes import Array

FIXTURES = Path(__file__).parents[1] / "fixtures"
EXACT = 1e-5


@dataclass(frozen=True, slots=True)
class Kind:
    """`limit` is the largest difference from the eager logits, as a part of their range; `loose` calls may use it.

    All other calls must be within EXACT: a limit wide enough for a rounding that went the other way hides real faults.
    """

    title: str
    limit: float = EXACT
    loose: int = 0


# Rows rounded to 8 bits: where a value lies within f32 noise of the middle between two steps, two correct runs choose
# differently, and one step of one input is some thousandths of the logits' range. Half precision: the golden is fp32.
# tiny_mixed has two loose calls on lavapipe and one on SwiftShader.
ROUNDED, HALF = 2e-2, 1e-2

KINDS: Mapping[str, Kind] = {
    "tiny_dyn": Kind("4-bit weights and embedding, dynamic length"),
    "tiny_tutorial": Kind("flags of the official Vulkan tutorial: 8da4w, group 64, fp32 embedding", ROUNDED, 5),
    "tiny_8da4w": Kind("8da4w, group 32, 4-bit embedding", ROUNDED, 11),
    "tiny_mixed": Kind("8da4w with one layer left in fp32", ROUNDED, 2),
    "tiny_fp16": Kind("force_fp16", HALF, 21),
    "tiny_qwen25": Kind("Qwen 2.5 type: Hugging Face rotary embedding, qkv bias"),
    "tiny_qwen3": Kind("Qwen 3 type: q and k norms, head_dim not dim / heads"),
    "tiny_emb8": Kind("8-bit embedding: a CPU kernel before the delegate"),
    "tiny_nosdpa": Kind("attention not fused: 7 delegates, 16 CPU kernels, mutable buffers"),
    "tiny_full": Kind("logits of every token"),
    "tiny_tied": Kind("tied embeddings"),
    "tiny_short": Kind("max_seq_len below max_context_len, several eos ids"),
    "tiny_static": Kind("static, one token a call"),
    "tiny_fp32emb": Kind("4-bit weights, fp32 embedding"),
    "tiny_fp32": Kind("nothing quantized"),
    "tiny_ptd": Kind("weights in .ptd files"),
    "tiny_inline": Kind("delegate inside the program's FlatBuffer"),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """Over all golden calls of a file: largest difference in logits and as a part of their range, rows that agree."""

    difference: float
    relative: float
    agree: int
    rows: int
    tokens: int
    calls: int
    exact: int  # calls within EXACT


def golden(name: str) -> list[tuple[Array, Array, Array]]:
    """Tokens, position and eager logits of every call, in order."""
    record = np.load(FIXTURES / f"{name}.npz")
    return [
        (record[f"tokens_{i}"], np.array([record[f"pos_{i}"]], np.int64), record[f"logits_{i}"])
        for i in range(int(record["n_calls"]))
    ]


def open_kind(name: str, device: Device, *, fuse: bool = True) -> Model:
    return load(FIXTURES / f"{name}.pte", device=device, fuse=fuse)


def measure(model: Model, calls: list[tuple[Array, Array, Array]]) -> Measured:
    """Run the calls on one instance and compare every row of logits."""
    difference = relative = 0.0
    agree = rows = tokens = exact = 0
    for ids, pos, want in calls:
        (out,) = model.run([ids, pos])
        want = want.reshape(out.shape)
        worst = float(np.abs(out - want).max())
        difference = max(difference, worst)
        part = worst / float(want.max() - want.min())
        relative = max(relative, part)
        exact += part <= EXACT
        agree += int((out.argmax(-1) == want.argmax(-1)).sum())
        rows += int(np.prod(out.shape[:-1]))
        tokens += ids.size
    return Measured(difference, relative, agree, rows, tokens, len(calls), exact)
