#!/usr/bin/env python3
"""Score a text with a model in plain PyTorch, in float32, and save its log-probabilities for `webgpu-bench quality`.

    PYTHONPATH=. et/bin/python tests/tools/eager_logits.py FOLDER_OR_GGUF tokenizer.json text.txt eager.npz
    webgpu-bench quality model.pte --text text.txt --against eager.npz

The weights are those that the export started from: a Hugging Face folder, or a GGUF file. Needs torch and transformers,
and none of our kernels. The windows are those of `webgpu-bench quality`.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from webgpu_run.bench.divergence import Scores
from webgpu_run.bench.logits_file import saving
from webgpu_run.bench.windows import cut, tokens_of
from webgpu_run.llm import tokenizer as tokenizers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "tokenizer", "text", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--windows", type=int)
    args = parser.parse_args()
    folder, gguf = (args.model.parent, {"gguf_file": args.model.name}) if args.model.is_file() else (args.model, {})
    model = AutoModelForCausalLM.from_pretrained(folder, **gguf, dtype=torch.float32).eval()
    ids, bos = tokens_of(args.text.read_text("utf-8"), tokenizers.load(args.tokenizer))
    windows, scores = cut(ids, bos, args.ctx)[: args.windows], Scores()
    with torch.inference_mode(), saving(str(args.out), windows, model.config.vocab_size) as writer:
        for number, window in enumerate(windows, 1):
            logits = model(torch.tensor([window.ids[:-1]])).logits[0, window.first :]
            log_probs = logits.log_softmax(-1).numpy()
            scores.add(window, log_probs)
            writer.add(window, log_probs)
            figure = f"{scores.perplexity:.4f} ± {scores.perplexity_error:.4f}"
            print(f"window {number} of {len(windows)}: {figure}", flush=True)
    assert math.isfinite(scores.perplexity)


if __name__ == "__main__":
    main()
