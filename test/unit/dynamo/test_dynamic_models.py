"""Whole models of any batch and length: compiled once, with kernels, forward and backward, next to eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
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
