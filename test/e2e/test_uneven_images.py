"""Images under ``context`` whose rows four devices do not divide: windows are shared out evenly.

Two steps, gradients included, are those of one device in f64; a device computes little more than its share.
"""

from __future__ import annotations

import pytest
import torch
from models import Training, sgd, sum_of_squares
from torch import Tensor, nn
from training import capture, check_equal, train_eagerly

ROWS, WAYS = 30, 4


class Network(nn.Module):
    """Convolutions of 30 rows, then of 15, with windows that reach beyond both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.strided = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.last = nn.Conv2d(16, 32, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        image = torch.relu(self.stem(image))
        return self.last(torch.relu(self.strided(image)))


@pytest.mark.parametrize("columns", [30, 32])
def test_rows_that_do_not_divide(columns: int) -> None:
    training = Training(Network, lambda: (torch.randn(2, 3, ROWS, columns),), sgd, sum_of_squares)
    step = capture(training)
    compiled = step.compile({"context": WAYS}, "context")
    check_equal(step, compiled, training, train_eagerly(training))
    assert compiled.work.share <= 1.1 / WAYS
