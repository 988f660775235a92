"""Whole training steps of real architectures, small and random, against eager training in f64 to 1e-9."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import transformers as hf
from torch import nn

from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.spec import Capture

pytestmark = pytest.mark.usefixtures("f64")
Follow = Callable[..., Capture]

VOCAB, BATCH, LENGTH = 64, 2, 12
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": VOCAB}


def tokens(count: int, **more: torch.Tensor) -> list[dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    ids = [torch.randint(0, VOCAB, (BATCH, LENGTH)) for _ in range(count)]
    return [{"input_ids": each, "labels": each, **more} for each in ids]


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def llama() -> nn.Module:
    config = hf.LlamaConfig(**SMALL, intermediate_size=64, num_key_value_heads=2)
    return hf.LlamaForCausalLM(config)


def gpt2() -> nn.Module:
    config = hf.GPT2Config(
        n_embd=32,
        n_layer=2,
        n_head=4,
        vocab_size=VOCAB,
        n_positions=32,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
    )
    return hf.GPT2LMHeadModel(config)


def bert() -> nn.Module:
    config = hf.BertConfig(
        **SMALL, intermediate_size=64, hidden_dropout_prob=0, attention_probs_dropout_prob=0
    )
    return hf.BertForMaskedLM(config)


def t5() -> nn.Module:
    config = hf.T5Config(
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        vocab_size=VOCAB,
        dropout_rate=0,
        decoder_start_token_id=0,
    )
    return hf.T5ForConditionalGeneration(config)


def mixtral() -> nn.Module:
    config = hf.MixtralConfig(
        **SMALL,
        intermediate_size=64,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        output_router_logits=True,
    )
    model = hf.MixtralForCausalLM(config)
    # The default groups matmuls by expert, which has no f64; the loop over experts reads how many tokens each
    # got.
    model.set_experts_implementation("eager")
    return model


def mamba() -> nn.Module:
    config = hf.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=VOCAB, state_size=4)
    return hf.MambaForCausalLM(config)


LANGUAGE_MODELS = {f.__name__: f for f in (llama, gpt2, bert, t5, mixtral, mamba)}


# These compute their norms and logits in f32, whatever the dtype of their parameters.
F32_INSIDE = {"llama", "mixtral", "mamba"}


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", sorted(LANGUAGE_MODELS))
def test_language_model_equals_eager(name: str, follows_eager: Follow) -> None:
    torch.manual_seed(0)
    model = LANGUAGE_MODELS[name]().double().train()
    tolerance = 2e-6 if name in F32_INSIDE else 1e-9
    follows_eager(model, adamw, tokens(3), clip_grad_norm=1.0, tolerance=tolerance)


def test_vit_equals_eager(follows_eager: Follow) -> None:
    config = hf.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=16,
        patch_size=4,
        num_labels=5,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    torch.manual_seed(0)
    model = hf.ViTForImageClassification(config).double().train()
    batches = [
        {"pixel_values": torch.randn(3, 3, 16, 16), "labels": torch.randint(0, 5, (3,))} for _ in range(3)
    ]
    follows_eager(model, adamw, batches)


def test_dropout_follows_the_seed(run_step: Callable[..., torch.Tensor]) -> None:
    torch.manual_seed(0)
    config = hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=VOCAB, n_positions=32)
    model = hf.GPT2LMHeadModel(config).double().train()
    optimizer = adamw(model)
    (batch,) = tokens(1)
    capture = capture_step(model, optimizer, batch)
    losses = [run_step(capture, optimizer, batch, seed) for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]
