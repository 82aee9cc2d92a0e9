"""Further models for `bench/zoo.py`: encoder-decoders, vision in stages, audio, points, diffusion, experts."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.export import Dim
from zoo_models import DECODER, TEXT, hugging, text
from zoo_nets import LENGTH, VOCAB, WIDTH, ZOO, Entry, Tensors, entry, image, noise, tokens

SEQ2SEQ = {
    "vocab_size": VOCAB,
    "d_model": WIDTH,
    **{f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 1), ("attention_heads", 4))},
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "use_cache": False,
}
T5 = {"vocab_size": VOCAB, "d_model": WIDTH, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4, "use_cache": False}


def encoders() -> None:
    ids, mask, hidden = "input_ids", "attention_mask", "last_hidden_state"
    relative = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
    both = ["AlbertModel Albert", "ElectraModel Electra", "MPNetModel MPNet", "DebertaV2Model DebertaV2"]
    settings: list[dict[str, Any]] = [
        {"embedding_size": 16},
        {"embedding_size": 16},
        {},
        {**relative, "position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"},
    ]
    for names, extra in zip(both, settings, strict=True):
        model, family = names.split()
        text(
            family.lower(),
            lambda m=model, f=family, e=extra: hugging(
                m, f"{f}Config", [ids, mask], [hidden], **TEXT, **e, attn_implementation="eager"
            ),
            2,
        )
    text("t5_encoder", lambda: hugging("T5EncoderModel", "T5Config", [ids, mask], [hidden], **T5), 2)


def decoders() -> None:
    gptj = {"vocab_size": VOCAB, "n_embd": WIDTH, "n_layer": 1, "n_head": 4, "n_positions": 64, "rotary_dim": 4}
    bloom = {"vocab_size": VOCAB, "hidden_size": WIDTH, "n_layer": 1, "n_head": 4}
    window = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8}
    mamba = {"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4, "use_mambapy": False}
    mixture = {**DECODER, "num_local_experts": 4, "num_experts_per_tok": 2}
    eager = {"attn_implementation": "eager"}
    settings: dict[str, dict[str, Any]] = {
        "GPTJForCausalLM GPTJ": {**gptj, **eager},
        "BloomForCausalLM Bloom": {**bloom, **eager},
        "FalconForCausalLM Falcon": {**TEXT, "new_decoder_architecture": False},
        "Phi3ForCausalLM Phi3": DECODER,
        "Gemma3ForCausalLM Gemma3Text": {**DECODER, **window},
        "CohereForCausalLM Cohere": DECODER,
        "Starcoder2ForCausalLM Starcoder2": {**DECODER, "sliding_window": 8},
        "Lfm2ForCausalLM Lfm2": {**DECODER, "num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]},
        "MixtralForCausalLM Mixtral": mixture,
        "MambaForCausalLM Mamba": {**mamba, **eager},
    }
    for names, config in settings.items():
        model, family = names.split()
        text(
            family.lower().removesuffix("text"),
            lambda m=model, f=family, c=config: hugging(m, f"{f}Config", ["input_ids"], ["logits"], **c),
        )


def pairs() -> None:
    """Encoder-decoders: one entry with fixed lengths, and one in which both lengths change, each alone."""
    for name, model, config, settings in (
        ("bart", "BartForConditionalGeneration", "BartConfig", SEQ2SEQ),
        ("marian", "MarianMTModel", "MarianConfig", SEQ2SEQ),
        ("t5", "T5ForConditionalGeneration", "T5Config", {**T5, "decoder_start_token_id": 0}),
    ):

        def build(m: str = model, c: str = config, s: dict[str, Any] = settings) -> nn.Module:
            return hugging(m, c, ["input_ids", "decoder_input_ids"], ["logits"], **s)

        lengths = ((LENGTH, 8), (5, 2), (32, 16))
        dims = (({1: Dim("a", min=2, max=32)}, {1: Dim("b", min=2, max=16)}),)
        calls = [(tokens(1, a), tokens(1, b)) for a, b in lengths]
        ZOO[name] = lambda b=build, c=calls: Entry(b(), c[:1])
        ZOO[f"{name}_dyn"] = lambda b=build, c=calls, d=dims: Entry(b(), c, d)


def vision() -> None:
    stages = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]}
    heads = {"num_attention_heads": [1, 2, 3, 4]}
    swin = {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4], "window_size": 4}
    levit = {
        "image_size": 64,
        "hidden_sizes": [16, 24, 32],
        "num_attention_heads": [2, 3, 4],
        "depths": [1, 1, 1],
        "key_dim": [8, 8, 8],
        "num_labels": 10,
        "down_ops": [["Subsample", 8, 2, 4, 2, 2], ["Subsample", 8, 3, 4, 2, 2]],
    }
    logits = ["logits"]
    for name, model, outputs, side, settings in (
        ("swin", "SwinModel", ["last_hidden_state"], 32, swin),
        ("levit", "LevitForImageClassification", logits, 64, levit),
        ("regnet", "RegNetForImageClassification", logits, 64, {**stages, "embedding_size": 8, "groups_width": 8}),
        ("poolformer", "PoolFormerForImageClassification", logits, 64, stages),
        ("pvt_v2", "PvtV2ForImageClassification", logits, 64, {**stages, **heads, "image_size": 64}),
        ("bit", "BitForImageClassification", logits, 64, {**stages, "embedding_size": 8, "num_groups": 4}),
    ):
        config = model.split("ForImage")[0].removesuffix("Model") + "Config"
        ZOO[name] = lambda m=model, c=config, o=outputs, s=settings, n=side: image(
            hugging(m, c, ["pixel_values"], o, attn_implementation="eager", **s), n
        )


def audio() -> None:
    mel = {"num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 16}
    whisper = {**{k: v for k, v in SEQ2SEQ.items() if k != "max_position_embeddings"}, **mel}
    speech = {**TEXT, "conv_dim": (8,) * 7, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4}
    speech.pop("max_position_embeddings")

    class Part(nn.Module):
        """Whisper's encoder or decoder alone."""

        def __init__(self, part: str) -> None:
            super().__init__()
            import transformers

            self.part = getattr(transformers.WhisperModel(transformers.WhisperConfig(**whisper)), part)

        def forward(self, x: torch.Tensor, encoded: torch.Tensor | None = None) -> torch.Tensor:
            if encoded is None:
                return self.part(x).last_hidden_state
            return self.part(input_ids=x, encoder_hidden_states=encoded, use_cache=False).last_hidden_state

    calls: list[Tensors] = [(tokens(1, n), noise(1, 20, WIDTH)) for n in (8, 16, 2)]
    ZOO["whisper_encoder"] = lambda: Entry(Part("encoder"), [(noise(1, 16, 40),)])
    ZOO["whisper_decoder_dyn"] = lambda: Entry(Part("decoder"), calls, ({1: Dim("s", min=2, max=16)}, None))
    for name, family in (("wav2vec2", "Wav2Vec2"), ("hubert", "Hubert")):
        ZOO[name] = lambda f=family: Entry(
            hugging(f"{f}ForCTC", f"{f}Config", ["input_values"], ["logits"], **speech), [(noise(1, 1200),)]
        )


class Points(nn.Module):
    """PointNet: a learned rotation, features of each point, and their maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.angles, self.features, self.head = nn.Linear(16, 9), nn.Conv1d(3, 32, 1), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turn = self.angles(self.turn(x).max(2)[0]).view(-1, 3, 3) + torch.eye(3)
        turned = torch.bmm(x.transpose(1, 2), turn).transpose(1, 2)
        return F.log_softmax(self.head(self.features(turned).max(2)[0]), -1)


class Denoiser(nn.Module):
    """A step of a latent diffusion model: the time, a text by cross-attention, one level down and up."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.into = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16)), nn.Conv2d(4, 16, 3, 1, 1)
        self.norm, self.down = nn.GroupNorm(4, 16), nn.Conv2d(16, 16, 3, 2, 1)
        self.q, self.kv, self.out = nn.Linear(16, 16), nn.Linear(12, 32), nn.Conv2d(32, 4, 3, 1, 1)

    def forward(self, x: torch.Tensor, t: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        angles = t[:, None].float() * torch.exp(-2.3 * torch.arange(4))[None]
        h = self.into(x) + self.time(torch.cat([angles.cos(), angles.sin()], -1))[:, :, None, None]
        deep = self.down(F.silu(self.norm(h)))
        q = self.q(deep.flatten(2).transpose(1, 2)).unflatten(-1, (4, 4)).transpose(1, 2)
        k, v = self.kv(words).unflatten(-1, (8, 4)).transpose(1, 2).chunk(2, 1)
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        up = F.interpolate(deep + seen.transpose(1, 2).unflatten(2, (8, 8)), scale_factor=2.0, mode="nearest")
        return self.out(torch.cat([h, up], 1))


class Styled(nn.Module):
    """A generator whose convolution weight depends on the input, as in StyleGAN 2."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.weight = nn.Parameter(torch.zeros(1, 8, 4, 4)), nn.Parameter(torch.zeros(8, 8, 3, 3))
        self.style, self.out = nn.Linear(16, 8), nn.Conv2d(8, 3, 1)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        weight = self.weight * self.style(z)[0][None, :, None, None]
        weight = weight * torch.rsqrt(weight.square().sum((1, 2, 3), keepdim=True) + 1e-8)
        x = F.conv2d(F.interpolate(self.start, scale_factor=2, mode="bilinear"), weight, padding=1)
        return torch.tanh(self.out(F.leaky_relu(x, 0.2)))


class Messages(nn.Module):
    """Two layers of a graph network; edges are pairs of node numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        for layer in (self.a, self.b):
            x = layer(x + torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])).relu()
        return x


class RoundedCache(nn.Module):
    """Attention to 8-bit rows, old and new, as ExecuTorch's --quantize_kv_cache has them."""

    def forward(self, q: torch.Tensor, new: torch.Tensor, rows: torch.Tensor, scales: torch.Tensor) -> Tensors:
        ops = torch.ops.quantized_decomposed
        scale, zero = ops.choose_qparams_per_token_asymmetric(new, torch.int8)
        rounded = ops.quantize_per_token(new, scale, zero, -128, 127, torch.int8)
        rows, scales = torch.cat([rows, rounded], 1), torch.cat([scales, scale.float()], 1)
        zeros = torch.cat([rows[:, : -new.shape[1], :1].int(), zero.int()], 1)
        past = ops.dequantize_per_token(rows, scales, zeros, -128, 127, torch.int8, torch.float32)
        return F.softmax(q @ past.transpose(1, 2), -1) @ past, rounded


class Table(nn.Module):
    """A 4-bit embedding with groups, whose rows are not a multiple of 32."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randint(0, 256, (VOCAB, 20), dtype=torch.uint8))
        self.register_buffer("scales", torch.rand(VOCAB, 4) + 0.1)
        self.out = nn.Linear(40, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        embed = torch.ops.quantized_decomposed.embedding_4bit.dtype
        return self.out(embed(self.table, self.scales, None, -8, 7, ids, dtype=torch.float32))


@entry
def embedding_4bit_dyn() -> Entry:
    import executorch.exir.passes._quant_patterns_and_replacements  # noqa: F401 (registers the op)

    return Entry(Table(), [(tokens(1, n),) for n in (LENGTH, 32, 2)], ({1: Dim("s", min=2, max=32)},))


@entry
def rounded_cache_dyn() -> Entry:
    import torch.ao.quantization.fx._decomposed

    def call(length: int, past: int) -> Tensors:
        old = torch.randint(-128, 128, (2, past, 16), dtype=torch.int8)
        return noise(2, length, 16), noise(2, length, 16), old, torch.rand(2, past, 1) * 0.01 + 0.001

    new, old = Dim("new", min=1, max=8), Dim("old", min=2, max=32)
    return Entry(RoundedCache(), [call(5, 20), call(8, 32), call(1, 2)], ({1: new}, {1: new}, {1: old}, {1: old}))


@entry
def points_dyn() -> Entry:
    return Entry(Points(), [(noise(2, 3, n),) for n in (50, 64, 7)], ({2: Dim("n", min=2, max=64)},))


@entry
def diffusion() -> Entry:
    return Entry(Denoiser(), [(noise(1, 4, 16, 16), torch.tensor([500]), noise(1, 7, 12))])


@entry
def style_generator() -> Entry:
    return Entry(Styled(), [(noise(1, 16),)])


@entry
def graph_network() -> Entry:
    return Entry(Messages(), [(noise(20, 8), torch.randint(0, 20, (2, 40)))])


encoders()
decoders()
pairs()
vision()
audio()
