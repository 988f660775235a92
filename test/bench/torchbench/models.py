"""Whole models that are in no other list of this repository, with random weights, and a batch for each.

Those of ``transformers`` are the library's own; the others are written as their papers' authors write them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class Subject:
    """A model, its batch, and the function (model, batch) -> results, one tensor of floats.

    ``loss``: function (results, batch) -> loss of a training step.
    """

    model: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    call: Callable[[nn.Module, Batch], Tensor]
    loss: Callable[[Tensor, Batch], Tensor]


def _next_token(logits: Tensor, batch: Batch) -> Tensor:
    labels = batch.get("labels", batch.get("decoder_input_ids", batch.get("input_ids")))
    assert labels is not None
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def _class(logits: Tensor, batch: Batch) -> Tensor:
    return F.cross_entropy(logits, batch["label"])


def _logits(model: nn.Module, batch: Batch) -> Tensor:
    return model(**{name: t for name, t in batch.items() if name != "label"}).logits


def _tokens(rows: int, columns: int, vocabulary: int = 4096) -> Tensor:
    return torch.randint(3, vocabulary, (rows, columns))


def _images(rows: int, size: int) -> Batch:
    return {"pixel_values": torch.randn(rows, 3, size, size), "label": torch.randint(10, (rows,))}


def _qwen3() -> nn.Module:
    config = transformers.Qwen3Config(
        vocab_size=4096,
        hidden_size=384,
        intermediate_size=1152,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=64,
        use_cache=False,
    )
    return transformers.Qwen3ForCausalLM(config)


def _t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=4096,
        d_model=256,
        d_kv=32,
        d_ff=1024,
        num_layers=3,
        num_heads=8,
        dropout_rate=0.0,
        use_cache=False,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config)


def _whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        vocab_size=4096,
        d_model=256,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
        max_source_positions=200,
        max_target_positions=64,
        dropout=0.0,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return transformers.WhisperForConditionalGeneration(config)


def _resnet50() -> nn.Module:
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=10))


def _convnext() -> nn.Module:
    config = transformers.ConvNextConfig(depths=[2, 2, 4, 2], hidden_sizes=[48, 96, 192, 384], num_labels=10)
    return transformers.ConvNextForImageClassification(config)


def _swin() -> nn.Module:
    config = transformers.SwinConfig(
        image_size=112,
        embed_dim=48,
        depths=[2, 2, 2],
        num_heads=[3, 6, 12],
        drop_path_rate=0.0,
        num_labels=10,
    )
    return transformers.SwinForImageClassification(config)


def _mamba() -> nn.Module:
    config = transformers.MambaConfig(
        vocab_size=4096, hidden_size=256, num_hidden_layers=3, state_size=16, use_cache=False
    )
    return transformers.MambaForCausalLM(config)


class _Double(nn.Sequential):
    """Two convolutions with batch norm and ReLU, as in the U-Net of Ronneberger et al."""

    def __init__(self, channels: int, out: int) -> None:
        layers: list[nn.Module] = []
        for a in (channels, out):
            layers += [
                nn.Conv2d(a, out, 3, padding=1, bias=False),
                nn.BatchNorm2d(out),
                nn.ReLU(inplace=True),
            ]
        super().__init__(*layers)


class UNet(nn.Module):
    """A U-Net of three levels: pools down, transposed convolutions up, skips that are concatenated."""

    def __init__(self, classes: int = 4, width: int = 24) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(map(_Double, [3, *widths[:-1]], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in widths[-2::-1])
        self.joined = nn.ModuleList(_Double(2 * w, w) for w in widths[-2::-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Take images [batch, 3, height, width]; return a score for each class and pixel."""
        skips = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            skips.append(x)
        skips.pop()
        for up, block in zip(self.up, self.joined, strict=True):
            x = block(torch.cat([skips.pop(), up(x)], dim=1))
        return self.head(x)


class DLRM(nn.Module):
    """Meta's recommendation model: embeddings, two nets of linear layers, and products of all pairs."""

    pairs: Tensor

    def __init__(self, tables: int = 16, rows: int = 5000, width: int = 32, dense: int = 13) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(dense, 128), nn.ReLU(), nn.Linear(128, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 256), nn.ReLU(), nn.Linear(256, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense: Tensor, chosen: Tensor) -> Tensor:
        """Take dense features [batch, 13] and a row for each table [batch, tables]; return logits [batch]."""
        x = self.bottom(dense)
        features = torch.stack([x, *(t(chosen[:, i]) for i, t in enumerate(self.tables))], dim=1)
        products = features @ features.transpose(1, 2)
        return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], dim=1)).squeeze(-1)


class GraphNet(nn.Module):
    """Three layers of GraphSAGE: the mean of a node's neighbours, by an index sum over edges."""

    def __init__(self, features: int = 64, width: int = 128, classes: int = 10) -> None:
        super().__init__()
        widths = [features, width, width, width]
        self.own = nn.ModuleList(map(nn.Linear, widths[:-1], widths[1:]))
        self.others = nn.ModuleList(map(nn.Linear, widths[:-1], widths[1:]))
        self.norms = nn.ModuleList(map(nn.LayerNorm, widths[1:]))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Take nodes [nodes, features] and edges [2, edges]; return logits [nodes, classes]."""
        source, target = edges
        ones = torch.ones(target.shape[0], dtype=x.dtype, device=x.device)
        degree = x.new_zeros(x.shape[0]).index_add(0, target, ones).clamp_min(1)
        for own, others, norm in zip(self.own, self.others, self.norms, strict=True):
            mean = torch.zeros_like(x).index_add(0, target, x[source]) / degree[:, None]
            x = F.relu(norm(own(x) + others(mean)))
        return self.head(x)


class WaveNet(nn.Module):
    """A stack of dilated causal convolutions with gates, residuals and skips, over waveforms."""

    def __init__(self, channels: int = 32, layers: int = 10, classes: int = 64) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, channels, 1)
        self.dilations = [1 << (n % 5) for n in range(layers)]
        self.both = nn.ModuleList(nn.Conv1d(channels, 2 * channels, 2, dilation=n) for n in self.dilations)
        self.out = nn.ModuleList(nn.Conv1d(channels, 2 * channels, 1) for _ in range(layers))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(channels, channels, 1), nn.ReLU())
        self.classes = nn.Conv1d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Take samples [batch, 1, time]; return logits [batch, classes, time]."""
        x, skips = self.first(x), torch.zeros(())
        for both, out, behind in zip(self.both, self.out, self.dilations, strict=True):
            filtered, gate = both(F.pad(x, (behind, 0))).chunk(2, dim=1)
            residual, skip = out(torch.tanh(filtered) * torch.sigmoid(gate)).chunk(2, dim=1)
            x, skips = x + residual, skips + skip
        return self.classes(self.head(skips))


SUBJECTS = {
    "Qwen3": Subject(_qwen3, lambda: {"input_ids": _tokens(4, 128)}, _logits, _next_token),
    "T5": Subject(
        _t5,
        lambda: {"input_ids": _tokens(4, 96), "decoder_input_ids": _tokens(4, 48)},
        _logits,
        _next_token,
    ),
    "Whisper": Subject(
        _whisper,
        lambda: {"input_features": torch.randn(2, 80, 400), "decoder_input_ids": _tokens(2, 48)},
        _logits,
        _next_token,
    ),
    "ResNet-50": Subject(_resnet50, lambda: _images(4, 96), _logits, _class),
    "ConvNeXt": Subject(_convnext, lambda: _images(4, 96), _logits, _class),
    "Swin": Subject(_swin, lambda: _images(4, 112), _logits, _class),
    "Mamba": Subject(_mamba, lambda: {"input_ids": _tokens(2, 64)}, _logits, _next_token),
    "U-Net": Subject(
        UNet,
        lambda: {"x": torch.randn(2, 3, 96, 96), "label": torch.randint(4, (2, 96, 96))},
        lambda m, b: m(b["x"]),
        _class,
    ),
    "DLRM": Subject(
        DLRM,
        lambda: {
            "dense": torch.randn(2048, 13),
            "chosen": torch.randint(5000, (2048, 16)),
            "label": torch.rand(2048),
        },
        lambda m, b: m(b["dense"], b["chosen"]),
        lambda logits, b: F.binary_cross_entropy_with_logits(logits, b["label"]),
    ),
    "GraphSAGE": Subject(
        GraphNet,
        lambda: {
            "x": torch.randn(4000, 64),
            "edges": torch.randint(4000, (2, 40000)),
            "label": torch.randint(10, (4000,)),
        },
        lambda m, b: m(b["x"], b["edges"]),
        _class,
    ),
    "WaveNet": Subject(
        WaveNet,
        lambda: {"x": torch.randn(4, 1, 2048), "label": torch.randint(64, (4, 2048))},
        lambda m, b: m(b["x"]),
        _class,
    ),
}
