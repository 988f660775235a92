"""A tiny random configuration for any architecture of ``transformers``.

One rule for each *kind* of number (widths, heads, layers, vocabulary, ...), found by the field's name,
shrinks any configuration and the ones nested in it. ``OVERRIDES`` has the few fields of a family that hang
together in a way that names do not say.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from overrides import OVERRIDES

VOCAB, WIDTH, INNER, HEADS, HEAD_DIM, LAYERS, POSITIONS, WINDOW = 64, 32, 64, 4, 8, 2, 64, 8
CHUNK = 4
"""Of state-space layers: a batch's sequences (``batches.LENGTH``) have one for each of four devices."""


@cache
def rules(layers: int) -> tuple[tuple[str, int], ...]:
    """(pattern of a field, its largest number) for models of ``layers`` layers; the first counts."""
    return (
        (r"(_token_id|_token_index|_token_ids|bos_index|eos_index|pad_index|unk_index|mask_index)$", VOCAB),
        (
            r"vocab_size|_vocab$|vocab_size_per_layer_input|num_codevectors_per_group|num_centroids|codebook_size",
            VOCAB,
        ),
        (r"key_value_heads|kv_heads|query_groups", 2),
        (r"heads(_per_layer)?$|n_head$|num_heads|index_n_heads", HEADS),
        (
            r"head_dim|d_head|dim_head|d_kv|attention_head_size|headdim|kv_channels|rotary_dim|attention_key_size",
            HEAD_DIM,
        ),
        (r"first_k_dense_replace|num_dense_layers|num_shared_experts|n_shared_experts|shared_experts$", 1),
        (r"topk_group", 1),
        (r"n_group$|num_expert_group|n_groups$", 2),
        (r"experts_per_tok|topk$|moe_k$|top_k$|num_experts_per_token", 2),
        (r"experts$|expert_num$", 4),
        (r"(^|_)(layers?|blocks|n_layers?|num_layers)$", layers),
        (r"depths?$|num_repeats|block_repeats|n_blocks|_num_blocks|num_self_attends_per_block", layers - 1),
        (
            r"max_.*position|n_positions|n_ctx$|_positions$|context_length|max_seq_len|model_max_length|seq_length",
            POSITIONS,
        ),
        (r"^(mamba_)?chunk_size$", CHUNK),
        (r"window|chunk_size|attn_chunk_length|local_radius|block_size$|context_left|context_right", WINDOW),
        (r"num_buckets|_buckets$|max_distance|relative_attention", 16),
        (r"image_size|^train_size", 32),
        (r"patch_size$|^patch_sizes$", 8),
        (r"d_state|state_size|_rank$|d_conv|n_mamba_heads|num_landmarks", HEAD_DIM),
        (r"intermediate|ffn|d_ff$|dff$|inner|feed_forward|feedforward|d_inner|dim_ff", INNER),
        (r"size|dim|d_model|n_embd|width|channels|embd|units|hidden|rank|latents|filters|features", WIDTH),
    )


DROPOUT = re.compile(r"drop|mask_time_prob|mask_feature_prob|jitter|noise|stochastic")
KINDS = (
    "layer_types",
    "mlp_layer_types",
    "layers_block_type",
    "block_types",
    "indexer_types",
    "attention_layers",
)
"""Fields that say for each layer of which kind it is."""


MISSING = {"head_dim": HEAD_DIM, "num_key_value_heads": 2, "vocab_size": VOCAB}
"""Fields that have a value in every published model of the families whose default is None."""


def tiny_config(config_class: type, layers: int = LAYERS) -> Any:
    """``config_class`` with small numbers and no dropout. Raises what the class raises if they do not fit.

    ``layers``: how many of them, one less in each of several stages; where they are of several kinds, as many
    as that of each kind at least.
    """
    own = OVERRIDES.get(config_class.__name__) or OVERRIDES.get(config_class.model_type, {})
    own = {name: _deeper(name, value, layers) for name, value in own.items()}
    default = _default(config_class, own)
    kept = _kept_layers(default, layers)
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    chosen: dict[str, Any] = {}
    for name in fields:
        value = _stored(default, name)
        if hasattr(value, "to_dict"):
            chosen[name] = tiny_config(type(value), layers)
        elif value is None and name in MISSING:
            chosen[name] = MISSING[name]
        elif name not in _METADATA:
            made = value if _default_of(fields[name]) is not None or name in KINDS else None
            small = _small(name, made, kept, layers)
            if small != value or name in KINDS:
                chosen[name] = small
    if "num_hidden_layers" in fields and kept:
        chosen["num_hidden_layers"] = len(kept)
    groups = _stored(default, "num_key_value_heads")
    if groups is not None and groups == _stored(default, "num_attention_heads"):
        chosen["num_key_value_heads"] = HEADS
    chosen = {name: value for name, value in chosen.items() if value is not None} | own
    return config_class(**chosen)


_METADATA = {
    "id2label",
    "label2id",
    "dtype",
    "architectures",
    "chunk_size_feed_forward",
    "out_features",
    "out_indices",
}


def _deeper(name: str, value: Any, layers: int) -> Any:
    """An override that says of each of two layers what it is, for so many."""
    if name in KINDS and len(value) == LAYERS:
        return [value[i % LAYERS] for i in range(layers)]
    if name == "attention_types":  # of GPT-Neo: pairs of kinds, and how often they come again
        return [[kinds, times * layers // LAYERS] for kinds, times in value]
    return value


def _default(config_class: type, own: Mapping[str, Any]) -> Any:
    """The default configuration; some families have none that is valid without a field or two."""
    try:
        return config_class()
    except Exception:
        return config_class(**own)


def _stored(config: Any, name: str) -> Any:
    """A field's value; asking the configuration itself is refused where layers differ in it."""
    return vars(config).get(config.attribute_map.get(name, name))


def _default_of(field: dataclasses.Field) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


def _kept_layers(config: Any, layers: int) -> list[int]:
    """Indices of ``layers`` or more, so that each kind of layer is among them; [] if layers have no kinds."""
    kinds = [
        value for name in KINDS if isinstance(value := getattr(config, name, None), (list, tuple)) and value
    ]
    if not kinds:
        return []
    count = min(map(len, kinds))
    labels = [tuple(str(kind[i]) for kind in kinds) for i in range(count)]
    first = sorted({label: i for i, label in reversed(list(enumerate(labels)))}.values())
    rest = [i for i in range(count) if i not in first]
    return sorted((first + rest)[: max(layers, (layers - 1) * len(first))])


def _small(name: str, value: Any, kept: Sequence[int], layers: int) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, (str, Mapping)):
        return value
    if isinstance(value, float):
        return 0.0 if DROPOUT.search(name) else value
    if isinstance(value, (list, tuple)):
        if (
            kept
            and (name in KINDS or len(value) > max(kept))
            and name.endswith(("_types", "_type", "_layer", "layers"))
        ):
            value = type(value)(value[i] for i in kept)
        return _small_list(name, value, layers)
    if isinstance(value, int):
        return _small_int(name, value, layers)
    return value


def _small_int(name: str, value: int, layers: int) -> int:
    for pattern, limit in rules(layers):
        if re.search(pattern, name):
            if (limit == VOCAB and "token" in name) or name.endswith("index"):
                return value if 0 <= value < VOCAB - 8 or value < 0 else VOCAB - 1 - value % 8
            return min(value, limit)
    return value


def _small_list(name: str, value: Sequence[Any], layers: int) -> Any:
    numbers = [v for v in value if isinstance(v, int) and not isinstance(v, bool)]
    if DROPOUT.search(name) and all(isinstance(v, float) for v in value):
        return type(value)(0.0 for _ in value)
    if not numbers or len(numbers) != len(value):
        return value
    if re.search(r"token", name):
        return type(value)(_small_int(name, v, layers) for v in value)
    if re.search(r"depth|num_blocks|num_repeats|block_repeats|layers", name):
        return type(value)(min(v, layers - 1) for v in value)
    if re.search(r"heads", name):
        return type(value)(min(v, 2) for v in value)
    if max(numbers) > 2 * WIDTH:
        # Ratios between stages are kept where they can be.
        return type(value)(max(8, v * 2 * WIDTH // max(numbers) // 8 * 8) for v in value)
    return value
