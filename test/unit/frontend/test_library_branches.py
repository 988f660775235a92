"""Libraries that branch on values: the error's advice works (DETR, LLaVA)."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import (
    CLIPVisionConfig,
    DetrConfig,
    LlamaConfig,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
)
from transformers.models.detr.modeling_detr import DetrEncoderLayer

from shardc.diagnostics.frontend import LibraryDataDependent
from shardc.frontend.step.capture import capture_step


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = DetrConfig(
            d_model=8, encoder_attention_heads=2, encoder_ffn_dim=16, dropout=0.0, attention_dropout=0.0
        )
        self.layer = DetrEncoderLayer(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.layer(x, attention_mask=None, spatial_position_embeddings=torch.zeros_like(x))
        return out if isinstance(out, torch.Tensor) else out[0]


def capture(model: nn.Module) -> object:
    optimizer = torch.optim.SGD(model.parameters())
    return capture_step(model, optimizer, (torch.ones(2, 3, 8),), loss=lambda out, _: out.sum())


def test_the_branch_is_named_with_the_libraries_line_and_the_way_out_works() -> None:
    model = Encoder()
    with pytest.raises(LibraryDataDependent, match="set training = False on that module") as caught:
        capture(model)
    assert caught.value.where is not None and "modeling_detr.py" in caught.value.where
    model.layer.training = False
    capture(model)


@pytest.mark.slow
def test_sizes_of_images_are_numbers() -> None:
    """LLaVA-NeXT reads them to lay out an image's patches."""
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlavaNextForConditionalGeneration(
        LlavaNextConfig(
            vision_config=CLIPVisionConfig(**sizes, image_size=8, patch_size=4, projection_dim=16),
            text_config=LlamaConfig(**sizes, vocab_size=64, pad_token_id=0),
            image_token_index=63,
            image_grid_pinpoints=[[8, 8], [8, 16]],
        )
    )
    tokens = torch.ones(2, 12, dtype=torch.int64)
    tokens[:, 1:11] = 63
    batch = {"input_ids": tokens, "labels": tokens.clone(), "pixel_values": torch.randn(2, 2, 3, 8, 8)}
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(LibraryDataDependent, match="give them as Python numbers"):
        capture_step(model, optimizer, {**batch, "image_sizes": torch.tensor([[8, 8], [8, 8]])})
    capture_step(model, optimizer, {**batch, "image_sizes": [[8, 8], [8, 8]]})
