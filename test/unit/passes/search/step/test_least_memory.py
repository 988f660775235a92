"""No plan holds less than the bound, and the bound is close to what the shardings of calls allow."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from shardc.cost.cluster.names import find_cluster
from shardc.cost.schedule_form import FORMS, ONE_F_ONE_B
from shardc.options.presets import AUTO
from shardc.options.recompute import Policy
from shardc.planning.auto.space import RECOMPUTED
from shardc.planning.candidates import PIPE, Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question

CLUSTER = find_cluster("h100-2x4")


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        blocks = (nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 512), nn.Tanh()) for _ in range(8))
        self.layers, self.down = nn.ModuleList(blocks), nn.Linear(512, 128)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + self.down(layer(x))
        return x.square().mean()


@pytest.fixture(scope="module")
def pricer() -> Pricer:
    with torch.device("meta"):
        model, batch = Blocks(), (torch.empty(512, 64, 128),)
    return Pricer(
        Question("blocks", model, torch.optim.AdamW(model.parameters()), batch, None), cluster=CLUSTER
    )


def candidates(recompute: Policy) -> list[Candidate]:
    plain = [Candidate({"infiniband": 2, "nvlink": 4}, AUTO, count, recompute) for count in (1, 4)]
    mesh = {PIPE: 2, "nvlink": 4}
    pairs = itertools.product((4, 16), FORMS)
    return [*plain, *(Candidate(mesh, f"pipeline*{AUTO}", m, recompute, form=form) for m, form in pairs)]


@pytest.mark.parametrize("recompute", RECOMPUTED)
def test_graphs_hold_no_less(pricer: Pricer, recompute: Policy) -> None:
    for candidate in candidates(recompute):
        held = pricer.graph(candidate).graph.least_bytes / CLUSTER.devices[0].memory_bytes
        least = pricer.least_part(candidate)
        assert 0.9 * held <= least <= held * (1 + 1e-9)


def test_memory_in_flight_counts(pricer: Pricer) -> None:
    mesh, plan = {PIPE: 2, "nvlink": 4}, f"pipeline*{AUTO}"
    few, many = (pricer.least_part(Candidate(mesh, plan, count, form=ONE_F_ONE_B)) for count in (2, 16))
    assert 1 / 8 < many / few < 1 / 4
