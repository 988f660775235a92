"""Unequal shares of the batch: losses, gradients and state of two steps are those of one device, in f64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)

import shardc
from shardc.step.compile_step import CompiledStep

THREE_TO_ONE = {"data": [3, 1]}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64, **HEADS}


def llama() -> nn.Module:
    return LlamaForCausalLM(LlamaConfig(**SIZES))


def gpt2() -> nn.Module:
    return GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=16))


def mixtral() -> nn.Module:
    """The router's auxiliary loss is over all tokens of the batch."""
    return MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=4, output_router_logits=True))


def of_tokens(
    model: nn.Module, plan: str, mesh: dict[str, int], rows: int = 8, **options: object
) -> CompiledStep:
    """A step on sequences of 16 tokens, of which the last row has one that counts."""
    torch.manual_seed(0)
    ids = torch.randint(0, 64, (rows, 16))
    labels = ids.clone()
    labels[0, :9] = labels[-1, :15] = -100
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    given = {"shares": THREE_TO_ONE, "fuse": False, **options}
    batch = {"input_ids": ids, "labels": labels}
    return shardc.compile_step(model, optimizer, batch, mesh=mesh, plan=plan, **given)


TWO, FOUR = {"data": 2}, {"data": 2, "tensor": 2}


@pytest.mark.parametrize(
    ("plan", "mesh", "options"),
    [
        ("zero3*tensor", FOUR, {}),
        pytest.param("data", TWO, {}, marks=pytest.mark.slow),
        pytest.param("zero2", TWO, {"micro_batches": 2, "rows": 16}, marks=pytest.mark.slow),
        pytest.param("zero3*sequence", FOUR, {"clip_grad_norm": 0.1}, marks=pytest.mark.slow),
        pytest.param("zero3*context", {"data": 2, "context": 2}, {}, marks=pytest.mark.slow),
        pytest.param("zero3*ring", {"data": 2, "context": 2}, {}, marks=pytest.mark.slow),
        pytest.param("zero3", TWO, {"recompute": "full"}, marks=pytest.mark.slow),
        pytest.param(
            "zero3", TWO, {"autocast": "bfloat16", "reduce_dtype": "float32"}, marks=pytest.mark.slow
        ),
        pytest.param("zero3*tensor", FOUR, {"fuse": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_llama(plan: str, mesh: dict[str, int], options: dict[str, object]) -> None:
    assert of_tokens(llama(), plan, mesh, **options).check().passed


@pytest.mark.parametrize(
    ("model", "plan", "mesh"),
    [(mixtral, "zero3", TWO), pytest.param(gpt2, "zero1*tensor", FOUR, marks=pytest.mark.slow)],
)
def test_dropout_and_losses_over_the_batch(model: object, plan: str, mesh: dict[str, int]) -> None:
    assert callable(model)
    assert of_tokens(model(), plan, mesh).check().passed


def test_seven_of_eight_devices() -> None:
    """A batch of 8 on a node that is short of one device."""
    step = of_tokens(llama(), "zero3", {"data": 7}, shares={"data": [2, 1, 1, 1, 1, 1, 1]})
    assert step.compiled.work.share == pytest.approx(2 / 8)
    assert step.check().passed


def test_a_batch_that_does_not_divide() -> None:
    assert of_tokens(llama(), "zero3", TWO, rows=7).check().passed


def test_batch_norm_is_over_the_batch() -> None:
    torch.manual_seed(0)
    images = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
    model = nn.Sequential(*images, nn.Flatten(), nn.Dropout(0.1), nn.Linear(8 * 36, 8))
    batch = torch.randn(8, 3, 6, 6), torch.randint(0, 8, (8,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    options = {"mesh": TWO, "plan": "zero3", "shares": THREE_TO_ONE, "fuse": False}
    step = shardc.compile_step(model, optimizer, batch, loss=functional.cross_entropy, **options)
    assert step.check().passed


def test_other_shapes_and_outputs() -> None:
    """A last batch of another size, and outputs of every row, which ranks have some of."""
    model = nn.Linear(6, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(output: Tensor, _: object) -> Tensor:
        return output.square().mean()

    options = {"mesh": TWO, "plan": "zero1", "shares": THREE_TO_ONE, "fuse": False}
    step = shardc.compile_step(
        model,
        optimizer,
        (torch.randn(8, 6),),
        loss=loss,
        outputs={"rows": lambda output, _: output},
        **options,
    )
    for rows in (16, 6, 1):
        assert step.for_batch((torch.randn(rows, 6),)).check().passed, rows
    assert step.check().passed
