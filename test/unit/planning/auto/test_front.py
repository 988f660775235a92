"""The front of memory against time: each point needs less, takes longer, and compiles."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

import shardc
from shardc.planning.auto.front import Front, front_json, front_text
from shardc.planning.auto.search import SearchedPlan


class Wide(nn.Module):
    """A model whose activations are most of what it holds: computing them again saves memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x.square().mean()


@pytest.fixture(scope="module")
def found() -> SearchedPlan:
    torch.manual_seed(0)
    model = Wide()
    optimizer = torch.optim.AdamW(model.parameters())
    return shardc.search_plan(model, optimizer, torch.randn(512, 256), cluster="h100-2")


@pytest.mark.slow
def test_each_point_needs_less_takes_longer_and_compiles(found: SearchedPlan) -> None:
    points = found.front()
    assert len(points) >= 2
    assert points[0].options == found.options
    needed, seconds = zip(*((p.price.needed_bytes, p.price.time.seconds) for p in points), strict=True)
    assert list(needed) == sorted(needed, reverse=True)
    assert list(seconds) == sorted(seconds)
    question = found.searches.pricer.question
    step = shardc.compile_step(
        question.model, question.optimizer, question.batch, fuse=False, **points[-1].options
    )
    assert step.check().passed


def test_a_front_in_words_and_as_json(found: SearchedPlan) -> None:
    price = found.searches.picked(found.answer).priced.on(found.searches.cluster)
    front = Front([price], "a test ends it")
    text = front_text(front)
    assert text[0].endswith("the list ends because a test ends it")
    assert found.candidate.text in text[-1]
    held = json.loads(json.dumps(front_json(front)))
    assert held["why"] == "a test ends it"
    assert held["points"][0]["needed_bytes"] == price.needed_bytes
    assert held["points"][0]["step_s"] == found.seconds
