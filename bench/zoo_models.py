"""Models of transformers for `bench/zoo.py`, as users export them, with few weights; quantized ones; MiniLM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.export import Dim
from zoo_nets import BIG, LENGTH, VOCAB, WIDTH, ZOO, Entry, Tensors, image, initialize, resnet, tokens


class Named(nn.Module):
    """A model of transformers that takes tensors in order and returns the named outputs."""

    def __init__(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, inputs, outputs

    def forward(self, *given: torch.Tensor) -> Tensors:
        named = dict(zip(self.inputs, given, strict=True))
        cache = {"use_cache": False} if "input_ids" in named and hasattr(self.model.config, "use_cache") else {}
        result = self.model(**named, **cache)
        return tuple(result[name] for name in self.outputs)


def hugging(model: str, config: str, inputs: Sequence[str], outputs: Sequence[str], **settings: Any) -> nn.Module:
    import transformers

    settings = {"attn_implementation": "sdpa", **settings}
    built = getattr(transformers, model)(getattr(transformers, config)(**settings))
    if built._can_set_experts_implementation():
        built.set_experts_implementation("batched_mm")  # as transformers exports to ExecuTorch: it has no grouped_mm
    return Named(built, inputs, outputs)


TEXT = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
DECODER = {**TEXT, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
VISION = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


def text(name: str, build: Callable[[], nn.Module], count: int = 1, *, longest: int = 32) -> None:
    """Two entries: static, and with a dynamic length. The second input is an attention mask."""

    def given(n: int) -> Tensors:
        return (tokens(1, n), torch.ones(1, n, dtype=torch.long))[:count]

    length = Dim("s", min=2, max=longest)
    ZOO[name] = lambda: Entry(build(), [given(LENGTH)])
    ZOO[f"{name}_dyn"] = lambda: Entry(build(), [given(n) for n in (LENGTH, longest, 7, 2)], (({1: length},) * count,))


def decoders() -> None:
    gpt2 = {
        "vocab_size": VOCAB,
        "n_embd": WIDTH,
        "n_layer": 1,
        "n_head": 4,
        "n_positions": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    opt = {
        "vocab_size": VOCAB,
        "hidden_size": WIDTH,
        "num_hidden_layers": 1,
        "ffn_dim": 64,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "word_embed_proj_dim": WIDTH,
    }
    window = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8}
    gemma2 = {**DECODER, **window, "attn_implementation": "eager"}
    settings: dict[str, dict[str, Any]] = {
        "GPT2LMHead GPT2": gpt2,
        "OPTForCausalLM OPT": opt,
        "LlamaForCausalLM Llama": DECODER,
        "MistralForCausalLM Mistral": {**DECODER, "sliding_window": 8},
        "GemmaForCausalLM Gemma": {**DECODER, "head_dim": 8},
        "Gemma2ForCausalLM Gemma2": gemma2,
        "PhiForCausalLM Phi": DECODER,
        "Qwen2ForCausalLM Qwen2": DECODER,
        "Qwen3ForCausalLM Qwen3": {**DECODER, "head_dim": 16},
        "Olmo2ForCausalLM Olmo2": DECODER,
        "StableLmForCausalLM StableLm": DECODER,
        "GraniteForCausalLM Granite": DECODER,
        "GPTNeoXForCausalLM GPTNeoX": {**TEXT, "bos_token_id": 1, "eos_token_id": 2},
    }
    for names, config in settings.items():
        model, family = names.split()
        model = f"{model}Model" if model.endswith("LMHead") else model
        text(
            family.lower(), lambda m=model, f=family, c=config: hugging(m, f"{f}Config", ["input_ids"], ["logits"], **c)
        )


def encoders() -> None:
    ids, mask, hidden = "input_ids", "attention_mask", "last_hidden_state"
    distil = {
        "vocab_size": VOCAB,
        "dim": WIDTH,
        "n_layers": 1,
        "n_heads": 4,
        "hidden_dim": 64,
        "max_position_embeddings": 64,
    }
    text("bert", lambda: hugging("BertModel", "BertConfig", [ids, mask], [hidden, "pooler_output"], **TEXT), 2)
    text("distilbert", lambda: hugging("DistilBertModel", "DistilBertConfig", [ids, mask], [hidden], **distil), 2)
    text("roberta", lambda: hugging("RobertaModel", "RobertaConfig", [ids, mask], [hidden], **TEXT), 2)
    clip = {**TEXT, "projection_dim": 16, "eos_token_id": 2, "bos_token_id": 1}
    text("clip_text", lambda: hugging("CLIPTextModel", "CLIPTextConfig", [ids], [hidden], **clip))


def vision() -> None:
    pixels, hidden, logits = ["pixel_values"], ["last_hidden_state"], ["logits"]
    sizes = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
    segformer = {**sizes, "num_attention_heads": [1, 2, 3, 4], "decoder_hidden_size": 16, "num_labels": 5}
    mobilevit = {
        "image_size": 32,
        "hidden_sizes": [16, 24, 32],
        "neck_hidden_sizes": [8, 8, 12, 16, 20, 24, 32],
        "num_attention_heads": 4,
    }
    models: dict[str, tuple[str, str, list[str], dict[str, Any]]] = {
        "vit": ("ViTForImageClassification", "ViTConfig", logits, {**VISION, "num_labels": 10}),
        "deit": ("DeiTModel", "DeiTConfig", hidden, VISION),
        "dinov2": ("Dinov2Model", "Dinov2Config", hidden, VISION),
        "clip_vision": (
            "CLIPVisionModelWithProjection",
            "CLIPVisionConfig",
            ["image_embeds"],
            {**VISION, "projection_dim": 16},
        ),
        "siglip_vision": ("SiglipVisionModel", "SiglipVisionConfig", [*hidden, "pooler_output"], VISION),
        "convnext": ("ConvNextModel", "ConvNextConfig", [*hidden, "pooler_output"], sizes),
        "convnextv2": ("ConvNextV2Model", "ConvNextV2Config", hidden, sizes),
        "segformer": ("SegformerForSemanticSegmentation", "SegformerConfig", logits, segformer),
        "mobilevit": ("MobileViTModel", "MobileViTConfig", hidden, mobilevit),
        "yolos": (
            "YolosForObjectDetection",
            "YolosConfig",
            [*logits, "pred_boxes"],
            {
                **VISION,
                "image_size": [32, 32],
                "num_detection_tokens": 5,
                "num_labels": 4,
                "use_mid_position_embeddings": False,
            },
        ),
    }
    for name, (model, config, outputs, settings) in models.items():
        side = 64 if name in ("convnext", "convnextv2", "segformer") else 32
        eager = {"attn_implementation": "eager"} if name in ("convnext", "convnextv2", "segformer", "mobilevit") else {}
        ZOO[name] = lambda m=model, c=config, o=outputs, s={**settings, **eager}, n=side: image(
            hugging(m, c, pixels, o, **s), n
        )


def quantized() -> None:
    def four_bits(build: Callable[[], Entry], *, is_dynamic: bool) -> Entry:
        from torchao.quantization.granularity import PerGroup
        from torchao.quantization.quant_api import (
            Int8DynamicActivationIntxWeightConfig,
            IntxWeightOnlyConfig,
            quantize_,
        )
        from torchao.utils import unwrap_tensor_subclass

        made = build()
        initialize(made.model)
        group = PerGroup(32)
        config = (
            Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=group)
            if is_dynamic
            else IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=group)
        )
        quantize_(made.model.eval(), config)
        unwrap_tensor_subclass(made.model)
        made.is_initialized, made.tolerance = True, 5e-2 if is_dynamic else 2e-2
        return made

    def eight_bits(build: Callable[[], Entry], **settings: Any) -> Entry:
        from executorch.backends.vulkan.quantizer.vulkan_quantizer import (
            VulkanQuantizer,
            get_symmetric_quantization_config,
        )
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        made = build()
        initialize(made.model)
        quantizer = VulkanQuantizer().set_global(
            get_symmetric_quantization_config(is_dynamic=False, weight_bits=8, **settings)
        )
        traced = prepare_pt2e(torch.export.export(made.model.eval(), made.calls[0], strict=True).module(), quantizer)
        traced(*made.calls[0])
        return Entry(convert_pt2e(traced), made.calls, tolerance=5e-2, is_initialized=True)

    ZOO["bert_4w"] = lambda: four_bits(ZOO["bert"], is_dynamic=False)
    ZOO["qwen2_8da4w_dyn"] = lambda: four_bits(ZOO["qwen2_dyn"], is_dynamic=True)
    ZOO["resnet_q8"] = lambda: eight_bits(ZOO["resnet"], act_bits=8)
    ZOO["vit_q8w"] = lambda: eight_bits(ZOO["vit"])


def full_size() -> None:
    """For comparisons of speed; exported only if they are named."""
    small = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "intermediate_size": 1536}
    vit = {**small, "image_size": 224, "patch_size": 16, "num_labels": 1000}
    BIG["resnet18_224"] = lambda: image(resnet(64, 4, 2, 1000), 224)
    BIG["vit_s_224"] = lambda: image(
        hugging("ViTForImageClassification", "ViTConfig", ["pixel_values"], ["logits"], **vit), 224
    )


full_size()
decoders()
encoders()
vision()
quantized()


class Sentence(nn.Module):
    """A sentence embedding: the mean of the hidden states where the mask is 1, of length 1."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        import transformers

        self.model = transformers.BertModel.from_pretrained(folder)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        return F.normalize((hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9), dim=1)


SENTENCES = (
    "The quick brown fox jumps over the lazy dog near the river bank.",
    "A man is eating food.",
    "Someone has a meal.",
    "Shaders written in WGSL run in a browser, on any GPU.",
)


def sentences(folder: str) -> None:
    """MiniLM with its real weights: `folder` is a download of sentence-transformers/all-MiniLM-L6-v2."""

    def encoded(length: int | None) -> list[Tensors]:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
        tokenizer.no_truncation()
        tokenizer.enable_padding(length=length) if length else tokenizer.no_padding()
        found = [tokenizer.encode(s) for s in SENTENCES]
        return [(torch.tensor([e.ids]), torch.tensor([e.attention_mask])) for e in found]

    length = Dim("s", min=2, max=128)
    ZOO["minilm"] = lambda: Entry(Sentence(folder), encoded(32), is_initialized=True)
    ZOO["minilm_dyn"] = lambda: Entry(Sentence(folder), encoded(None), ({1: length}, {1: length}), is_initialized=True)
