"""Models of transformers on data 2 x tensor 3 with three micro-batches: heads and rows are padded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import transformers as hf
from models import Training, sgd
from torch import Tensor, nn
from training import capture, check_equal, train_eagerly


def deberta() -> nn.Module:
    config = hf.DebertaV2Config(
        **{"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
        **{"intermediate_size": 50, "relative_attention": True, "position_buckets": 8},
        **{"pos_att_type": ["p2c", "c2p"], "max_position_embeddings": 32, "conv_kernel_size": 3},
        **{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    )
    return hf.DebertaV2ForTokenClassification(config)


def swin() -> nn.Module:
    config = hf.SwinConfig(
        **{"image_size": 32, "patch_size": 4, "embed_dim": 24, "depths": [2, 2], "num_heads": [3, 6]},
        **{"window_size": 3, "drop_path_rate": 0.0, "num_labels": 5},
    )
    return hf.SwinForImageClassification(config)


def wav2vec2() -> nn.Module:
    config = hf.Wav2Vec2Config(
        **{"vocab_size": 20, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
        **{"intermediate_size": 40, "conv_dim": (16, 16), "conv_kernel": (8, 4), "conv_stride": (4, 2)},
        **{"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "feat_extract_norm": "layer"},
        **{"hidden_dropout": 0.0, "attention_dropout": 0.0, "feat_proj_dropout": 0.0, "layerdrop": 0.0},
        **{"activation_dropout": 0.0, "final_dropout": 0.0, "apply_spec_augment": False},
        do_stable_layer_norm=True,
    )
    return hf.Wav2Vec2ForSequenceClassification(config)


def _labels(count: int, *shape: int) -> Tensor:
    return torch.randint(0, count, shape)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, Tensor]]]] = {
    "DeBERTa-v2": (deberta, lambda: {"input_ids": _labels(60, 6, 10), "labels": _labels(2, 6, 10)}),
    "Swin": (swin, lambda: {"pixel_values": torch.randn(7, 3, 32, 32), "labels": _labels(5, 7)}),
    "wav2vec2": (wav2vec2, lambda: {"input_values": torch.randn(7, 403), "labels": _labels(2, 7)}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
def test_equals_eager_training_in_three_micro_batches(name: str) -> None:
    model, batch = CASES[name]
    training = Training(model, batch, sgd)
    step = capture(training)
    compiled = step.compile({"data": 2, "tensor": 3}, "data*tensor", 3)
    check_equal(step, compiled, training, train_eagerly(training, 2))
