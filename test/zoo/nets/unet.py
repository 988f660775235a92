"""A U-Net: two levels down, two up, each joined with the level's own features; images of 16 x 16."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nets.net import Net


class Block(nn.Sequential):
    """Two convolutions with group norm."""

    def __init__(self, inputs: int, outputs: int) -> None:
        layers: list[nn.Module] = []
        for channels in (inputs, outputs):
            layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.second, self.middle = (
            Block(3, width),
            Block(width, 2 * width),
            Block(2 * width, 4 * width),
        )
        self.raise_second = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.raise_first = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.up_second, self.up_first = Block(4 * width, 2 * width), Block(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, images: Tensor, masks: Tensor) -> Tensor:
        first = self.first(images)
        second = self.second(F.max_pool2d(first, 2))
        middle = self.middle(F.avg_pool2d(second, 2))
        second = self.up_second(torch.cat([self.raise_second(middle), second], 1))
        raised = F.interpolate(self.raise_first(second), scale_factor=1.0, mode="nearest")
        first = self.up_first(torch.cat([raised, first], 1))
        return F.binary_cross_entropy_with_logits(self.head(first), masks)


NET = Net(UNet, lambda: (torch.randn(4, 3, 16, 16), (torch.rand(4, 1, 16, 16) < 0.5).float()))
