"""The part of the export that needs torch: read a model, quantize it, lower it for Vulkan, write the .pte.

export.py runs this in the exporting venv. Every line on stdout is one JSON object for it; everything else is on stderr.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PROMPT = "Once upon a time there was a little"
NEW_TOKENS = 32
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"),
    *("generation_config.json", "chat_template.jinja"),
)

reports = os.fdopen(os.dup(1), "w")


def report(**fields: Any) -> None:
    print(json.dumps(fields), file=reports, flush=True)


def refuse(message: str, hint: str = "") -> None:
    report(error=message, hint=hint)
    sys.exit(3)


def read_model(source: Path, tokenizer_folder: Path | None, out: Path) -> tuple[Any, Any]:
    """The model in fp32 and its tokenizer, whose files are put into `out`."""
    from decoder import MODEL_TYPES
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": source}
    if source.is_file():
        where = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    config = AutoConfig.from_pretrained(**where)
    if config.model_type not in MODEL_TYPES:
        refuse(f"model type {config.model_type!r} is not supported", f"supported: {', '.join(MODEL_TYPES)}")
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval()
    folder = tokenizer_folder or source
    if folder.is_dir():
        tokenizer = AutoTokenizer.from_pretrained(folder)
        for name in TOKENIZER_FILES:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, out / name)
    else:
        tokenizer = gguf_tokenizer(folder, AutoTokenizer.from_pretrained(**where))
    if not (out / "tokenizer.json").exists():
        tokenizer.save_pretrained(out)
    return model, tokenizer


def gguf_tokenizer(path: Path, tokenizer: Any) -> Any:
    """The tokenizer inside a GGUF file. Of how it splits text, the file has only a name."""
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers

    field = GGUFReader(path).fields.get("tokenizer.ggml.pre")
    if (name := field.contents() if field else "none") != "smollm":
        refuse(
            f"how this GGUF file splits text (tokenizer.ggml.pre = {name}) is not known ({path})",
            "--tokenizer FOLDER names a folder with the model's tokenizer.json",
        )
    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    return tokenizer


def metadata(model: Any, tokenizer: Any, context: int) -> dict[str, Any]:
    """What the runner wants to know, stored in the .pte as constant methods."""
    config, generation = model.config, model.generation_config
    eos = generation.eos_token_id if generation.eos_token_id is not None else tokenizer.eos_token_id
    facts: dict[str, Any] = {
        "get_max_context_len": context,
        "get_n_layers": config.num_hidden_layers,
        "get_vocab_size": config.vocab_size,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": True,
        "enable_dynamic_shape": True,
    }
    if tokenizer.bos_token_id is not None:
        facts["get_bos_id"] = tokenizer.bos_token_id
    if eos is not None:
        facts["get_eos_ids"] = eos if isinstance(eos, list) else [eos]
    return facts


@torch.no_grad()
def logits(decoder: Any, ids: list[int], position: int = 0) -> Tensor:
    """The logits after the last of these tokens."""
    return decoder(torch.tensor([ids]), {"input_pos": torch.tensor([position])}).flatten()


def greedy(decoder: Any, ids: list[int], count: int) -> tuple[list[int], Tensor]:
    """The `count` likeliest next tokens, one after the other, and the logits of each step."""
    reply: list[int] = []
    steps: list[Tensor] = []
    while len(reply) < count:
        steps.append(logits(decoder, reply[-1:], len(ids) + len(reply) - 1) if reply else logits(decoder, ids))
        reply.append(int(steps[-1].argmax()))
    return reply, torch.stack(steps)


def sensitivity(decoder: Any, ids: list[int], reply: list[int], expected: Tensor) -> float:
    """How far the model's own logits move, as a share of their range, if its embeddings change by a millionth.

    With activations rounded to 8 bits this is far more than a millionth: a value that lay between two steps of the
    rounding takes the other one, and all later layers see it.
    """
    torch.manual_seed(0)
    hook = decoder.tok_embeddings.register_forward_hook(lambda _m, _i, out: out * (1 + 1e-6 * torch.randn_like(out)))
    worst = 0.0
    for _ in range(3):
        steps = [logits(decoder, ids)] + [logits(decoder, [t], len(ids) + i) for i, t in enumerate(reply[:-1])]
        worst = max(worst, float(((torch.stack(steps) - expected).abs().amax(1) / ranges(expected)).max()))
    hook.remove()
    return worst


def ranges(steps: Tensor) -> Tensor:
    return steps.amax(1) - steps.amin(1)


@torch.no_grad()
def compare_with_original(model: Any, decoder: Any, ids: list[int]) -> float:
    """The largest difference of a logit, before anything is quantized, as a share of the range of the logits."""
    worst = 0.0
    for tokens in (ids, [(7 * i + 3) % model.config.vocab_size for i in range(min(48, decoder.max_seq_len - 1))]):
        expected = model(torch.tensor([tokens])).logits[0, -1]
        difference = (logits(decoder, tokens) - expected).abs().max() / (expected.max() - expected.min())
        worst = max(worst, float(difference))
    return worst


def quantize(decoder: Any, mode: str, group: int) -> Any:
    """4-bit weights and embedding; attention and cache as the ops that the Vulkan partitioner knows."""
    from executorch.examples.models.llama.source_transformation.custom_kv_cache import (
        replace_kv_cache_with_custom_kv_cache,
    )
    from executorch.examples.models.llama.source_transformation.quantize import (
        get_quant_embedding_transform,
        get_quant_weight_transform,
    )
    from executorch.examples.models.llama.source_transformation.sdpa import replace_sdpa_with_custom_op

    for transform in (
        get_quant_embedding_transform(f"4,{group}"),
        get_quant_weight_transform(mode, group),
        replace_sdpa_with_custom_op,
        replace_kv_cache_with_custom_kv_cache,
    ):
        decoder = transform(decoder)
    return decoder


def lower(decoder: Any, facts: dict[str, Any], max_seq_len: int, path: Path) -> None:
    """torch.export, delegation to Vulkan, and the file."""
    import executorch.backends.vulkan.patterns as patterns
    from executorch.extension.llm.export.builder import DType, LLMEdgeManager
    from executorch.extension.llm.export.partitioner_lib import get_vulkan_partitioner

    # ExecuTorch 1.5.1 exports the rope patterns again each time it looks for them, about 15 s each.
    for pattern in patterns.fusable_patterns.values():
        if pattern.get_graphs_fn is not None:
            pattern.get_graphs_fn = functools.cache(pattern.get_graphs_fn)
    for name, buffer in decoder.named_buffers():
        if "cache" in name:
            buffer.zero_()  # the file stores caches as constants; empty ones are stored once
    builder = LLMEdgeManager(
        model=decoder,
        modelname=path.stem,
        max_seq_len=max_seq_len,
        use_kv_cache=True,
        example_inputs=(torch.tensor([[2, 3, 4]]), {"input_pos": torch.tensor([0])}),
        dtype=DType.fp32,
        enable_dynamic_shape=True,
        metadata=facts,
    )
    report(stage="trace")
    builder.export().run_canonical_optimizations()
    builder.export_to_edge()
    report(stage="lower for Vulkan")
    builder.to_backend([get_vulkan_partitioner("fp32", enable_dynamic_shape=True)]).to_executorch()
    report(stage="write")
    unfinished = path.with_suffix(".part")
    with unfinished.open("wb") as file:
        builder.export_program.write_to_file(file)
    unfinished.replace(path)


def peak_memory() -> str:
    try:
        import resource
    except ImportError:
        return "peak memory is not known on Windows"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return f"the export took {peak / 1e9:.1f} GB of memory"


def main() -> None:
    options = json.loads(sys.argv[1])
    os.dup2(2, 1)  # libraries print; stdout is for reports
    report(stage="load")
    from decoder import build, largest_context

    out, group = Path(options["out"]), options["group"]
    given = options["tokenizer"] and Path(options["tokenizer"])
    model, tokenizer = read_model(Path(options["source"]), given, out)
    config = model.config
    for width in {config.hidden_size, config.intermediate_size}:
        if width % group:
            refuse(f"rows of {width} weights do not divide into groups of {group}", "--group 32 divides most models")
    context = largest_context(config, options["context"])
    if context < options["context"]:
        report(note=f"context {context}: what {config.model_type} has been trained for, or its sliding window")
    max_seq_len = min(options["max_seq_len"], context)
    ids = tokenizer(PROMPT).input_ids

    report(stage="convert")
    facts = metadata(model, tokenizer, context)
    decoder = build(model, context, max_seq_len)
    difference = compare_with_original(model, decoder, ids)
    if not difference < 1e-3:
        refuse(f"the converted model is not the original: logits differ by {difference:.1e} of their range")
    report(note=f"logits as in transformers, before quantization, to {difference:.0e} of their range")
    original, _ = greedy(decoder, ids, NEW_TOKENS)
    del model

    report(stage=f"quantize ({options['mode']}, group {group})")
    decoder = quantize(decoder, options["mode"], group)
    reply, steps = greedy(decoder, ids, NEW_TOKENS)
    same = next((i for i, (a, b) in enumerate(zip(original, reply, strict=True)) if a != b), NEW_TOKENS)
    report(note=f"for {same} of {NEW_TOKENS} greedy tokens the 4-bit text is that of the original weights")

    two = steps.topk(2, dim=1).values
    eager = {
        "prompt": PROMPT,
        "prompt_ids": ids,
        "reply": reply,
        "text": tokenizer.decode(reply, skip_special_tokens=True),
        "best": two[:, 0].tolist(),
        "lead": ((two[:, 0] - two[:, 1]) / ranges(steps)).tolist(),
        "sensitivity": sensitivity(decoder, ids, reply, steps) if options["mode"] == "8da4w" else 0.0,
    }
    lower(decoder, facts, max_seq_len, out / f"{out.name}.pte")
    report(done=True, **eager, memory=peak_memory())


main()
