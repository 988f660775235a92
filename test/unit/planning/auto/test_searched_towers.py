"""Searches for a model of two towers: stages beside each other, priced by their simulated schedule."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import shardc
from shardc.cost.cluster.names import find_cluster
from shardc.cost.step.on_cluster import step_time_on
from shardc.passes.pipeline.schedules.by_name import schedule
from shardc.planning.candidates import PIPE, Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question

WIDTH, ROWS, CLUSTER = 4096, 1024, "h100-1x4"
"""Four nodes of one device: gradients of all weights take longer than their computation."""


class Two(nn.Module):
    """Two towers of five layers each, and two layers that read both."""

    def __init__(self) -> None:
        super().__init__()
        towers = [[nn.Linear(WIDTH, WIDTH) for _ in range(5)] for _ in range(2)]
        self.left, self.right = map(nn.ModuleList, towers)
        self.joint, self.end = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for layer in self.left:
            x = torch.tanh(layer(x))
        for layer in self.right:
            y = torch.sigmoid(layer(y))
        return self.end(torch.relu(self.joint(torch.cat([x, y], 1)))).square().mean()


def asked() -> tuple[nn.Module, torch.optim.Optimizer, tuple[Tensor, Tensor]]:
    with torch.device("meta"):
        model = Two().bfloat16()
        rows = torch.empty(ROWS, WIDTH, dtype=torch.bfloat16)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), (rows, rows.clone())


def test_a_search_takes_towers_as_stages_beside_each_other() -> None:
    found = shardc.search_plan(*asked(), cluster=CLUSTER, micro_batches=4, recompute="none")
    searches = found.searches
    priced = searches.picked(found.answer).priced
    mesh, made = priced.candidate.mesh, priced.schedule
    assert mesh[PIPE] == 4 and made is not None
    assert made.reads == ((), (0,), (), (1, 2))
    cluster = searches.cluster
    played = step_time_on(cluster, mesh, priced.step, priced.pipe, made, priced.stages)
    assert found.seconds == played.seconds
    chain = schedule(made.name, 4, 4)
    assert step_time_on(cluster, mesh, priced.step, priced.pipe, chain).seconds > 1.03 * played.seconds
    assert found.around.bound_s <= played.seconds
    assert found.around.found[0].choice.form.path < 1


@pytest.mark.slow
@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "fill-drain", "interleaved"])
def test_no_pipeline_of_towers_is_cheaper_than_its_bounds(name: str, stages: int) -> None:
    """Neither in time nor in memory. With interleaved stages the towers are a chain."""
    cluster = find_cluster(CLUSTER)
    pricer = Pricer(Question("two", *asked()), cluster=cluster)
    candidate = Candidate({PIPE: stages, "data": 4 // stages}, "pipeline*data", 4)
    options = {"pipeline": shardc.Pipeline(schedule=name)}
    price, bound = pricer.price(candidate, **options).on(cluster), pricer.bound(candidate, **options)
    assert 0 < bound.seconds <= price.time.seconds
    assert 0 < bound.needed_bytes <= price.needed_bytes
