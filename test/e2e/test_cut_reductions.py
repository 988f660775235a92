"""Sharded reductions: a convolution's input channels with a bias, a sorted table, a maximum by segment."""

from __future__ import annotations

import re

import pytest
import torch
from models import Training
from torch import Tensor, nn
from training import Captured, capture, check_equal, train_eagerly


class Net(nn.Module):
    """Features of images, a bucket for each, and the largest feature of each of four segments of
    the batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 6, 3, padding=1)
        self.head, self.bucket = nn.Linear(6, 3), nn.Parameter(torch.randn(9))
        self.register_buffer("edges", torch.linspace(-0.2, 0.2, 8))

    def forward(self, x: Tensor) -> Tensor:
        features = self.second(self.first(x).relu()).mean((2, 3))
        buckets = self.bucket[torch.bucketize(features.detach(), self.edges)]
        segments = torch.arange(8).remainder(4).unsqueeze(1).expand(8, 6)
        largest = torch.full((4, 6), -1.0, dtype=x.dtype).scatter_reduce(0, segments, features, "amax")
        return self.head(features) * buckets.sum(1, keepdim=True) + largest.sum()


TRAINING = Training(Net, lambda: (torch.randn(8, 4, 5, 5),), loss=lambda out, batch: out.square().mean())
CHANNELS = {"second.weight": [None, "tensor"], "edges": ["tensor"]}
PLANS = {
    "channels and table": ({"tensor": 2}, CHANNELS, {'"sum"'}),
    "batch": ({"data": 2}, "data", {'"sum"', '"max"'}),
    "both": ({"data": 2, "tensor": 2}, {**CHANNELS, "0": ["data"]}, {'"sum"', '"max"'}),
}


@pytest.fixture(scope="module")
def captured() -> Captured:
    return capture(TRAINING)


@pytest.mark.parametrize("case", PLANS)
def test_equals_eager_training(case: str, captured: Captured) -> None:
    mesh, plan, reductions = PLANS[case]
    compiled = captured.compile(mesh, plan)
    text = str(compiled.rank_module)
    assert set(re.findall(r"reduction = (\"\w+\")", text)) == reductions
    assert "dist.all_gather" not in text
    if "tensor" in mesh:
        assert re.search(r"aten.bucketize.Tensor .*!torch.vtensor<\[4\],f64>", text), "the table is cut"
    check_equal(captured, compiled, TRAINING, train_eagerly(TRAINING))
