"""Recomputation saves memory, and never time: bounds of choices rely on it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from shardc.cost.cluster.names import find_cluster
from shardc.cost.schedule_form import FORMS, ScheduleForm
from shardc.options.presets import AUTO
from shardc.passes.search.solver.overlap import solve_overlapped
from shardc.planning.auto.space import RECOMPUTED
from shardc.planning.candidates import PIPE, Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question

WIDTH = 8192


class Block(nn.Module):
    """Several linear layers read a norm's result, as in attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.parts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.down = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        one, two, three = (part(self.norm(x)) for part in self.parts)
        return x + self.down(one * torch.sigmoid(two) + three)


@pytest.fixture(scope="module")
def pricer() -> Pricer:
    with torch.device("meta"):
        model = nn.Sequential(*(Block() for _ in range(4))).to(torch.bfloat16)
        batch = (torch.empty(8, 4096, WIDTH, dtype=torch.bfloat16),)
    optimizer = torch.optim.AdamW(model.parameters())

    def loss(out: Tensor, _: object) -> Tensor:
        return out.float().square().mean()

    return Pricer(Question("blocks", model, optimizer, batch, loss), cluster=find_cluster("h100-8x4"))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_recomputation_saves_no_time(pricer: Pricer, form: ScheduleForm) -> None:
    """What is kept may be gathered once for forward and once for backward, also beside gradients of weights
    alone.
    """
    mesh, plan = {PIPE: 2, "infiniband": 2, "nvlink": 8}, f"pipeline*{AUTO}"
    graphs = [pricer.graph(Candidate(mesh, plan, 4, of, form=form)).graph for of in RECOMPUTED]
    seconds = [solve_overlapped(graph).free_s for graph in graphs]
    assert seconds[0] == min(seconds) > 0
