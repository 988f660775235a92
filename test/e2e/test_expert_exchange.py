"""Rows that travel in chunks, and by groups of devices: equal to one device in f64, by as many bytes as the
formula says."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
import torch
from models import Training, sgd
from torch import Tensor, nn
from torch_mlir import ir
from training import Captured, capture, check_equal, train_eagerly

from shardc.diagnostics.passes.plan import ExpertGroups
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
    "data*expert": ({"data": 2, "expert": 4}, 2),
}
"""Plan -> mesh and micro-batches."""


@cache
def _captured() -> Captured:
    return capture(TRAINING)


@cache
def _compiled(plan: str, experts: Experts) -> Compiled:
    mesh, micro_batches = MESHES[plan]
    return _captured().compile(mesh, plan, micro_batches, experts=experts)


def _check(plan: str, experts: Experts) -> None:
    check_equal(_captured(), _compiled(plan, experts), TRAINING, train_eagerly(TRAINING, 2))


@pytest.mark.parametrize("chunks", [2, 3])
@pytest.mark.parametrize("plan", [plan for plan in MESHES if plan != "data*expert"])
def test_chunks_equal_one_device(plan: str, chunks: int) -> None:
    """Also where chunks do not divide the rows of a block: the room is rounded up."""
    _check(plan, Experts(chunks=chunks))


def _moved(module: ir.Module) -> Counter[tuple[str, int]]:
    """Axes, and bytes of the operand, of each all-to-all."""
    found: Counter[tuple[str, int]] = Counter()
    for op in (o.operation for block in program_blocks(module) for o in block.operations):
        if op.name == "dist.all_to_all":
            type_ = read_type(op.operands[0].type)
            assert type_ is not None
            found[str(op.attributes["axes"]), type_.size_bytes] += 1
    return found


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_chunks_send_as_many_bytes(chunks: int) -> None:
    """Each layer's four exchanges of rows in as many parts; one of the experts' numbers."""
    slots = TOKENS * CHOSEN
    assert _moved(_compiled("expert", Experts(chunks=chunks)).rank_module) == {
        ('["expert"]', 8 * slots * WIDTH // chunks): 4 * LAYERS * chunks,
        ('["expert"]', 8 * slots): LAYERS,
    }


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("plan", ["expert", "data*expert"])
def test_groups_equal_one_device(plan: str, chunks: int) -> None:
    _check(plan, Experts(chunks=chunks, group=2))


def test_groups_trade_within_them_and_then_between() -> None:
    """Of two groups of two, each exchange is two: to the device of the same place in the own group, of all
    rows for its place in any group; then one message to the other group.
    """
    slots = TOKENS * CHOSEN
    within, between = (f'[#dist.axis<"expert", {pre} : i64, 2 : i64>]' for pre in (2, 1))
    assert _moved(_compiled("expert", Experts(group=2)).rank_module) == {
        (within, 8 * slots * WIDTH): 4 * LAYERS,
        (between, 8 * slots * WIDTH): 4 * LAYERS,
        (within, 8 * slots): LAYERS,
        (between, 8 * slots): LAYERS,
    }


def test_a_group_as_large_as_the_axis_needs_one_exchange() -> None:
    moved = [_moved(_compiled("expert", Experts(group=group)).rank_module) for group in (None, 4, 8)]
    assert moved[0] == moved[1] == moved[2]


def test_groups_that_do_not_divide_the_axis() -> None:
    with pytest.raises(ExpertGroups, match=r"groups of 3 .* expert=4(?s:.)*expert_group=2"):
        _compiled("expert", Experts(group=3))


def test_experts_over_axes_that_do_not_cut_the_batch_have_no_groups() -> None:
    plan = {"up.*": ["expert", None, None], "down.*": ["expert", None, None]}
    compiled = _captured().compile({"expert": 4}, plan, experts=Experts(group=2))
    assert [r.name for r in compiled.remarks if r.name == "NotGrouped"]
