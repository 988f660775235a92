"""Functions that the edited script and its model import from elsewhere."""

import torch
from torch import Tensor

LEAK = 0.1


def smooth(x: Tensor, by: float = 0.25) -> Tensor:
    return x * torch.sigmoid(x * by) + LEAK * x


def centered(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


def rescaled(x: Tensor, *, factor: float = 1.5) -> Tensor:
    return x * factor
