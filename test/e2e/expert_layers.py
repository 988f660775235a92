"""Layers of experts whose rows travel, and the meshes that they are trained on."""

from __future__ import annotations

from collections import Counter

import torch
from models import Training, sgd
from torch import Tensor, nn
from torch_mlir import ir

from shardc.dialects.aten.types import read_type
from shardc.passes.manager.program import program_blocks

TOKENS, CHOSEN, EXPERTS, WIDTH, INNER, LAYERS = 16, 2, 4, 6, 10, 2


class Layers(nn.Module):
    """Two layers of experts with a bias each; the batch says whom each token chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.up = nn.ParameterList(torch.randn(EXPERTS, WIDTH, INNER) / 4 for _ in range(LAYERS))
        self.bias = nn.ParameterList(torch.randn(EXPERTS, INNER) / 4 for _ in range(LAYERS))
        self.down = nn.ParameterList(torch.randn(EXPERTS, INNER, WIDTH) / 4 for _ in range(LAYERS))

    def forward(self, x: Tensor, kinds: Tensor) -> Tensor:
        x = self.first(x)
        for layer, (up, bias, down) in enumerate(zip(self.up, self.bias, self.down, strict=True)):
            ids = (kinds.flatten() + layer) % EXPERTS
            rows = x.unsqueeze(1).expand(-1, CHOSEN, -1).reshape(-1, WIDTH)
            inner = torch.bmm(rows.unsqueeze(1), up[ids]).squeeze(1) + bias[ids]
            made = torch.bmm(inner.relu().unsqueeze(1), down[ids])
            x = x + made.view(-1, CHOSEN, WIDTH).sum(1)
        return x.square().sum()


def batch() -> tuple[Tensor, Tensor]:
    """Tokens, and two experts for each; the last ones like expert 0."""
    kinds = torch.arange(TOKENS * CHOSEN).view(TOKENS, CHOSEN) % EXPERTS
    kinds[TOKENS - 5 :] = 0
    return torch.randn(TOKENS, WIDTH), kinds


TRAINING = Training(Layers, batch, sgd, lambda output, _: output)
MESHES: dict[str, tuple[dict[str, int], int]] = {
    "expert": ({"expert": 4}, 1),
    "zero2*expert": ({"data": 2, "expert": 2}, 1),
    "zero3*expert": ({"data": 2, "expert": 2}, 2),
    "expert*tensor": ({"expert": 2, "tensor": 2}, 1),
    "data*expert": ({"data": 2, "expert": 4}, 2),
}
"""Plan -> mesh and micro-batches."""


def moved(module: ir.Module) -> Counter[tuple[str, int]]:
    """Axes, and bytes of the operand, of each all-to-all."""
    found: Counter[tuple[str, int]] = Counter()
    for op in (o.operation for block in program_blocks(module) for o in block.operations):
        if op.name == "dist.all_to_all":
            type_ = read_type(op.operands[0].type)
            assert type_ is not None
            found[str(op.attributes["axes"]), type_.size_bytes] += 1
    return found
