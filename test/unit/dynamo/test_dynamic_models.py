"""Whole models of any batch and length: compiled once, with kernels, forward and backward, next to eager."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from shardc.backends.eager.proof.tolerance import difference, magnitude, own_precision

SIZES = ((2, 16), (3, 40), (5, 17), (4, 64), (7, 9))


@pytest.mark.slow
def test_llama(compiled: Callable[..., Any], programs: list[str]) -> None:
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=88,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        max_position_embeddings=64,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    twin, bound = copy.deepcopy(model), own_precision(torch.float32).relative
    run = compiled(model, fuse=True, dynamic=True)
    for size in SIZES:
        ids = torch.randint(64, size)
        found, expected = run(input_ids=ids, labels=ids), twin(input_ids=ids, labels=ids)
        for y, m in ((found, model), (expected, twin)):
            m.zero_grad()
            y.loss.backward()
        assert difference(found.logits.detach(), expected.logits.detach()) <= bound * magnitude(
            expected.logits.detach()
        )
        largest = max(magnitude(p.grad) for p in twin.parameters())
        for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            assert difference(ours.grad, theirs.grad) <= bound * largest, size
    forward, backward = programs
    for text in (forward, backward):  # layers share their kernel
        assert text.count('kernel("scaled_dot_product') == 1 and "ops.aten._scaled_dot_product" not in text


class Block(nn.Module):
    """One layer of a transformer in f64."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(50, 16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down, self.head = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 50)
        self.double()

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.embed(tokens)
        q, k, v = self.qkv(self.norm(h)).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        h = h + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return self.head(h + self.down(F.gelu(self.up(self.norm(h)))))


@pytest.mark.slow
def test_another_length_at_the_second_call(compiled: Callable[..., Any], programs: list[str]) -> None:
    """PyTorch then compiles for all lengths, by itself; the graph keeps its kernels, without a warning."""
    model = Block()
    run = compiled(model, fuse=True)
    for length in (12, 20, 7):
        tokens, wanted = torch.randint(50, (3, length)), torch.randint(50, (3, length))
        gradients = []
        for function in (run, model):
            model.zero_grad()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                F.cross_entropy(function(tokens).flatten(0, 1), wanted.flatten()).backward()
            gradients.append([p.grad for p in model.parameters() if p.grad is not None])
        torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)
    assert len(programs) == 4  # for the first length, and for all
    for text in programs:
        assert "kernel(" in text
