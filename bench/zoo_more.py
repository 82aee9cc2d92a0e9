# ruff: noqa: E501 (one line per model)
"""Still more models of transformers for `bench/zoo.py`: one line each, in families that the other files do not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from zoo_families import SEQ2SEQ
from zoo_models import DECODER, TEXT, VISION, hugging, text
from zoo_nets import VOCAB, WIDTH, ZOO, Entry, image, noise, tokens

IDS, MASK, HIDDEN, LOGITS, PIXELS = "input_ids", "attention_mask", "last_hidden_state", "logits", "pixel_values"
EAGER = {"attn_implementation": "eager"}
NO_SDPA = "gpt_neo rwkv mpt ctrl mamba2 falcon_mamba gpt_oss codegen xlstm xglm vaultgemma"


def encoders() -> None:
    longest = {**TEXT, "max_position_embeddings": 64}
    for name, model, config, settings in (
        ("modernbert", "ModernBertModel", "ModernBertConfig", {**longest, "pad_token_id": 0, "local_attention": 8}),
        ("mobilebert", "MobileBertModel", "MobileBertConfig", {**longest, "intra_bottleneck_size": 16, "embedding_size": 16}),
        ("squeezebert", "SqueezeBertModel", "SqueezeBertConfig", {**longest, "embedding_size": WIDTH}),
        ("convbert", "ConvBertModel", "ConvBertConfig", {**longest, "embedding_size": WIDTH}),
        ("roformer", "RoFormerModel", "RoFormerConfig", {**longest, "embedding_size": WIDTH}),
        ("esm", "EsmModel", "EsmConfig", {**longest, "position_embedding_type": "rotary", "pad_token_id": 1}),
        ("rembert", "RemBertModel", "RemBertConfig", {**longest, "input_embedding_size": 16}),
        ("nystromformer", "NystromformerModel", "NystromformerConfig", {**longest, "num_landmarks": 4, "segment_means_seq_len": 12}),
        ("fnet", "FNetModel", "FNetConfig", longest),
        ("xlm_roberta", "XLMRobertaModel", "XLMRobertaConfig", {**longest, "type_vocab_size": 1}),
        ("ibert", "IBertModel", "IBertConfig", longest),
        ("eurobert", "EuroBertModel", "EuroBertConfig", DECODER),
        ("nomic_bert", "NomicBertModel", "NomicBertConfig", longest),
        ("megatron_bert", "MegatronBertModel", "MegatronBertConfig", longest),
        ("canine", "CanineModel", "CanineConfig", {**longest, "num_hash_buckets": 64, "local_transformer_stride": 4, "downsampling_rate": 4, "upsampling_kernel_size": 2}),
        ("longformer", "LongformerModel", "LongformerConfig", {**longest, "attention_window": [4], "max_position_embeddings": 80}),
        ("funnel", "FunnelBaseModel", "FunnelConfig", {"vocab_size": VOCAB, "d_model": WIDTH, "n_head": 4, "d_head": 8, "d_inner": 64, "block_sizes": [1, 1]}),
        ("xlnet", "XLNetModel", "XLNetConfig", {"vocab_size": VOCAB, "d_model": WIDTH, "n_head": 4, "n_layer": 1, "d_inner": 64}),
    ):  # fmt: skip
        masked = [] if name == "fnet" else [MASK]
        text(
            name,
            lambda m=model, c=config, s=settings, i=masked: hugging(m, c, [IDS, *i], [HIDDEN], **EAGER, **s),
            1 + len(masked),
        )


def decoders() -> None:
    window = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    latent = {"q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8}
    state = {"vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": 1, "state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 8}  # fmt: skip
    plain = {k: DECODER[k] for k in ("pad_token_id", "bos_token_id", "eos_token_id")}
    for name, family, settings in (
        ("smollm3", "SmolLM3", {**DECODER, "no_rope_layers": [1]}),
        ("olmo", "Olmo", DECODER),
        ("olmo3", "Olmo3", {**DECODER, **window}),
        ("olmoe", "Olmoe", {**DECODER, **experts}),
        ("qwen2_moe", "Qwen2Moe", {**DECODER, **experts, "shared_expert_intermediate_size": 32}),
        ("qwen3_moe", "Qwen3Moe", {**DECODER, **experts, "head_dim": 8}),
        ("qwen3_next", "Qwen3Next", {**DECODER, **experts, "shared_expert_intermediate_size": 16, "head_dim": 8, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}),
        ("deepseek_v2", "DeepseekV2", {**DECODER, **latent, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 0, "n_group": 1, "topk_group": 1, "num_key_value_heads": 4}),
        ("deepseek_v3", "DeepseekV3", {**DECODER, **latent, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 0, "n_group": 2, "topk_group": 1, "num_key_value_heads": 4}),
        ("minicpm3", "MiniCPM3", {**DECODER, **latent, "num_key_value_heads": 4}),
        ("gpt_oss", "GptOss", {**DECODER, **window, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2}),
        ("gpt_neo", "GPTNeo", {"vocab_size": VOCAB, "hidden_size": WIDTH, "max_position_embeddings": 64, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 4, **plain}),
        ("gpt_bigcode", "GPTBigCode", {"vocab_size": VOCAB, "n_embd": WIDTH, "n_layer": 1, "n_head": 4, "n_positions": 64, **plain}),
        ("codegen", "CodeGen", {"vocab_size": VOCAB, "n_embd": WIDTH, "n_layer": 1, "n_head": 4, "n_positions": 64, "rotary_dim": 4, **plain}),
        ("mpt", "Mpt", {"vocab_size": VOCAB, "d_model": WIDTH, "n_layers": 1, "n_heads": 4, "max_seq_len": 64, **plain}),
        ("nemotron", "Nemotron", DECODER),
        ("persimmon", "Persimmon", DECODER),
        ("cohere2", "Cohere2", {**DECODER, **window}),
        ("helium", "Helium", {**DECODER, "head_dim": 8}),
        ("glm", "Glm", {**DECODER, "head_dim": 8}),
        ("glm4", "Glm4", {**DECODER, "head_dim": 8}),
        ("exaone4", "Exaone4", {**DECODER, **window}),
        ("ernie4_5", "Ernie4_5", {**DECODER, "head_dim": 8}),
        ("arcee", "Arcee", DECODER),
        ("bitnet", "BitNet", DECODER),
        ("diffllama", "DiffLlama", DECODER),
        ("seed_oss", "SeedOss", {**DECODER, "head_dim": 8}),
        ("apertus", "Apertus", DECODER),
        ("doge", "Doge", DECODER),
        ("ministral", "Ministral", {**DECODER, "sliding_window": 8, "head_dim": 8}),
        ("granitemoe", "GraniteMoe", {**DECODER, "num_local_experts": 4, "num_experts_per_tok": 2}),
        ("phimoe", "Phimoe", {**DECODER, "num_local_experts": 4, "num_experts_per_tok": 2}),
        ("jetmoe", "JetMoe", {**DECODER, "num_local_experts": 4, "num_experts_per_tok": 2, "kv_channels": 8, "num_key_value_heads": 2}),
        ("mamba2", "Mamba2", {**state, "expand": 2}),
        ("falcon_mamba", "FalconMamba", {"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}),
        ("rwkv", "Rwkv", {"vocab_size": VOCAB, "hidden_size": WIDTH, "attention_hidden_size": WIDTH, "num_hidden_layers": 2, "context_length": 64}),
        ("recurrent_gemma", "RecurrentGemma", {**DECODER, "num_hidden_layers": 3, "lru_width": WIDTH, "attention_window_size": 8}),
        ("xlstm", "xLSTM", {"vocab_size": VOCAB, "hidden_size": 64, "num_heads": 4, "num_blocks": 1, "num_hidden_layers": 1, "mode": "inference", "chunkwise_kernel": "chunkwise--native_autograd", "chunk_size": 4}),
        ("falcon_h1", "FalconH1", {**DECODER, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 4, "head_dim": 8}),
        ("xglm", "XGLM", {"vocab_size": VOCAB, "d_model": WIDTH, "num_layers": 1, "attention_heads": 4, "ffn_dim": 64, "max_position_embeddings": 64}),
        ("biogpt", "BioGpt", TEXT),
        ("ctrl", "CTRL", {"vocab_size": VOCAB, "n_embd": WIDTH, "n_layer": 1, "n_head": 4, "dff": 64, "n_positions": 64}),
        ("nanochat", "NanoChat", DECODER),
        ("vaultgemma", "VaultGemma", {**DECODER, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8}),
        ("gemma3n", "Gemma3n", {**DECODER, "head_dim": 8, "num_hidden_layers": 2, "intermediate_size": [64, 64], "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8, "vocab_size_per_layer_input": VOCAB, "hidden_size_per_layer_input": 8, "laurel_rank": 4, "num_kv_shared_layers": 0, "activation_sparsity_pattern": [0.5, 0.0]}),
    ):  # fmt: skip
        model = {"CTRL": "CTRLLMHeadModel"}.get(family, f"{family}ForCausalLM")
        config = {"Gemma3n": "Gemma3nTextConfig"}.get(family, f"{family}Config")
        extra = EAGER if name in NO_SDPA.split() else {}
        text(name, lambda m=model, c=config, s={**settings, **extra}: hugging(m, c, [IDS], [LOGITS], **s))


def pairs() -> None:
    """Encoder-decoders with fixed lengths."""
    t5 = {"vocab_size": VOCAB, "d_model": WIDTH, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4, "use_cache": False, "decoder_start_token_id": 0}  # fmt: skip
    for name, model, config, settings in (
        ("pegasus", "PegasusForConditionalGeneration", "PegasusConfig", SEQ2SEQ),
        ("m2m_100", "M2M100ForConditionalGeneration", "M2M100Config", SEQ2SEQ),
        ("mbart", "MBartForConditionalGeneration", "MBartConfig", SEQ2SEQ),
        ("blenderbot", "BlenderbotForConditionalGeneration", "BlenderbotConfig", SEQ2SEQ),
        ("umt5", "UMT5ForConditionalGeneration", "UMT5Config", t5),
        ("switch", "SwitchTransformersForConditionalGeneration", "SwitchTransformersConfig", {**t5, "num_experts": 2, "expert_capacity": 8}),
        ("longt5", "LongT5ForConditionalGeneration", "LongT5Config", {**t5, "local_radius": 3}),
        ("prophetnet", "ProphetNetForConditionalGeneration", "ProphetNetConfig", {"vocab_size": VOCAB, "hidden_size": WIDTH, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_encoder_layers": 1, "num_decoder_layers": 1, "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4, "max_position_embeddings": 64, "ngram": 2}),
    ):  # fmt: skip
        ZOO[name] = lambda m=model, c=config, s=settings: Entry(
            hugging(m, c, [IDS, "decoder_input_ids"], [LOGITS], **s, **EAGER), [(tokens(1, 12), tokens(1, 6))]
        )


def vision() -> None:
    four = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
    windows = {
        "image_size": 32,
        "patch_size": 4,
        "embed_dim": 16,
        "depths": [1, 1],
        "num_heads": [2, 4],
        "window_size": 4,
    }
    resnet = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "layer_type": "basic"}  # fmt: skip
    detr = {"d_model": WIDTH, **{f"{s}_{k}": n for s in ("encoder", "decoder") for k, n in (("layers", 1), ("attention_heads", 4), ("ffn_dim", 64))}, "num_queries": 6, "num_labels": 4, "use_timm_backbone": False, "backbone": None, "use_pretrained_backbone": False}  # fmt: skip
    table: list[tuple[str, str, list[str], int, dict[str, Any]]] = [
        ("mobilenet_v1", "MobileNetV1ForImageClassification", [LOGITS], 64, {"depth_multiplier": 0.25}),
        ("swinv2", "Swinv2Model", [HIDDEN], 32, windows),
        ("focalnet", "FocalNetModel", [HIDDEN], 32, {"image_size": 32, "embed_dim": 16, "depths": [1, 1], "focal_levels": [2, 2], "focal_windows": [3, 3]}),
        ("swiftformer", "SwiftFormerForImageClassification", [LOGITS], 64, {"depths": [1, 1, 1, 1], "embed_dims": [8, 16, 24, 32], "image_size": 64}),
        ("hiera", "HieraModel", [HIDDEN], 64, {"image_size": [64, 64], "embed_dim": 16, "depths": [1, 1, 1], "num_heads": [1, 2, 4], "num_query_pool": 2, "masked_unit_size": [4, 4]}),
        ("dinov3_vit", "DINOv3ViTModel", [HIDDEN], 32, {**VISION, "hidden_size": 64}),
        ("dinov3_convnext", "DINOv3ConvNextModel", [HIDDEN], 64, four),
        ("dinov2_registers", "Dinov2WithRegistersModel", [HIDDEN], 32, VISION),
        ("vitdet", "VitDetModel", [HIDDEN], 32, {**VISION, "window_size": 2, "use_relative_position_embeddings": True, "mlp_ratio": 2, "pretrain_image_size": 32}),
        ("vit_msn", "ViTMSNModel", [HIDDEN], 32, VISION),
        ("ijepa", "IJepaModel", [HIDDEN], 32, VISION),
        ("mobilevitv2", "MobileViTV2Model", [HIDDEN], 64, {"image_size": 64, "width_multiplier": 0.25}),
        ("pvt", "PvtForImageClassification", [LOGITS], 64, {**four, "image_size": 64, "num_attention_heads": [1, 2, 3, 4], "strides": [4, 2, 2, 2]}),
        ("hgnet_v2", "HGNetV2ForImageClassification", [LOGITS], 64, {"embedding_size": 8, "stem_channels": [3, 8, 8], "stage_in_channels": [8, 16, 24, 32], "stage_mid_channels": [8, 8, 8, 8], "stage_out_channels": [16, 24, 32, 32], "stage_num_blocks": [1, 1, 1, 1], "stage_numb_of_layers": [2, 2, 2, 2], "depths": [1, 1, 1, 1], "hidden_sizes": [16, 24, 32, 32]}),
        ("textnet", "TextNetForImageClassification", [LOGITS], 64, {"stem_out_channels": 8, "hidden_sizes": [8, 16, 24, 32, 32], "image_size": [64, 64], "conv_layer_kernel_sizes": [[[3, 3]], [[3, 1]], [[1, 3]], [[3, 3]]], "conv_layer_strides": [[2], [2], [2], [2]]}),
        ("glpn", "GLPNForDepthEstimation", ["predicted_depth"], 64, {**four, "num_attention_heads": [1, 2, 3, 4], "decoder_hidden_size": 8}),
        ("swin2sr", "Swin2SRForImageSuperResolution", ["reconstruction"], 16, {"image_size": 16, "embed_dim": 16, "depths": [1], "num_heads": [2], "window_size": 4, "upscale": 2}),
        ("upernet", "UperNetForSemanticSegmentation", [LOGITS], 64, {"backbone_config": {**resnet, "out_features": ["stage1", "stage2", "stage3", "stage4"]}, "hidden_size": 16, "auxiliary_in_channels": 24, "auxiliary_channels": 8, "use_auxiliary_head": False, "num_labels": 4}),
        ("vitpose", "VitPoseForPoseEstimation", ["heatmaps"], 32, {"backbone_config": {"model_type": "vitpose_backbone", **VISION, "image_size": [32, 32], "patch_size": [8, 8], "out_features": ["stage1"]}, "num_labels": 5}),
        ("conditional_detr", "ConditionalDetrForObjectDetection", [LOGITS, "pred_boxes"], 64, {**detr, "backbone_config": {**resnet, "out_features": ["stage4"]}}),
        ("clipseg_vision", "CLIPSegVisionModel", [HIDDEN], 32, VISION),
        ("owlvit_vision", "OwlViTVisionModel", [HIDDEN], 32, VISION),
        ("blip_vision", "BlipVisionModel", [HIDDEN], 32, VISION),
        ("data2vec_vision", "Data2VecVisionModel", [HIDDEN], 32, VISION),
        ("siglip2_like_aimv2", "Aimv2VisionModel", [HIDDEN], 32, {**VISION, "use_head": False}),
        ("sam_vision", "SamVisionModel", [HIDDEN], 32, {**VISION, "output_channels": 16, "window_size": 2, "global_attn_indexes": [0], "mlp_dim": 64}),
        ("depth_anything", "DepthAnythingForDepthEstimation", ["predicted_depth"], 56, {"backbone_config": {"model_type": "dinov2", **VISION, "image_size": 56, "patch_size": 14, "num_hidden_layers": 4, "out_features": ["stage1", "stage2", "stage3", "stage4"], "reshape_hidden_states": False, "apply_layernorm": True}, "reassemble_hidden_size": WIDTH, "patch_size": 14, "neck_hidden_sizes": [8, 8, 8, 8], "fusion_hidden_size": 8, "head_hidden_size": 8}),
    ]  # fmt: skip
    for name, model, outputs, side, settings in table:
        config = (
            model.split("ForI")[0]
            .split("ForO")[0]
            .split("ForD")[0]
            .split("ForS")[0]
            .split("ForP")[0]
            .removesuffix("Model")
            + "Config"
        )
        ZOO[name] = lambda m=model, c=config, o=outputs, s=settings, n=side: image(
            hugging(m, c, [PIXELS], o, attn_implementation="eager", **s), n
        )


def audio_and_series() -> None:
    speech = {**TEXT, "conv_dim": (8,) * 7, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4}
    speech.pop("max_position_embeddings")
    series = {"prediction_length": 4, "context_length": 16, "d_model": 16, "num_input_channels": 3}
    seconds: Callable[[], list[tuple[torch.Tensor]]] = lambda: [(noise(1, 1200),)]  # noqa: E731
    table: list[tuple[str, str, str, list[str], list[str], dict[str, Any], Callable[[], Any]]] = [
        ("wavlm", "WavLMForCTC", "WavLMConfig", ["input_values"], [LOGITS], {**speech, "num_buckets": 16, "max_bucket_distance": 20}, seconds),
        ("unispeech_sat", "UniSpeechSatForCTC", "UniSpeechSatConfig", ["input_values"], [LOGITS], speech, seconds),
        ("sew", "SEWForCTC", "SEWConfig", ["input_values"], [LOGITS], {**speech, "squeeze_factor": 2, "conv_dim": (8,) * 13}, lambda: [(noise(1, 2400),)]),
        ("data2vec_audio", "Data2VecAudioForCTC", "Data2VecAudioConfig", ["input_values"], [LOGITS], {**speech, "num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 3}, seconds),
        ("audio_spectrogram", "ASTModel", "ASTConfig", ["input_values"], [HIDDEN], {**VISION, "patch_size": 4, "frequency_stride": 4, "time_stride": 4, "max_length": 32, "num_mel_bins": 16}, lambda: [(noise(1, 32, 16),)]),
        ("encodec", "EncodecModel", "EncodecConfig", ["input_values"], ["audio_values"], {"num_filters": 4, "upsampling_ratios": [4, 2], "hidden_size": 16, "codebook_size": 16, "codebook_dim": 16, "num_lstm_layers": 1, "sampling_rate": 800, "target_bandwidths": [1.5]}, lambda: [(noise(1, 1, 160),)]),
        ("univnet", "UnivNetModel", "UnivNetConfig", ["input_features", "noise_sequence"], ["waveforms"], {"model_in_channels": 8, "model_hidden_channels": 8, "num_mel_bins": 8, "resblock_kernel_sizes": [3], "resblock_stride_sizes": [4], "resblock_dilation_sizes": [[1, 3]], "kernel_predictor_hidden_channels": 8}, lambda: [(noise(1, 6, 8), noise(1, 6, 8))]),
        ("patchtsmixer", "PatchTSMixerForPrediction", "PatchTSMixerConfig", ["past_values"], ["prediction_outputs"], {**series, "patch_length": 4, "patch_stride": 4, "num_layers": 1, "loss": "mse"}, lambda: [(noise(1, 16, 3),)]),
        ("timesformer", "TimesformerModel", "TimesformerConfig", [PIXELS], [HIDDEN], {**VISION, "num_frames": 2}, lambda: [(noise(1, 2, 3, 32, 32),)]),
        ("videomae", "VideoMAEModel", "VideoMAEConfig", [PIXELS], [HIDDEN], {**VISION, "num_frames": 4, "tubelet_size": 2}, lambda: [(noise(1, 4, 3, 32, 32),)]),
        ("vivit", "VivitModel", "VivitConfig", [PIXELS], [HIDDEN], {**VISION, "num_frames": 4, "tubelet_size": [2, 8, 8]}, lambda: [(noise(1, 4, 3, 32, 32),)]),
        ("clip", "CLIPModel", "CLIPConfig", [IDS, PIXELS], ["logits_per_image"], {"text_config": {**TEXT, "eos_token_id": 2}, "vision_config": VISION, "projection_dim": 16}, lambda: [(tokens(2, 8), noise(1, 3, 32, 32))]),
        ("siglip_text", "SiglipTextModel", "SiglipTextConfig", [IDS], [HIDDEN, "pooler_output"], TEXT, lambda: [(tokens(1, 12),)]),
        ("decision_transformer", "DecisionTransformerModel", "DecisionTransformerConfig", ["states", "actions", "rewards", "returns_to_go", "timesteps", MASK], ["action_preds"], {"state_dim": 5, "act_dim": 3, "hidden_size": WIDTH, "max_ep_len": 32, "n_layer": 1, "n_head": 4, "n_positions": 64}, lambda: [(noise(1, 6, 5), noise(1, 6, 3), noise(1, 6, 1), noise(1, 6, 1), torch.arange(6)[None], torch.ones(1, 6, dtype=torch.long))]),
    ]  # fmt: skip
    for name, model, config, inputs, outputs, settings, calls in table:
        ZOO[name] = lambda m=model, c=config, i=inputs, o=outputs, s=settings, k=calls: Entry(
            hugging(m, c, i, o, **s, **EAGER), k()
        )


encoders()
decoders()
pairs()
vision()
audio_and_series()
