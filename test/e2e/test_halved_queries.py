"""Hand-written attention under ``context`` that halves an image's rows by its queries, as in LeViT.

Keys reach the product first, but the rows of what follows are those of the queries.
"""

from __future__ import annotations

import pytest
import torch
from models import Training, sgd, sum_of_squares
from torch import Tensor, nn
from training import capture, check_equal, train_eagerly


class Halved(nn.Module):
    """Attention of every other row and column to all pixels, then linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 2, 2)
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.grown, self.last = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        key, value = (layer(x).unflatten(2, (2, 8)).transpose(1, 2) for layer in (self.key, self.value))
        few = x.unflatten(1, (8, 8))[:, ::2, ::2].reshape(x.shape[0], -1, 16)
        query = self.query(few).unflatten(2, (2, 8)).transpose(1, 2)
        scores = (query @ key.transpose(2, 3)).softmax(-1)
        return self.last(torch.relu(self.grown((scores @ value).transpose(1, 2).flatten(2))))


@pytest.mark.parametrize("ways", [2, 4])
def test_rows_of_queries_stay_split(ways: int) -> None:
    training = Training(Halved, lambda: (torch.randn(2, 3, 16, 16),), sgd, sum_of_squares)
    step = capture(training)
    compiled = step.compile({"context": ways}, "context")
    check_equal(step, compiled, training, train_eagerly(training))
    assert compiled.work.share <= 1.01 / ways
