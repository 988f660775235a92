"""A diffusion transformer (Peebles and Xie 2023): patches, a time embedding,
adaptive layer norm that starts at zero.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nets.net import Net

WIDTH, HEADS, PATCH, SIZE = 32, 4, 4, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.modulation = nn.Linear(WIDTH, 6 * WIDTH)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(F.silu(time)).unsqueeze(1).chunk(6, -1)
        q, k, v = (
            self.qkv(self.norm1(x) * (1 + scale1) + shift1)
            .unflatten(-1, (3, HEADS, -1))
            .permute(2, 0, 3, 1, 4)
        )
        x = x + gate1 * self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiffusionTransformer(nn.Module):
    """Predicts the noise of images that were noised to random times."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.positions = nn.Parameter(torch.randn((SIZE // PATCH) ** 2, WIDTH))
        self.time = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.classes = nn.Embedding(8, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, PATCH * PATCH * 3)

    def forward(self, images: Tensor, noise: Tensor, times: Tensor, labels: Tensor) -> Tensor:
        angles = times[:, None] * torch.exp(
            -math.log(1e4) / WIDTH * torch.arange(0, WIDTH, 2, device=times.device)
        )
        condition = self.time(torch.cat([angles.cos(), angles.sin()], -1)) + self.classes(labels)
        share = times.view(-1, 1, 1, 1)
        x = self.patches((1 - share) * images + share * noise).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x, condition)
        side = SIZE // PATCH
        found = (
            self.head(x).view(-1, side, side, PATCH, PATCH, 3).permute(0, 5, 1, 3, 2, 4).reshape(images.shape)
        )
        return F.mse_loss(found, noise)


def _batch() -> tuple[Tensor, ...]:
    images = torch.randn(4, 3, SIZE, SIZE)
    return images, torch.randn_like(images), torch.rand(4), torch.randint(0, 8, (4,))


NET = Net(DiffusionTransformer, _batch)
