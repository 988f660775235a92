"""The longest path through a model's towers, in a program with a few of their equal layers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from shardc.cost.cluster.names import find_cluster
from shardc.cost.schedule_form import ONE_F_ONE_B, ScheduleForm
from shardc.passes.search.calls.longest_part import longest_part
from shardc.passes.search.step.step_graph import StepGraph
from shardc.planning.candidates import Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question

WIDTH = 64


class Two(nn.Module):
    """Towers of some layers each, and two layers that read both: as much work as three of theirs."""

    def __init__(self, left: int, right: int) -> None:
        super().__init__()
        self.left = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(left))
        self.right = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(right))
        self.joint, self.end = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for layer in self.left:
            x = torch.tanh(layer(x))
        for layer in self.right:
            y = torch.sigmoid(layer(y))
        return self.end(torch.relu(self.joint(torch.cat([x, y], 1)))).square().mean()


class Woven(Two):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for left, right in zip(self.left, self.right, strict=True):
            x, y = torch.tanh(left(x)), torch.sigmoid(right(y))
        return self.end(torch.relu(self.joint(torch.cat([x, y], 1)))).square().mean()


class Encoder(nn.Module):
    """No towers, but branches within each layer."""

    def __init__(self) -> None:
        super().__init__()
        layers = (nn.TransformerEncoderLayer(WIDTH, 2, 128, 0.0, batch_first=True) for _ in range(8))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.layers(x) * y).square().mean()


def graph(made: Callable[[], nn.Module], *shape: int) -> StepGraph:
    with torch.device("meta"):
        model, batch = made(), (torch.empty(shape), torch.empty(shape))
    question = Question("net", model, torch.optim.SGD(model.parameters()), batch)
    return Pricer(question, cluster=find_cluster("h100-2")).graph(Candidate({"nvlink": 2}, "auto"))


@pytest.mark.parametrize(("left", "right"), [(12, 12), (4, 12), (3, 20)])
def test_the_part_of_the_longer_tower_and_what_follows(left: int, right: int) -> None:
    step = graph(lambda: Two(left, right), 32, WIDTH)
    assert len([node for node in step.program.nodes if "mm" in node.spec.target]) < 3 * (left + right)
    assert longest_part(step.program, step.folded, 8) == pytest.approx((right + 3) / (left + right + 3))


def test_towers_that_mix_are_beside_each_other_too() -> None:
    step = graph(lambda: Woven(12, 12), 32, WIDTH)
    assert longest_part(step.program, step.folded, 6) == pytest.approx(15 / 27)


def test_a_tower_with_less_work_than_a_stage_is_in_the_chain() -> None:
    step = graph(lambda: Two(2, 20), 32, WIDTH)
    assert longest_part(step.program, step.folded, 4) == 1.0
    assert longest_part(step.program, step.folded, 10) == pytest.approx(23 / 25)


def test_branches_within_layers_are_no_towers() -> None:
    step = graph(lambda: Encoder(), 4, 16, WIDTH)
    assert [longest_part(step.program, step.folded, stages) for stages in (2, 4, 8)] == [1.0] * 3


def test_several_stages_a_rank_stay_a_chain() -> None:
    step = graph(lambda: Two(12, 12), 32, WIDTH)
    assert step.on_stages(ScheduleForm("interleaved", 2), 4).path == 1.0
    assert step.on_stages(ONE_F_ONE_B, 1).path == 1.0
    assert step.on_stages(ONE_F_ONE_B, 4).path == pytest.approx(15 / 27)
