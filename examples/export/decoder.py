"""A transformers model as ExecuTorch's decoder: the same weights, in the form that its exporter turns into a .pte."""

from __future__ import annotations

import math
from typing import Any

import torch
from executorch.examples.models.llama.feed_forward import FeedForward
from executorch.examples.models.llama.llama_transformer import Transformer, construct_transformer
from executorch.examples.models.llama.model_args import ModelArgs
from executorch.examples.models.llama.norm import RMSNorm
from executorch.examples.models.llama.rope import Rope
from torch import Tensor, nn

MODEL_TYPES = ("llama", "qwen2", "qwen3", "smollm3", "gemma3_text")

TOP_NAMES = {
    "model.embed_tokens.weight": "tok_embeddings.weight",
    "model.norm.weight": "norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER_NAMES = {
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "self_attn.q_norm": "attention.q_norm_fn",
    "self_attn.k_norm": "attention.k_norm_fn",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
}
# Gemma 3 also normalizes what attention and feed-forward return, before it is added to the residual.
GEMMA_NAMES = LAYER_NAMES | {
    "self_attn.o_proj": "attention.wo.0",
    "post_attention_layernorm": "attention.wo.1",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffn_norm",
}


class GeluFeedForward(FeedForward):
    """The gated feed-forward of Gemma: tanh-approximated GELU in place of SiLU."""

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(nn.functional.gelu(self.w1(x), approximate="tanh") * self.w3(x))


class NoRotation(nn.Module):
    """The rotary embedding of a layer that has none (SmolLM3: every fourth layer)."""

    def forward(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return q, k


class LocalRope(nn.Module):
    """A layer with cos and sin tables of its own (Gemma 3: the layers with a sliding window)."""

    def __init__(self, block: nn.Module, rope: Rope) -> None:
        super().__init__()
        self.block, self.local_rope = block, rope

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, options: dict[str, Any]) -> Any:
        return self.block(x, *self.local_rope.get_freqs(options["input_pos"], x.shape[1]), options)


def largest_context(config: Any, wanted: int) -> int:
    """The context to export with: sliding windows are exact only while the whole context fits into one."""
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        wanted = min(wanted, config.sliding_window)
    return min(wanted, config.max_position_embeddings)


def build(model: Any, context: int, max_seq_len: int) -> Transformer:
    """ExecuTorch's decoder with the weights of `model`, mostly shared with it, and room for `context` positions."""
    config = model.config
    is_gemma = config.model_type == "gemma3_text"
    weights = model.state_dict()
    args = ModelArgs(
        dim=config.hidden_size,
        hidden_dim=config.intermediate_size,
        n_layers=config.num_hidden_layers,
        n_heads=config.num_attention_heads,
        n_kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        vocab_size=config.vocab_size,
        norm_eps=config.rms_norm_eps,
        attention_qkv_bias="model.layers.0.self_attn.q_proj.bias" in weights,
        use_qk_norm="model.layers.0.self_attn.q_norm.weight" in weights,
        qk_norm_before_rope=True,
        use_hf_rope=True,
        max_seq_len=max_seq_len,
        max_context_len=context,
        use_kv_cache=True,
        use_sdpa_with_kv_cache_op=True,
        enable_dynamic_shape=True,
    )
    with torch.device("meta"):
        decoder = construct_transformer(args)
        if is_gemma:
            for block in decoder.layers:
                block.attention.wo = nn.Sequential(block.attention.wo, RMSNorm(args.dim, args.norm_eps))
                block.feed_forward = GeluFeedForward(args.dim, args.hidden_dim)
                block.post_ffn_norm = RMSNorm(args.dim, args.norm_eps)
    named = rename(weights, GEMMA_NAMES if is_gemma else LAYER_NAMES)
    if is_gemma:
        fold_gemma(named, config, args)
    absent, unknown = decoder.load_state_dict(named, strict=False, assign=True)
    absent = [name for name in absent if name.endswith((".weight", ".bias"))]
    if absent or unknown:
        raise ValueError(f"weights without a place: {unknown[:4]}; places without weights: {absent[:4]}")
    set_tables(decoder.rope, model, "full_attention" if is_gemma else None)
    mask = decoder.layers[0].attention.mask
    for index, block in enumerate(decoder.layers):
        block.attention.mask = mask  # shared, because it has context² elements
        if not (getattr(config, "no_rope_layers", None) or [1] * args.n_layers)[index]:
            block.attention.rope = NoRotation()
        elif is_gemma and config.layer_types[index] == "sliding_attention":
            rope = Rope(args)
            set_tables(rope, model, "sliding_attention")
            decoder.layers[index] = LocalRope(block, rope)
    return decoder.eval()


def rename(weights: dict[str, Tensor], layer_names: dict[str, str]) -> dict[str, Tensor]:
    """The weights under ExecuTorch's names; a name that is not known stays, to be refused by name."""
    named = {}
    for name, tensor in weights.items():
        if name.startswith("model.layers."):
            _, _, index, rest = name.split(".", 3)
            part, kind = rest.rsplit(".", 1)
            named[f"layers.{index}.{layer_names.get(part, part)}.{kind}"] = tensor
        else:
            named[TOP_NAMES.get(name, name)] = tensor
    named.setdefault("output.weight", named["tok_embeddings.weight"])
    return named


def fold_gemma(named: dict[str, Tensor], config: Any, args: ModelArgs) -> None:
    """Put into the weights what Gemma computes beside them: 1 + w in norms, the scales of embedding and queries."""
    for name, tensor in named.items():
        if tensor.dim() == 1:  # only norms: Gemma has no biases
            named[name] = 1 + tensor
    named["tok_embeddings.weight"] = named["tok_embeddings.weight"] * math.sqrt(args.dim)
    query_scale = math.sqrt(args.head_dim / config.query_pre_attn_scalar)
    for index in range(args.n_layers):
        named[f"layers.{index}.attention.q_norm_fn.weight"] *= query_scale


def set_tables(rope: Rope, model: Any, layer_type: str | None) -> None:
    """Take cos and sin from transformers, which knows every way of scaling them."""
    positions = torch.arange(rope.freqs_cos.shape[0])[None]
    more = (layer_type,) if layer_type else ()
    cos, sin = model.model.rotary_emb(torch.zeros(1), positions, *more)
    rope.freqs_cos, rope.freqs_sin = cos[0].float().contiguous(), sin[0].float().contiguous()
