"""``check`` compares the gradients that a clipped norm is of, whichever parameters these are."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import SGD

import shardc


@pytest.mark.parametrize("plan", ["zero2", "data*tensor"])
def test_check_sees_the_gradients_outside_of_the_optimizer(plan: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    rows = {}
    for clipped in ("model", "optimizer"):
        step = shardc.compile_step(
            model,
            SGD(model[2].parameters(), 0.5),
            (torch.randn(8, 8),),
            mesh={"data": 2, "tensor": 2} if "tensor" in plan else {"data": 2},
            plan=plan,
            loss=lambda output, _: output.square().mean(),
            clip_grad_norm=0.05,
            clip_parameters=clipped,
            fuse=False,
        )
        proof = step.check()
        assert proof.passed, proof.render()
        rows[clipped] = {row.name for row in proof.exact.rows if row.role == "grad"}
    assert rows["model"] - rows["optimizer"] == {"0.weight", "0.bias"}
