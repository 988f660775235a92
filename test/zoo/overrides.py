"""Fields whose sizes hang together in a way that their names do not say.

By ``model_type``, by the name of a configuration class where several share one, or by a model class.
"""

from __future__ import annotations

from typing import Any

_HEADS_OF_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8}  # together expand * hidden_size
_SHORT_AUDIO = {
    "conv_dim": (32, 32),
    "conv_stride": (5, 4),
    "conv_kernel": (10, 4),
    "num_feat_extract_layers": 2,
}
_TWO_FILTERS = {"num_filters": 2}  # doubled by each of six stages

OVERRIDES: dict[str, dict[str, Any]] = {
    "audio-spectrogram-transformer": {"max_length": 64, "num_mel_bins": 64},
    "bamba": {**_HEADS_OF_MAMBA, "attn_layer_indices": [1]},
    "bit": {"num_groups": 4},
    "cohere_compass_text": {
        "layer_types": ["full_attention", "full_attention"],
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}},
    },
    "cvt": {"depth": (1, 2, 3), "num_heads": (1, 2, 2), "embed_dim": (8, 16, 32)},
    "data2vec-audio": {"conv_pos_kernel_size": 5, "num_conv_pos_embeddings": 2, **_SHORT_AUDIO},
    "DbrxAttentionConfig": {"rope_theta": 10000.0, "kv_n_heads": 2, "clip_qkv": 8.0},
    "deepseek_v2": {"num_experts_per_tok": 2, "n_routed_experts": 4},
    "donut-swin": {"embed_dim": 8, "depths": (1, 1), "num_heads": (2, 2), "patch_size": 2, "window_size": 4},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "efficientnet": {
        "width_coefficient": 0.25,
        "depth_coefficient": 0.1,
        "hidden_dim": 320,
        "image_size": 32,
        "initializer_range": 0.3,  # with 0.02 signals die out: gradients are 1e-34
        "in_channels": (32, 16, 24, 40, 80, 112, 192),
        "out_channels": (16, 24, 40, 80, 112, 192, 320),
    },
    "esm": {"vocab_size": 64, "pad_token_id": 1, "mask_token_id": 2},
    "focalnet": {"embed_dim": 8, "patch_size": 2},
    "FunAsrNanoAdaptorConfig": {"intermediate_size": 8},
    "gemma3n_text": {"intermediate_size": 64, "activation_sparsity_pattern": None, "num_kv_shared_layers": 0},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {**_HEADS_OF_MAMBA, "layer_types": ["mamba", "attention"]},
    "hiera": {"embed_dim": 8, "num_heads": (1, 1, 2, 2), "image_size": (64, 64)},
    "hgnet_v2": {
        "stem_channels": (3, 8, 8),
        "stage_in_channels": (8, 16, 16, 32),
        "stage_mid_channels": (8, 8, 8, 8),
        "stage_out_channels": (16, 16, 32, 32),
        "stage_num_blocks": (1, 1, 1, 1),
        "stage_numb_of_layers": (2, 2, 2, 2),
        "hidden_sizes": (16, 16, 32, 32),
        "embedding_size": 8,
    },
    "hubert": {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, **_SHORT_AUDIO},
    "jamba": {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
    },
    "levit": {
        "image_size": 64,
        "patch_size": 16,
        "num_attention_heads": (2, 2, 2),
        "hidden_sizes": (16, 24, 32),
        "key_dim": (8, 8, 8),
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 2, "expand": 2},
    "mimi": {"upsample_groups": 32},
    "mobilenet_v1": {"depth_multiplier": 0.25},
    "mobilenet_v2": {"depth_multiplier": 0.25},
    "mobilevit": {"image_size": 64, "patch_size": 2, "hidden_sizes": (16, 16, 16)},
    "mobilevitv2": {"width_multiplier": 0.125, "image_size": 64, "patch_size": 2, "n_attn_blocks": (1, 1, 1)},
    "moonshine_streaming": {"num_key_value_heads": 4},
    "mpnet": {"max_position_embeddings": 66, "relative_attention_num_buckets": 32},
    "neomme": {"head_dim": 16},
    "nystromformer": {"segment_means_seq_len": 16, "num_landmarks": 16, "conv_kernel_size": 5},
    "perceiver": {
        "num_cross_attention_heads": 1,
        "num_self_attention_heads": 1,
        "max_position_embeddings": 16,
    },
    "poolformer": {"num_encoder_blocks": 4, "hidden_sizes": (8, 16, 24, 32), "patch_sizes": (7, 3, 3, 3)},
    "pp_lcnet": {"scale": 0.25, "class_expand": 32},
    "pvt": {
        "num_encoder_blocks": 4,
        "hidden_sizes": (8, 16, 24, 32),
        "patch_sizes": (4, 2, 2, 2),
        "num_attention_heads": (1, 2, 2, 2),
    },
    "qwen4_exp_text": {
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 16,
        "indexer_compress_ratio": 4,
    },
    "ReformerModelWithLMHead": {"is_decoder": True},
    "reformer": {"axial_pos_embds_dim": (8, 24), "axial_pos_shape": (4, 4), "num_buckets": 4},
    "shieldgemma2": {"yes_token_index": 5, "no_token_index": 6},
    "swin": {"embed_dim": 8, "depths": (1, 1), "num_heads": (2, 2), "patch_size": 2, "window_size": 4},
    "swinv2": {"embed_dim": 8, "depths": (1, 1), "num_heads": (2, 2), "patch_size": 2, "window_size": 4},
    "textnet": {"hidden_sizes": (16, 16, 16, 32, 32), "stem_out_channels": 16, "image_size": (64, 64)},
    "xlstm": {
        "chunk_size": 16,
        "mode": "train",
        "autocast_kernel_dtype": "float32",
        "return_last_states": True,
    },
    "xmod": {"default_language": "en_XX"},
    "vibevoice_acoustic_tokenizer": _TWO_FILTERS,
    "vibevoice_acoustic_tokenizer_encoder": _TWO_FILTERS,
    "vibevoice_asr": {"acoustic_tokenizer_chunk_size": 3200},
    "zamba": {"layers_block_type": ["linear_attention", "hybrid"] * 2, "num_hidden_layers": 4},
}
for _family in (
    "wav2vec2",
    "unispeech",
    "unispeech-sat",
    "wavlm",
    "wav2vec2-conformer",
    "wav2vec2-bert",
    "sew",
    "sew-d",
):
    OVERRIDES[_family] = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, **_SHORT_AUDIO}
# On four devices 65 tokens are computed as 68, 1.05 times as many; 17, of 16 patches, as 20, 1.18 times.
for _family in (
    "vit",
    "vit_msn",
    "deit",
    "dinov2",
    "dinov2_with_registers",
    "data2vec-vision",
    "clip_vision_model",
    "metaclip_2_vision_model",
):
    OVERRIDES[_family] = {**OVERRIDES.get(_family, {}), "image_size": 64}
