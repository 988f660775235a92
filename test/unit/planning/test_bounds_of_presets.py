"""No preset is cheaper than the bound of a search on the same mesh, by the same cost model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from shardc.cost.cluster.names import find_cluster
from shardc.diagnostics.base import ShardcError
from shardc.passes.search.choose import Found
from shardc.planning.candidates import Candidate, meshes_of, plans_of
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question

Made = tuple[nn.Module, tuple[int, ...]]


class Scored(nn.Module):
    """Layers in sequence, and the mean of squares of what they return."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).square().mean()


def wide() -> Made:
    """Gradients of inputs come before those of weights, which hide their all-reduces."""
    layers = (p for _ in range(4) for p in (nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)))
    return Scored(*layers), (256, 1024)


def odd() -> Made:
    return Scored(*(p for _ in range(7) for p in (nn.Linear(256, 256), nn.Tanh()))), (32, 256)


def normed() -> Made:
    parts = (p for _ in range(12) for p in (nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU()))
    return Scored(*parts), (64, 256)


def images() -> Made:
    convolutions = (
        p for _ in range(4) for p in (nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
    )
    ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 512)
    return Scored(nn.Conv2d(3, 32, 3, padding=1), *convolutions, *ends), (16, 3, 32, 32)


def encoder() -> Made:
    layers = (nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True) for _ in range(4))
    return Scored(*layers), (8, 32, 128)


@pytest.mark.slow
@pytest.mark.drawn(2)
@pytest.mark.parametrize("cluster", ["cpu-4", "h100-4", "a100-80-2x2"])
@pytest.mark.parametrize("made", [wide, odd, normed, images, encoder])
def test_no_preset_is_cheaper_than_the_bound(made: Callable[[], Made], cluster: str) -> None:
    with torch.device("meta"):
        model, shape = made()
        batch = (torch.empty(shape),)
    found = find_cluster(cluster)
    optimizer = torch.optim.AdamW(model.parameters())
    pricer = Pricer(Question(made.__name__, model, optimizer, batch), cluster=found)
    compared = 0
    for mesh in meshes_of(4, 4, shape[0], 1):
        searched = pricer.found(Candidate(mesh, "auto"))
        assert isinstance(searched, Found)
        for candidate in plans_of(mesh, shape[0]):
            if "pipe" in candidate.mesh:
                continue
            try:
                seconds = pricer.price(candidate).on(found).time.seconds
            except ShardcError:  # experts' plans, say, for a model without experts
                continue
            compared += 1
            assert seconds >= 0.999 * searched.solution.bound_s, candidate.text
    assert compared >= 8
