"""Rows with too little room at their experts: the step leaves all state unchanged on all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest
import torch
from models import Training, sgd
from torch import Tensor, nn
from torch_mlir import ir
from training import Captured, Ranks, Values, capture, check_trained, train_eagerly

import shardc
from shardc.diagnostics.passes.pipeline import RerunOfParts
from shardc.dialects.aten.types import read_type
from shardc.options.experts import Experts
from shardc.passes.manager.program import program_blocks
from shardc.step.shard import Compiled

ROWS, EXPERTS, WIDTH, INNER, LAYERS = 32, 4, 6, 10, 2
COUNT = ("overflow", "experts")


class Layers(nn.Module):
    """Two layers in which each row's expert is what the batch says, and a count of steps in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ParameterList(torch.randn(EXPERTS, WIDTH, INNER) / 4 for _ in range(LAYERS))
        self.down = nn.ParameterList(torch.randn(EXPERTS, INNER, WIDTH) / 4 for _ in range(LAYERS))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor, kinds: Tensor) -> Tensor:
        self.seen += 1
        for up, down, ids in zip(self.up, self.down, (kinds, (kinds + 1) % EXPERTS), strict=True):
            x = x + torch.bmm(torch.bmm(x.unsqueeze(1), up[ids]).relu(), down[ids]).squeeze(1)
        return x.square().sum()


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def _training(liked: int = 0) -> Training:
    """``liked``: how many of the last rows go to expert 0; the others to each in turn."""

    def batch() -> tuple[Tensor, Tensor]:
        kinds = torch.arange(ROWS) % EXPERTS
        kinds[ROWS - liked :] = 0
        return torch.randn(ROWS, WIDTH), kinds

    return Training(Layers, batch, adam, lambda output, _: output)


MESHES: dict[str, tuple[dict[str, int], int]] = {
    "expert": ({"expert": 4}, 1),
    "zero2*expert": ({"data": 2, "expert": 2}, 1),
    "zero3*expert": ({"data": 2, "expert": 2}, 2),
    "expert*tensor": ({"expert": 2, "tensor": 2}, 1),
}
"""Plan -> mesh and micro-batches."""


@cache
def _captured() -> Captured:
    return capture(_training())


@cache
def _compiled(plan: str) -> Compiled:
    mesh, micro_batches = MESHES[plan]
    return _captured().compile(mesh, plan, micro_batches, experts=Experts(1.0, "rerun"))


class _Counted(Ranks):
    """Ranks whose programs say how many rows had no room."""

    def train(self, batches: list[tuple[Tensor, ...]]) -> tuple[list[Values], float]:
        made, spread = super().train(batches)
        self.counts = [int(values.pop(COUNT)) for values in made]
        return made, spread


@pytest.mark.parametrize("plan", MESHES)
def test_with_room_for_all_it_is_a_step(plan: str) -> None:
    ranks = _Counted(_captured(), _compiled(plan).program)
    check_trained(ranks, _training(), train_eagerly(_training(), 2))
    assert ranks.counts == [0, 0]


@pytest.mark.parametrize("plan", MESHES)
def test_without_room_nothing_changes(plan: str) -> None:
    """The second of three steps overflows: state is that of the first after it, and goes on from there."""
    ranks = _Counted(_captured(), _compiled(plan).program)
    calm, liked = _training().batches(1), _training(liked=8).batches(1)
    made, spread = ranks.train([*calm, *liked, *calm])
    assert ranks.counts[0] == ranks.counts[2] == 0 < ranks.counts[1] and spread == 0
    first, second, third = map(_state, made)
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not any(torch.equal(second[key], third[key]) for key in first)


def _state(values: Mapping[tuple[str, str], Tensor]) -> Values:
    return {key: value for key, value in values.items() if key[0] in ("param", "opt_state", "buffer")}


def test_the_ranks_agree_by_one_collective() -> None:
    """One all-reduce for the step, of an integer for each layer."""
    ops = [o.operation for block in program_blocks(_compiled("expert").rank_module) for o in block.operations]
    types = [read_type(op.operands[0].type) for op in ops if op.name == "dist.all_reduce"]
    assert [t.numel for t in types if t is not None and t.dtype == torch.int64] == [LAYERS]
    assert _calls(ops, "shardc.beyond_room") == LAYERS


def _calls(ops: list[ir.Operation], name: str) -> int:
    return sum("name" in op.attributes and op.attributes["name"].value == f"torch.{name}" for op in ops)


def test_stages_cannot_run_again() -> None:
    model = nn.Linear(2, 2)
    options = {"plan": "pipeline", "micro_batches": 2, "on_overflow": "rerun"}
    with pytest.raises(RerunOfParts, match="stages are separate programs"):
        shardc.compile_step(model, sgd(model), (torch.randn(4, 2),), mesh={"pipe": 2}, **options)
