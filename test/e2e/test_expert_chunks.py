"""Rows that travel in chunks: equal to one device in f64, as many bytes, and experts at work meanwhile."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
import torch
from models import Training, sgd
from torch import Tensor, nn
from torch_mlir import ir
from training import Captured, capture, check_equal, train_eagerly

from shardc.dialects.aten.types import read_type
from shardc.options.experts import Experts
from shardc.passes.manager.program import program_blocks
from shardc.step.shard import Compiled

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


def _batch() -> tuple[Tensor, Tensor]:
    """Tokens, and two experts for each; the last ones like expert 0."""
    kinds = torch.arange(TOKENS * CHOSEN).view(TOKENS, CHOSEN) % EXPERTS
    kinds[TOKENS - 5 :] = 0
    return torch.randn(TOKENS, WIDTH), kinds


TRAINING = Training(Layers, _batch, sgd, lambda output, _: output)
MESHES: dict[str, tuple[dict[str, int], int]] = {
    "expert": ({"expert": 4}, 1),
    "zero2*expert": ({"data": 2, "expert": 2}, 1),
    "zero3*expert": ({"data": 2, "expert": 2}, 2),
    "expert*tensor": ({"expert": 2, "tensor": 2}, 1),
}
"""Plan -> mesh and micro-batches."""


@cache
def _captured() -> Captured:
    return capture(TRAINING)


@cache
def _compiled(plan: str, chunks: int) -> Compiled:
    mesh, micro_batches = MESHES[plan]
    return _captured().compile(mesh, plan, micro_batches, experts=Experts(chunks=chunks))


@pytest.mark.parametrize("chunks", [2, 3])
@pytest.mark.parametrize("plan", MESHES)
def test_equals_one_device(plan: str, chunks: int) -> None:
    """Also where chunks do not divide the rows of a block: the room is rounded up."""
    check_equal(_captured(), _compiled(plan, chunks), TRAINING, train_eagerly(TRAINING, 2))


def _moved(module: ir.Module) -> Counter[int]:
    """Bytes of the operand of each all-to-all."""
    found: Counter[int] = Counter()
    for op in (o.operation for block in program_blocks(module) for o in block.operations):
        if op.name == "dist.all_to_all":
            type_ = read_type(op.operands[0].type)
            assert type_ is not None
            found[type_.size_bytes] += 1
    return found


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_chunks_send_as_many_bytes(chunks: int) -> None:
    """Each layer's four exchanges of rows in as many parts; one of the experts' numbers."""
    slots = TOKENS * CHOSEN
    assert _moved(_compiled("expert", chunks).rank_module) == {
        8 * slots * WIDTH // chunks: 4 * LAYERS * chunks,
        8 * slots: LAYERS,
    }
