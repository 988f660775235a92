"""Whole models: several steps of a real optimizer, equal to eager in every bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from .conftest import assert_trains_as_eager

Wrap = Callable[..., Any]


def test_multilayer_perceptron(compiled: Wrap) -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    assert_trains_as_eager(compiled, model, (torch.randn(5, 6),))


def test_dropout_draws_what_eager_draws_where_that_is_asked_for(compiled: Wrap) -> None:
    model = nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4))
    assert_trains_as_eager(partial(compiled, random="torch"), model, (torch.randn(5, 6),))


class _ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.narrow = nn.Conv2d(8, 8, 3, stride=2, groups=4)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.norm(self.conv(x))), 2)
        return self.head(functional.silu(self.narrow(x)).mean((2, 3)))


def test_convolution_and_batch_norm(compiled: Wrap) -> None:
    """Running statistics included: they are buffers that the forward writes."""
    assert_trains_as_eager(compiled, _ConvNet(), (torch.randn(4, 3, 12, 12),))


def test_convolution_and_batch_norm_when_evaluating(compiled: Wrap) -> None:
    model = _ConvNet().eval()
    x = torch.randn(4, 3, 12, 12)
    with torch.no_grad():
        assert torch.equal(compiled(model)(x), model(x))


def test_channels_last(compiled: Wrap) -> None:
    model = _ConvNet().to(memory_format=torch.channels_last)
    x = torch.randn(4, 3, 12, 12).to(memory_format=torch.channels_last)
    assert_trains_as_eager(compiled, model, (x,))


def test_recurrent_network(compiled: Wrap) -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRUCell(4, 8), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = x.new_zeros(x.shape[1], 8)
            for row in x:
                hidden = self.cell(row, hidden)
            return self.head(hidden)

    # Without AVX-512, MKL's sums depend on where its operands lie.
    assert_trains_as_eager(compiled, Reader(), (torch.randn(5, 3, 4),), within=1e-6)


def _tiny(kind: str) -> nn.Module:
    sizes: dict[str, Any] = {"vocab_size": 64, "max_position_embeddings": 32}
    if kind == "gpt2":
        config: Any = transformers.GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4)
        return transformers.GPT2LMHeadModel(config)
    sizes |= {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    if kind == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_key_value_heads=2))
    return transformers.BertForMaskedLM(transformers.BertConfig(**sizes))


class _WithLoss(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, labels=tokens).loss


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert"])
def test_language_model(compiled: Wrap, kind: str) -> None:
    """GPT-2 and BERT train with dropout, which both runs draw alike."""
    model = _WithLoss(_tiny(kind)).train()
    assert_trains_as_eager(
        partial(compiled, random="torch"), model, (torch.randint(0, 64, (2, 16)),), loss=lambda loss: loss
    )


def test_bfloat16_parameters(compiled: Wrap) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 4)).bfloat16()
    assert_trains_as_eager(compiled, model, (torch.randn(5, 8, dtype=torch.bfloat16),))


class _Mixed(nn.Module):
    """Its first layer runs in bf16 whatever is around it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            x = self.first(x)
        return self.second(x.float())


def test_autocast_inside_a_model(compiled: Wrap) -> None:
    assert_trains_as_eager(compiled, _Mixed(), (torch.randn(5, 8),))


def test_autocast_around_a_model(compiled: Wrap) -> None:
    class Around(nn.Module):
        def __init__(self, inner: Callable[..., torch.Tensor]) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return self.inner(x)

    model = Around(_Mixed())

    def wrap(model: nn.Module) -> nn.Module:
        return Around(compiled(model.inner))

    assert_trains_as_eager(wrap, model, (torch.randn(5, 8),))


def test_tied_weights(compiled: Wrap) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(12, 8), nn.Linear(8, 12, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(tokens))

    assert_trains_as_eager(compiled, Tied(), (torch.randint(0, 12, (3, 7)),))


def test_activation_checkpointing(compiled: Wrap) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.head = (
                nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8)),
                nn.Linear(8, 4),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(checkpoint(self.block, x, use_reentrant=False))

    assert_trains_as_eager(compiled, Checkpointed(), (torch.randn(5, 8),))
