"""Models whose layers are traced once have the program of a trace of all layers, locations included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

LAYERS, VOCAB = 4, 96
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
SMALL = {**SIZES, "vocab_size": VOCAB}


def tokens() -> torch.Tensor:
    return torch.zeros(2, 16, dtype=torch.int64)


def text() -> dict[str, torch.Tensor]:
    return {"input_ids": tokens(), "labels": tokens()}


def masked() -> dict[str, torch.Tensor]:
    return {**text(), "attention_mask": torch.ones_like(tokens())}


def images() -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.zeros(2, 3, 32, 32), "labels": torch.zeros(2, dtype=torch.int64)}


def sound() -> dict[str, torch.Tensor]:
    return {"input_features": torch.zeros(2, 8, 32), "labels": tokens()}


def rows() -> tuple[torch.Tensor]:
    return (torch.zeros(2, 8, 32),)


def gpt2() -> nn.Module:
    config = hf.GPT2Config(
        n_embd=32, n_layer=LAYERS, n_head=4, vocab_size=VOCAB, bos_token_id=0, eos_token_id=0
    )
    return hf.GPT2LMHeadModel(config)


def vit() -> nn.Module:
    return hf.ViTForImageClassification(hf.ViTConfig(**SIZES, image_size=32, patch_size=8))


def mamba() -> nn.Module:
    config = hf.MambaConfig(hidden_size=32, num_hidden_layers=LAYERS, vocab_size=VOCAB, state_size=4)
    return hf.MambaForCausalLM(config)


def gemma() -> nn.Module:
    config = hf.Gemma3TextConfig(
        **{**SMALL, "num_hidden_layers": 7}, num_key_value_heads=2, head_dim=8, sliding_window=8
    )
    return hf.Gemma3ForCausalLM(config)


def mixtral() -> nn.Module:
    return hf.MixtralForCausalLM(hf.MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=4))


def whisper() -> nn.Module:
    config = hf.WhisperConfig(
        d_model=32,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        vocab_size=VOCAB,
        num_mel_bins=8,
        max_source_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return hf.WhisperForConditionalGeneration(config)


def t5() -> nn.Module:
    config = hf.T5Config(
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=LAYERS,
        num_heads=4,
        vocab_size=VOCAB,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    return hf.T5ForConditionalGeneration(config)


class BatchNorms(nn.Module):
    """Blocks that write running statistics."""

    def __init__(self) -> None:
        super().__init__()
        blocks = (nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(8), nn.ReLU()) for _ in range(LAYERS))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x.square().mean()


class Encoder(nn.Module):
    """PyTorch's own, whose attention is ``nn.MultiheadAttention``."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder(x).square().mean()


def first(output: Any, _: Any) -> torch.Tensor:
    return output


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], int, dict[str, Any]]] = {
    "llama": (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL, attention_dropout=0.1)), text, 2, {}),
    "gpt2": (gpt2, text, 2, {}),
    "gpt2 clipped": (gpt2, text, 2, {"clip_grad_norm": 1.0, "autocast": torch.bfloat16}),
    "bert": (lambda: hf.BertForMaskedLM(hf.BertConfig(**SMALL)), masked, 2, {}),
    "vit": (vit, images, 2, {}),
    "mamba": (mamba, text, 2, {}),
    "gemma": (gemma, text, 4, {}),
    "mixtral": (mixtral, text, 2, {}),
    "whisper": (whisper, sound, 4, {}),
    "t5": (t5, text, 2, {}),
    "albert": (lambda: hf.AlbertForMaskedLM(hf.AlbertConfig(**SMALL, embedding_size=16)), text, 0, {}),
    "batch norms": (BatchNorms, rows, 0, {"loss": first}),
    "encoder": (Encoder, rows, 1, {"loss": first}),  # the first is given no gradient
}
"""Each with its batch, how many calls are copied, and options."""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", MODELS)
def test_the_program_is_that_of_a_whole_trace(name: str, both: Callable[..., Any]) -> None:
    make, batch, copies, options = MODELS[name]
    found = both(lambda: make().train(), batch(), **options)
    assert found.folded == found.plain
    assert found.copies == copies
