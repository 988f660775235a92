"""Packed documents and sliding windows in sequences that devices share out: equal to eager training."""

from __future__ import annotations

import pytest
import torch
import transformers as hf
from models import Batch, Training
from torch import Tensor, nn
from training import capture, check_equal, train_eagerly

BATCH, LENGTH, VOCAB = 2, 16, 64
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "attn_implementation": "sdpa",
}


class Packed(nn.Module):
    """Rows of several documents. ``mixed``: the first layer sees the whole row, causally."""

    def __init__(self, *, mixed: bool) -> None:
        super().__init__()
        kinds = ["full_attention", "sliding_attention"]
        more = {"use_sliding_window": True, "sliding_window": LENGTH, "layer_types": kinds}
        self.model = hf.Qwen2ForCausalLM(hf.Qwen2Config(**SIZES, **more)) if mixed else llama()
        self.mixed = mixed

    def forward(self, input_ids: Tensor, position_ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        seen = {"full_attention": None, "sliding_attention": mask} if self.mixed else mask
        out = self.model(input_ids=input_ids, position_ids=position_ids, attention_mask=seen, use_cache=False)
        return nn.functional.cross_entropy(out.logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


class Windowed(nn.Module):
    """Tokens see the last five. ``mixed``: in the second layer alone."""

    def __init__(self, *, mixed: bool) -> None:
        super().__init__()
        kinds = ["full_attention" if mixed else "sliding_attention", "sliding_attention"]
        more = {"use_sliding_window": True, "sliding_window": 5, "layer_types": kinds}
        self.model = hf.Qwen2ForCausalLM(hf.Qwen2Config(**SIZES, **more))

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        return self.model(input_ids=input_ids, labels=labels, use_cache=False).loss


def llama() -> nn.Module:
    return hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES))


def documents() -> Batch:
    """Position ids restart with each document, and its tokens see no other; its last token has no label."""
    ends = torch.stack([torch.randperm(LENGTH - 1)[:3] + 1 for _ in range(BATCH)])
    places = torch.arange(LENGTH)
    number = (places >= ends[..., None]).sum(1)
    same = number[:, :, None] == number[:, None, :]
    starts = torch.where(same, places, LENGTH).amin(-1)
    mask = (same & (places[:, None] >= places)).unsqueeze(1)
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH))
    goes_on = torch.cat([number[:, 1:] == number[:, :-1], torch.zeros(BATCH, 1, dtype=torch.bool)], 1)
    labels = torch.where(goes_on, ids.roll(-1, 1), -100)
    return {"input_ids": ids, "position_ids": places - starts, "mask": mask, "labels": labels}


def tokens() -> Batch:
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH))
    return {"input_ids": ids, "labels": ids.clone()}


TRAININGS = {
    "packed": Training(lambda: Packed(mixed=False), documents, loss=lambda out, _: out),
    "packed, mixed": Training(lambda: Packed(mixed=True), documents, loss=lambda out, _: out),
    "windowed": Training(lambda: Windowed(mixed=False), tokens, loss=lambda out, _: out),
    "windowed, mixed": Training(lambda: Windowed(mixed=True), tokens, loss=lambda out, _: out),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ways", [2, 4])
@pytest.mark.parametrize("preset", ["allgather", "ulysses", "ring"])
@pytest.mark.parametrize("name", TRAININGS)
def test_equals_eager_training(name: str, preset: str, ways: int) -> None:
    """Where a layer is causal and no more its rows are folded, or its keys travel; masks follow."""
    training = TRAININGS[name]
    step = capture(training)
    compiled = step.compile({"context": ways}, f"{preset}:context")
    text, mixed = compiled.levels["2-annotated"], "mixed" in name
    assert ("folded_attention" in text) == (mixed and preset == "allgather")
    assert ("ring_attention" in text) == (mixed and preset == "ring")
    assert compiled.work.share <= 1.001 / ways
    check_equal(step, compiled, training, train_eagerly(training))
