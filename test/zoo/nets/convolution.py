"""Convolutions with groups, depthwise and dilated ones, strided transposed ones, in one and two dims."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nets.net import Net


class GroupedNet(nn.Module):
    """Images of 16 x 16 to four classes, by way of a sequence of their rows' means."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(4, 16, 3, padding=1)
        self.grouped = nn.Conv2d(16, 16, 3, padding=2, dilation=2, groups=4)
        self.depthwise = nn.Conv2d(16, 32, 3, stride=2, padding=1, groups=16, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.pointwise = nn.Conv2d(32, 16, 1)
        self.causal = nn.Conv1d(16, 16, 3, dilation=2, groups=2)
        self.transposed = nn.ConvTranspose1d(16, 16, 4, stride=2, padding=1, groups=4)
        self.head = nn.Linear(16, 4)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = F.gelu(self.grouped(F.relu(self.stem(images))))
        x = self.pointwise(F.hardswish(self.norm(self.depthwise(x))))
        rows = F.pad(x.mean(3), (4, 0))
        rows = self.transposed(torch.tanh(self.causal(rows)))
        return F.cross_entropy(self.head(rows.amax(2)), labels, label_smoothing=0.1)


NET = Net(GroupedNet, lambda: (torch.randn(4, 4, 16, 16), torch.randint(0, 4, (4,))))
