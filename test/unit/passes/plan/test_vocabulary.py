"""The loss of a Llama with a split vocabulary: logits stay split, and only rows' maxima and sums are sent.

Shoeybi et al., "Megatron-LM", 2019, section 3: what is sent is of the size of the labels, not of the logits.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

B, S, H, V, P = 4, 8, 32, 208, 2
"""Batch, sequence, hidden size, vocabulary (like no other size); ways of the tensor axis."""


@pytest.fixture(scope="module")
def sharded(compile_plan: Callable) -> Callable:
    """``sharded(plan, mesh, **more)``: a Llama of one layer with the vocabulary ``V``, under its own
    ``tp_plan``.
    """
    config = LlamaConfig(
        hidden_size=H,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=V,
    )

    def compile_llama(plan: str, mesh: dict[str, int], **more: int) -> object:
        ids = torch.zeros(B, S, dtype=torch.int64)
        return compile_plan(LlamaForCausalLM(config), {"input_ids": ids, "labels": ids}, plan, mesh, **more)

    return compile_llama


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("plan", "mesh", "micro_batches"),
    [
        ("tensor", {"tensor": P}, 1),
        ("tensor", {"tensor": P}, 2),
        ("data*tensor", {"data": 2, "tensor": P}, 1),
        ("sequence", {"tensor": P}, 1),
        ("zero3*sequence", {"data": 2, "tensor": P}, 2),
    ],
)
def test_rows_are_sent_and_not_logits(
    sharded: Callable, plan: str, mesh: dict[str, int], micro_batches: int
) -> None:
    """Forward the maxima, the sums and the targets' logits; backward the gradients' sums: f32 each."""
    program = sharded(plan, mesh, micro_batches=micro_batches)
    over_tensor = [t for t in program.transfers if "tensor" in t.axes]
    assert not [t for t in over_tensor if {V, V // P} & set(t.type.shape)]
    loss = [t for t in over_tensor if t.kind == "all_reduce" and "loss" in (t.where or "")]
    assert [t.phase for t in loss] == ["forward", "forward", "forward", "backward"]
    tokens = B * S // mesh.get("data", 1)
    assert {(t.times, t.times * t.type.numel) for t in loss} == {(micro_batches, tokens)}
    assert sum(t.bytes_moved for t in loss) == 4 * 2 * (P - 1) / P * tokens * 4


def test_no_device_holds_all_logits(sharded: Callable) -> None:
    text = str(sharded("tensor", {"tensor": P}).single)
    assert f"[{B * S},{V // P}],f32" in text
    assert f"[{B * S},{V}]" not in text
    assert f"[{B},{S},{V}]" not in text


def test_the_native_softmax_stays_where_no_vocabulary_is_cut(sharded: Callable) -> None:
    text = str(sharded("data", {"data": 2}).single)
    assert "aten._log_softmax " in text
    assert "aten._log_softmax_backward_data " in text
    assert "aten.amax" not in text
