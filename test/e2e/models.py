"""Small random models of eight architectures, each as a user would train it on one device.

All are in f64 and without dropout: a sharded program can be held against eager training to 1e-9. Batches
hold ``BATCH`` samples of ``LENGTH`` tokens and are the same at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn
from torch.nn import functional as F

BATCH, LENGTH, VOCAB = 8, 16, 64
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": VOCAB}

Batch = Any
Loss = Callable[[Any, Any], Tensor]


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2)


@dataclass(frozen=True)
class Training:
    """A training run: how to make the model, its optimizer and its batches, and how to get the loss."""

    model: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = adamw
    loss: Loss | None = None

    def fresh(self) -> nn.Module:
        """The model with its initial values, the same at each call."""
        with default_f64():
            torch.manual_seed(0)
            return self.model().train()

    def batches(self, count: int) -> list[Batch]:
        """A batch for each step."""
        with default_f64():
            torch.manual_seed(1)
            return [self.batch() for _ in range(count)]


@contextmanager
def default_f64() -> Iterator[None]:
    """Makes models, and optimizers' step counts, in f64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def llama(**more: Any) -> nn.Module:
    """Grouped heads: four of queries, two of keys and values."""
    config = {**SMALL, "intermediate_size": 64, "num_key_value_heads": 2, **more}
    return hf.LlamaForCausalLM(hf.LlamaConfig(**config))


def gpt2(dropout: float = 0.0) -> nn.Module:
    """Tied embeddings, fused query-key-value matmul."""
    config = hf.GPT2Config(
        n_embd=32,
        n_layer=2,
        n_head=4,
        vocab_size=VOCAB,
        n_positions=32,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
    )
    return hf.GPT2LMHeadModel(config)


def bert(dropout: float = 0.0) -> nn.Module:
    config = hf.BertConfig(
        **SMALL, intermediate_size=64, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
    )
    return hf.BertForMaskedLM(config)


def t5() -> nn.Module:
    """Encoder and decoder, relative positions, tied embeddings."""
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


def vit() -> nn.Module:
    """17 tokens: a class token and 4 x 4 patches."""
    config = hf.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=16,
        patch_size=4,
        num_labels=8,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    return hf.ViTForImageClassification(config)


def mixtral() -> nn.Module:
    """Four experts, two of them for each token, and the loss that balances them."""
    config = hf.MixtralConfig(
        **SMALL,
        intermediate_size=64,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        output_router_logits=True,
    )
    model = hf.MixtralForCausalLM(config)
    model.set_experts_implementation("batched_mm")  # grouped matmuls have no f64
    return model


def mamba() -> nn.Module:
    config = hf.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=VOCAB, state_size=4)
    return hf.MambaForCausalLM(config)


class ConvNet(nn.Module):
    """Convolutions, a residual block, batch norm and pooling; images of 16 x 16, 8 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.first = nn.Conv2d(16, 16, 3, padding=1)
        self.first_norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.skip = nn.Conv2d(16, 32, 1, stride=2)
        self.head = nn.Linear(32, 8)

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(images))), 2)
        y = F.relu(self.first_norm(self.first(x)))
        y = F.relu(self.second(y) + self.skip(x))
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))


def tokens() -> Batch:
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH))
    return {"input_ids": ids, "labels": ids.clone()}


def masked_tokens() -> Batch:
    """Sequences of different lengths; a third of the tokens is to be guessed, the others' labels are -100."""
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH))
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (BATCH, 1))
    labels = torch.where(torch.rand(BATCH, LENGTH) < 0.3, ids, -100)
    return {"input_ids": ids, "attention_mask": (torch.arange(LENGTH) < lengths).long(), "labels": labels}


def token_pairs() -> Batch:
    """Source and target sequences of different lengths."""
    source, target = torch.randint(0, VOCAB, (BATCH, LENGTH)), torch.randint(0, VOCAB, (BATCH, LENGTH // 2))
    return {"input_ids": source, "labels": target}


def labelled_images() -> Batch:
    return {"pixel_values": torch.randn(BATCH, 3, 16, 16), "labels": torch.randint(0, 8, (BATCH,))}


def image_tuples() -> Batch:
    return (torch.randn(BATCH, 3, 16, 16),)


def sum_of_squares(output: Tensor, batch: Batch) -> Tensor:
    """A loss that needs no labels: the mean square distance of the scores to one."""
    return (output - 1).pow(2).mean()


TRAININGS = {
    "llama": Training(llama, tokens),
    "gpt2": Training(gpt2, tokens),
    "bert": Training(bert, masked_tokens),
    "t5": Training(t5, token_pairs),
    "vit": Training(vit, labelled_images, sgd),
    "mixtral": Training(mixtral, tokens),
    "mamba": Training(mamba, tokens),
    "convnet": Training(ConvNet, image_tuples, sgd, sum_of_squares),
}
