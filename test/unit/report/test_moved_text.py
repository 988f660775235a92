"""Names of the tensors that collectives move are the same with and without a loop over micro-batches."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import shardc
from shardc.report.traffic import named_transfers


def names(plan: str, micro_batches: int | None) -> dict[str, set[str]]:
    """The names in the collectives of a two-layer net's step, by kind of collective."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    step = shardc.compile_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        (torch.randn(8, 8),),
        loss=lambda output, batch: output.square().mean(),
        mesh={"data": 2},
        plan=plan,
        micro_batches=micro_batches,
        fuse=False,
    )
    found: dict[str, set[str]] = {}
    for transfer in named_transfers(step.compiled.rank_module):
        if transfer.what:
            found.setdefault(transfer.kind, set()).add(transfer.what)
    return found


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("data", {"all_reduce": {"gradient of 2.weight and 3 more", "loss"}}),
        (
            "zero2",
            {
                "all_reduce": {"loss"},
                "reduce_scatter": {"gradient of 2.weight and 3 more"},
                "all_gather": {"new 0.bias and 3 more"},
            },
        ),
        (
            "zero3",
            {
                "all_gather": {"0.weight and 3 more", "2.weight"},
                "all_reduce": {"loss"},
                "reduce_scatter": {"gradient of 2.weight and 3 more"},
            },
        ),
    ],
)
def test_parameters_are_named_inside_and_behind_a_loop(plan: str, expected: dict[str, set[str]]) -> None:
    """The loop gathers parameters under ``zero3``; sums of gradients are reduced after it under ``data``.
    Under ``zero2`` new parameters are gathered after the optimizer.
    """
    assert names(plan, None) == expected
    assert names(plan, 2) == expected
