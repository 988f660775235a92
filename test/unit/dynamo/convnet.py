"""A tiny convolutional net."""

from __future__ import annotations

import torch
from torch import nn


class ConvNet(nn.Module):
    """Convolution, batch norm, group norm, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.SiLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.GroupNorm(2, 8),
            nn.ReLU(),
        )
        self.head = nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(image).mean((2, 3))).float().log_softmax(-1).square().mean()
