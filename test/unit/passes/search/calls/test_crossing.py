"""Bytes between two stages, wherever the forward is cut."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from shardc.cost.cluster.names import find_cluster
from shardc.passes.search.calls.crossing import crossing
from shardc.planning.candidates import Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question

WIDTH, ROWS, LAYERS = 256, 512, 9


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return x + mask * self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        mask = mask.sqrt()  # depends on no parameter: each stage computes it
        for layer in self.layers:
            x = layer(x, mask)
        return x.square().mean()


def test_the_stream_between_layers_is_the_least() -> None:
    with torch.device("meta"):
        model, batch = Net(), (torch.empty(ROWS, WIDTH), torch.empty(ROWS, WIDTH))
    question = Question("net", model, torch.optim.AdamW(model.parameters()), batch)
    step = Pricer(question, cluster=find_cluster("h100-2")).graph(Candidate({"nvlink": 2}, "auto"))
    found = crossing(step.program, step.folded.weights)
    parts, sizes = zip(*found, strict=True)
    assert list(parts) == sorted(parts)
    assert min(size for part, size in found if 0.1 < part < 0.9) == ROWS * WIDTH * 4
    assert max(sizes) == ROWS * WIDTH * 4 * 5  # the stream, and what is inside of a block
    # Four layers stand for nine.
    inner = [part for part in parts if 0.1 < part < 0.9]
    assert len(inner) < len(parts)
    assert inner[0] == pytest.approx(1 / 6, abs=0.1)
