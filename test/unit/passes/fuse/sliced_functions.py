"""Functions that read slices of what they compute, or reduce short rows: each is one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

X = torch.linspace(-3, 3, 9 * 20 * 4).reshape(9, 20, 4).sin()


def _halves(x: Tensor) -> Tensor:
    made = x * 2 + 1
    return torch.sigmoid(made[..., :2]) * made[..., 2:]


def _turned(x: Tensor) -> Tensor:
    after = x.roll(1, 1)
    return after[..., 0] * x[..., 1] - after[..., 2] * x[..., 3]


def _lifted(x: Tensor) -> Tensor:
    made = x + 0.5
    even, odd = made[:, 0::2], made[:, 1::2]
    return odd - 0.5 * (even + odd)


def _coordinates(x: Tensor) -> Tensor:
    unit = F.normalize(x[..., :3], dim=-1)
    return unit[..., 0] * unit[..., 1] - unit[..., 2]


SLICES: dict[str, Callable[[Tensor], Any]] = {
    "halves": _halves,
    "coordinates of a roll": _turned,
    "every other row": _lifted,
    "a part that was padded": lambda x: F.pad(x.mT, (0, 0, 3, 0))[:, :4] * 2 + x.mT,
    "a part of a part": lambda x: (x.exp() + 1)[:, 2:][:, :, 1:3] * 2,
    "a part of a transposed value": lambda x: (x + 1).transpose(0, 1)[3:15] * 2,
    "a part for each element": lambda x: (made := x + 1)[:, :1] * x - made[..., -1:],
    "padded parts": lambda x: F.pad(x[1:, 3:15:2], (0, 0, 1, 2, 1, 0)) * 2,
    "a turned part": lambda x: x[:, 2:].flip(1)[:, 1:17] + x[:, 2:18, 1:3].roll(1, 2)[..., :1],
    "a turned part of a split dim": lambda x: x.transpose(0, 1).unflatten(0, (10, 2))[:, 1].roll(1, 0) * 2,
    "read along a part": lambda x: x[2:, 1:19].gather(1, (x[2:, :5] * 3).abs().long()) * 2,
    "a part and the whole": lambda x: [(made := x * x + 1), made[:, 0] * 2],
}
ROWS: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda x: (x * 2).sum(-1) + 1,
    "sum over a middle dim": lambda x: (x[:, :3] + 1).sum(1) * 2,
    "sum of two dims": lambda x: (x[:, :, :2].unflatten(1, (10, 2)) * 2).sum((2, 3)) + 1,
    "product": lambda x: (x + 1).prod(-1) * 2,
    "largest": lambda x: (x + 1).amax(-1, keepdim=True) * x,
    "smallest": lambda x: x.amin(-1) * 2,
    "norm": lambda x: F.normalize(x, dim=-1) * 2,
    "norm of coordinates": _coordinates,
    "distances": lambda x: ((x[:, :, None] - x[:, None]) ** 2).sum(-1).amin(-1),
}
