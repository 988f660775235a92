"""Training script that ``test_edits.py`` edits at one place at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from unittest.mock import patch

import edited_model  # noqa: F401
import torch
from edited_helper import smooth
from edited_model import Block, Net
from edited_settings import SETTINGS
from torch import Tensor, nn  # noqa: F401
from torch.nn import functional as F

import shardc
from shardc.step.compile_step import CompiledStep

WEIGHT = 0.7
ROWS = 4
DTYPE = torch.float32


def penalty(x: Tensor, power: float = 2.0) -> Tensor:
    return x.abs().pow(power).mean()


def make_loss(weight: float) -> Callable[..., Tensor]:
    def loss(output: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        error = F.mse_loss(output, batch["target"])
        return error + weight * penalty(output) + 0.01 * smooth(output).mean()

    return loss


def patched(self: Block, x: Tensor) -> Tensor:
    return F.leaky_relu(x, self.slope) + self.shift


def batches() -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    made = [torch.randn(2, ROWS, SETTINGS.width, generator=generator, dtype=DTYPE) for _ in range(3)]
    return [{"input": x, "target": y} for x, y in made]


def launch() -> tuple[CompiledStep, list[dict[str, Tensor]]]:
    torch.manual_seed(0)
    model = Net(SETTINGS)
    model.to(DTYPE)
    model.scale.requires_grad_(True)
    model.train()
    rates = SETTINGS.rates
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": rates["decay"]}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rates["lr"], betas=(0.9, 0.99), eps=1e-8)
    mesh, plan = {"data": 1}, "data"
    weight = float(os.environ.get("EDITED_WEIGHT", WEIGHT))
    with patch.object(Block, "mixed", Block.mixed):
        step = shardc.compile_step(
            model, optimizer, batches()[0], mesh=mesh, plan=plan, loss=make_loss(weight), fuse=False
        )
    return step, batches()
