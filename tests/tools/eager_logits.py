#!/usr/bin/env python3
"""Score a text with a Llama in plain PyTorch, in float32, and save its log-probabilities for `webgpu-bench quality`.

    PYTHONPATH=. et/bin/python tests/tools/eager_logits.py model.pth params.json tokenizer.json text.txt eager.npz
    webgpu-bench quality model.pte --text text.txt --against eager.npz

The weights are those that an export starts from, under Meta's parameter names. Needs torch, and none of our kernels.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from webgpu_run.bench.divergence import Scores
from webgpu_run.bench.logits_file import saving
from webgpu_run.bench.windows import cut, tokens_of
from webgpu_run.llm import tokenizer as tokenizers


def rotated(x: Tensor, theta: float) -> Tensor:
    """x [heads, positions, width] with neighbouring pairs rotated by their position."""
    width = x.shape[-1]
    angles = torch.outer(torch.arange(x.shape[1]), theta ** -(torch.arange(0, width, 2) / width))
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def logits(weights: dict[str, Tensor], params: dict[str, Any], ids: list[int]) -> Tensor:
    """[positions, vocabulary] of tokens that begin at position 0."""
    heads, kv_heads, eps = params["n_heads"], params["n_kv_heads"], params["norm_eps"]
    x = weights["tok_embeddings.weight"][torch.tensor(ids)]
    for layer in range(params["n_layers"]):
        w = {name: weights[f"layers.{layer}.{name}.weight"] for name in LAYER}
        h = rms_norm(x, x.shape[-1:], w["attention_norm"], eps)
        q, k, v = (
            linear(h, w[f"attention.{name}"]).unflatten(-1, (count, -1)).transpose(0, 1)
            for name, count in (("wq", heads), ("wk", kv_heads), ("wv", kv_heads))
        )
        q, k = rotated(q, params["rope_theta"]), rotated(k, params["rope_theta"])
        y = scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)[0]
        x = x + linear(y.transpose(0, 1).flatten(1), w["attention.wo"])
        h = rms_norm(x, x.shape[-1:], w["ffn_norm"], eps)
        gate, up = linear(h, w["feed_forward.w1"]), linear(h, w["feed_forward.w3"])
        x = x + linear(silu(gate) * up, w["feed_forward.w2"])
    x = rms_norm(x, x.shape[-1:], weights["norm.weight"], eps)
    return linear(x, weights.get("output.weight", weights["tok_embeddings.weight"]))


LAYER = (
    *("attention_norm", "attention.wq", "attention.wk", "attention.wv", "attention.wo"),
    *("ffn_norm", "feed_forward.w1", "feed_forward.w2", "feed_forward.w3"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("weights", "params", "tokenizer", "text", "out"):
        parser.add_argument(name)
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--windows", type=int)
    args = parser.parse_args()
    weights = torch.load(args.weights, map_location="cpu", weights_only=True)
    params = json.loads(Path(args.params).read_text())
    ids, bos = tokens_of(Path(args.text).read_text("utf-8"), tokenizers.load(Path(args.tokenizer)))
    windows, scores = cut(ids, bos, args.ctx)[: args.windows], Scores()
    with torch.inference_mode(), saving(args.out, windows, params["vocab_size"]) as writer:
        for window in windows:
            rows = logits(weights, params, list(window.ids[:-1]))[window.first :]
            log_probs = rows.log_softmax(-1).numpy()
            scores.add(window, log_probs)
            writer.add(window, log_probs)
            ran = len(scores.losses) // len(window.targets)
            print(
                f"window {ran} of {len(windows)}: {scores.perplexity:.4f} ± {scores.perplexity_error:.4f}", flush=True
            )
    assert np.isfinite(scores.perplexity)


if __name__ == "__main__":
    main()
