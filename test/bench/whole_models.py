"""The models of the whole-model benchmarks, with random weights, and one training step's loss of each."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

MODELS = ("llama", "gpt2", "bert", "vit", "convnet")
SIZES = {
    "tiny": {
        "hidden": 64,
        "layers": 2,
        "vocabulary": 512,
        "sequence": 32,
        "batch": 2,
        "image": 32,
        "channels": 8,
    },
    "10M": {
        "hidden": 320,
        "layers": 5,
        "vocabulary": 8192,
        "sequence": 128,
        "batch": 4,
        "image": 96,
        "channels": 96,
    },
    "50M": {
        "hidden": 640,
        "layers": 8,
        "vocabulary": 8192,
        "sequence": 128,
        "batch": 4,
        "image": 128,
        "channels": 160,
    },
}
"""About so many parameters each; :func:`parameters` counts them."""


def make(name: str, size: str) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    """A model in training mode (dropout off) and a function that gives its loss on made data."""
    torch.manual_seed(0)
    s = SIZES[size]
    model = _MAKERS[name](s).train()
    if name == "convnet":
        return model, _classified(torch.randn(s["batch"], 3, s["image"] // 2, s["image"] // 2))
    if name == "vit":
        images, labels = torch.randn(s["batch"], 3, s["image"], s["image"]), torch.randint(10, (s["batch"],))
        return model, lambda m: m(pixel_values=images, labels=labels).loss
    ids = torch.randint(s["vocabulary"], (s["batch"], s["sequence"]))
    return model, lambda m: m(input_ids=ids, labels=ids).loss


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def _classified(images: torch.Tensor) -> Callable[[nn.Module], torch.Tensor]:
    labels = torch.randint(10, (images.shape[0],))
    return lambda m: nn.functional.cross_entropy(m(images), labels)


def _llama(s: dict[str, int]) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=s["hidden"],
            intermediate_size=s["hidden"] * 11 // 4,
            num_hidden_layers=s["layers"],
            num_attention_heads=s["hidden"] // 64 or 1,
            num_key_value_heads=s["hidden"] // 64 or 1,
            vocab_size=s["vocabulary"],
            max_position_embeddings=s["sequence"],
        )
    )


def _gpt2(s: dict[str, int]) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            n_embd=s["hidden"],
            n_layer=s["layers"],
            n_head=s["hidden"] // 64 or 1,
            vocab_size=s["vocabulary"],
            n_positions=s["sequence"],
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )


def _bert(s: dict[str, int]) -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(
        BertConfig(
            hidden_size=s["hidden"],
            intermediate_size=4 * s["hidden"],
            num_hidden_layers=s["layers"],
            num_attention_heads=s["hidden"] // 64 or 1,
            vocab_size=s["vocabulary"],
            max_position_embeddings=s["sequence"],
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


def _vit(s: dict[str, int]) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(
            hidden_size=s["hidden"],
            intermediate_size=4 * s["hidden"],
            num_hidden_layers=s["layers"],
            num_attention_heads=s["hidden"] // 64 or 1,
            image_size=s["image"],
            patch_size=8,
            num_labels=10,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


class _Residual(nn.Module):
    """Two 3x3 convolutions with batch norm, and a skip that is cut down to size where needed."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
        self.skip = (
            nn.Conv2d(channels, out, 1, stride, bias=False)
            if stride > 1 or channels != out
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.skip(x))


def convnet(s: dict[str, int]) -> nn.Module:
    c = s["channels"]
    blocks = [
        _Residual(a, b, t) for a, b, t in ((c, c, 1), (c, 2 * c, 2), (2 * c, 4 * c, 2), (4 * c, 8 * c, 2))
    ]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * c, 10)]
    return nn.Sequential(nn.Conv2d(3, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU(), *blocks, *head)


_MAKERS = {"llama": _llama, "gpt2": _gpt2, "bert": _bert, "vit": _vit, "convnet": convnet}
