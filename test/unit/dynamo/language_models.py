"""Tiny language models of ``transformers``."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn


def tiny(kind: str) -> nn.Module:
    """``llama``, ``gpt2`` or ``bert`` with two layers, as a module that gives the loss of tokens below 64."""
    sizes: dict[str, Any] = {"vocab_size": 64, "max_position_embeddings": 32}
    if kind == "gpt2":
        config: Any = transformers.GPT2Config(
            vocab_size=64,
            n_positions=32,
            n_embd=32,
            n_layer=2,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
        return _WithLoss(transformers.GPT2LMHeadModel(config))
    sizes |= {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    if kind == "llama":
        return _WithLoss(
            transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_key_value_heads=2))
        )
    config = transformers.BertConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return _WithLoss(transformers.BertForMaskedLM(config))


class _WithLoss(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, labels=tokens).loss
