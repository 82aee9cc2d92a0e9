#!/usr/bin/env python3
"""Quantize the checkpoint of train.py to 4 bits and export it with ExecuTorch's own llama exporter (Vulkan delegate).

    python export.py --work work --out ../../webgpu_run/bundled --fixtures ../../tests/fixtures

Needs `pip install executorch` (made with 1.5.1).  It is the same as

    python -m executorch.extension.llm.export.export_llm base.model_class=llama3_2 base.checkpoint=... \\
        base.params=... base.metadata=... model.use_kv_cache=True model.use_sdpa_with_kv_cache=True \\
        model.enable_dynamic_shape=True export.max_seq_length=513 export.max_context_length=1024 \\
        quantization.qmode=4w quantization.group_size=32 quantization.embedding_quantize=\\'4,32\\' \\
        quantization.use_hqq=False backend.vulkan.enabled=True

plus a check that the exporter's quantized weights are those that the model was trained with, and goldens from that
eager model.  Writes OUT/model.pte, OUT/tokenizer.json, OUT/tokenizer_config.json, and with --fixtures

    bundled_golden.npz    n_calls; tokens_i, pos_i, logits_i (last row), call_kind_i: calls in order on one KV cache
    bundled_text.json     greedy generations: prompt, prompt_ids, gen_ids, text, min_margin (smallest top-2 logit gap)
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from model import GROUP, Config, Llama
from tokenizers import Tokenizer
from torch import Tensor, nn

MAX_SEQ, MAX_CONTEXT = 513, 1024  # the longest call is MAX_SEQ - 1 tokens
PROMPTS = ("Once upon a time", "The little fox said to the hen,", "One cold winter night an old man")
LONG = (
    "There was once a small brown bear named Pearl who lived in a cave by the river. She had a blue kite, and it could"
    " fly higher than the church tower. One windy morning she took the kite and went up the hill. Her friend Tom the"
    " hedgehog held the string. Then the wind blew hard, and the kite was gone! Pearl looked in the meadow and behind"
    " the mill. She sat down on a stone and cried. Just then an old owl flew over the trees."
)


def config(directory: Path, metadata: dict[str, object]) -> Any:
    from executorch.extension.llm.export.config.llm_config import LlmConfig, ModelType

    c = LlmConfig()
    c.base.model_class = ModelType("llama3_2")
    c.base.checkpoint, c.base.params = str(directory / "consolidated.pth"), str(directory / "params.json")
    c.base.metadata = json.dumps(metadata)
    c.model.use_kv_cache = c.model.use_sdpa_with_kv_cache = c.model.enable_dynamic_shape = True
    c.export.max_seq_length, c.export.max_context_length = MAX_SEQ, MAX_CONTEXT
    c.export.output_dir, c.export.output_name = str(directory), str(directory / "model.pte")
    c.quantization.qmode, c.quantization.group_size = "4w", GROUP
    c.quantization.embedding_quantize = f"4,{GROUP}"
    c.quantization.use_hqq = False  # plain min/max scales: what train.py fakes
    c.backend.vulkan.enabled = True
    return c


class Eager:
    """The exporter's model before lowering, with its KV cache."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.pos = model.eval(), 0

    def reset(self) -> None:
        self.pos = 0
        for name, b in self.model.named_buffers():
            if "cache" in name and b.is_floating_point():
                b.zero_()

    @torch.no_grad()
    def __call__(self, ids: list[int]) -> Tensor:
        out = self.model(torch.tensor([ids]), {"input_pos": torch.tensor([self.pos])})
        self.pos += len(ids)
        return out.reshape(-1, out.shape[-1])[-1].float()


def goldens(eager: Eager, tok: Tokenizer, path: Path) -> None:
    rec: dict[str, object] = {}
    count = 0

    def call(ids: list[int], kind: str) -> int:
        nonlocal count
        rec[f"pos_{count}"], rec[f"tokens_{count}"] = np.int64(eager.pos), np.array([ids], np.int64)
        logits = eager(ids)
        rec[f"logits_{count}"], rec[f"call_kind_{count}"] = logits[None].numpy(), kind
        count += 1
        return int(logits.argmax())

    eager.reset()
    t = call(tok.encode("Once upon a time there was a little").ids, "prefill")
    for size, kind in ((1, "decode"),) * 6 + ((5, "chunk"),) + ((1, "decode"),) * 3 + ((100, "chunk"), (1, "decode")):
        t = call([t, *tok.encode(LONG, add_special_tokens=False).ids[: size - 1]], kind)
    np.savez_compressed(path, n_calls=np.int64(count), **rec)


def generate(eager: Eager, tok: Tokenizer, prompt: str, n: int, eos: int) -> dict[str, object]:
    eager.reset()
    ids = tok.encode(prompt).ids
    out: list[int] = []
    margin = float("inf")
    logits = eager(ids)
    while len(out) < n and (not out or out[-1] != eos):
        top = logits.topk(2)
        margin = min(margin, float(top.values[0] - top.values[1]))
        out.append(int(top.indices[0]))
        logits = eager(out[-1:])
    text = tok.decode(out)
    return {"prompt": prompt, "prompt_ids": ids, "gen_ids": out, "text": text, "min_margin": round(margin, 5)}


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--work", type=Path, default=Path("work"), help="directory used by train.py (default: work)")
    ap.add_argument("--out", type=Path, default=Path("out"), help="where the model files go (default: out)")
    ap.add_argument("--fixtures", type=Path, help="also write the goldens here")
    ap.add_argument("--tokens", type=int, default=300, help="most tokens of a greedy text (default: 300)")
    args = ap.parse_args()

    from executorch.examples.models.llama import export_llama_lib

    logging.getLogger().setLevel(logging.WARNING)
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    saved = torch.load(args.work / "checkpoint.pth")
    tok = Tokenizer.from_file(str(args.work / "tokenizer.json"))
    bos, eos = tok.token_to_id("<s>"), tok.token_to_id("</s>")
    metadata: dict[str, object] = {"get_bos_id": bos, "get_eos_ids": [eos]}

    with tempfile.TemporaryDirectory() as tmp:
        directory = Path(tmp)
        torch.save(saved["state"], directory / "consolidated.pth")
        (directory / "params.json").write_text(json.dumps(saved["params"]))
        eager = Eager(export_llama_lib._prepare_for_llama_export(config(directory, metadata)).model)

        ours = Llama(Config(**saved["params"]))
        ours.load_state_dict({k: v for k, v in saved["state"].items() if k != "output.weight"})
        ours.set_quant(True)
        ids = tok.encode(LONG).ids
        with torch.no_grad():
            diff = float((ours(torch.tensor([ids]))[0, -1] - eager(ids)).abs().max())
        print(f"exporter's quantized model against ours: max |logit difference| {diff:.2e}")
        if diff > 1e-3:
            raise SystemExit("the exporter quantizes differently from fake_quant()")

        if args.fixtures:
            args.fixtures.mkdir(parents=True, exist_ok=True)
            goldens(eager, tok, args.fixtures / "bundled_golden.npz")
            rows = [generate(eager, tok, p, args.tokens, eos) for p in PROMPTS]
            (args.fixtures / "bundled_text.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
            for row in rows:
                print(f"--- {row['prompt']}{row['text']}  [margin {row['min_margin']}]")

        export_llama_lib.export_llama(config(directory, metadata))
        shutil.copyfile(directory / "model.pte", args.out / "model.pte")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(args.work / name, args.out / name)
    for name in ("model.pte", "tokenizer.json"):
        print(f"{args.out / name}: {(args.out / name).stat().st_size} bytes")


if __name__ == "__main__":
    main()
