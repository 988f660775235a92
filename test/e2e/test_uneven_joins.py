"""Sequences under ``context`` joined to a length that devices do not divide: another dim is split meanwhile.

Three steps, gradients included, are those of one device in f64; a device computes its share, and nothing as
long as the sequence is gathered.
"""

from __future__ import annotations

import pytest
import torch
from models import Training, sgd, sum_of_squares
from torch import Tensor, nn
from torch.nn import functional as F
from training import capture, check_equal, train_eagerly

from shardc.report.traffic import transfers

BATCH = 4


class ClassToken(nn.Module):
    """Hand-written attention over 64 pixels and a class token, then a convolution of the pixels: CvT."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.last = nn.Conv2d(3, 16, 2, 2), nn.Conv2d(16, 16, 3, padding=1)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image)
        size = x.shape
        x = torch.cat([self.token.expand(size[0], -1, -1), x.flatten(2).transpose(1, 2)], 1)
        q, k, v = (layer(x).unflatten(2, (2, 8)) for layer in (self.query, self.key, self.value))
        scores = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k), -1)
        x = torch.einsum("bhqk,bkhd->bqhd", scores, v).flatten(2)
        token, pixels = x.split([1, x.shape[1] - 1], 1)
        return self.last(pixels.transpose(1, 2).reshape(size)) + token.mean()


class Chunks(nn.Module):
    """States of chunks, before which there is one of zeros; a matrix carries them on: Mamba 2."""

    def __init__(self) -> None:
        super().__init__()
        self.rate, self.mixed = nn.Parameter(torch.rand(4)), nn.Linear(8, 32)

    def forward(self, x: Tensor) -> Tensor:
        x = (
            torch.tanh(self.mixed(x)).unflatten(2, (4, 8)).unflatten(1, (-1, 4))
        )  # [batch, chunk, token, head, size]
        states = torch.einsum("bclhp,bclhn->bchpn", x, x)
        states = torch.cat([torch.zeros_like(states[:, :1]), states], 1)
        decay = F.pad(F.logsigmoid(x.mean((2, 4)) * self.rate).transpose(1, 2), (1, 0)).cumsum(-1)
        decay = torch.tril(torch.exp(decay[..., :, None] - decay[..., None, :]))
        states = torch.einsum("bhcz,bzhpn->bchpn", decay, states)[:, :-1]
        return torch.einsum("bclhp,bchpn->bclhn", x, states)


CASES = {
    "class token": Training(ClassToken, lambda: (torch.randn(BATCH, 3, 16, 16),), sgd, sum_of_squares),
    "chunks": Training(Chunks, lambda: (torch.randn(BATCH, 32, 8),), sgd, sum_of_squares),
}


@pytest.mark.parametrize("ways", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_joins_that_do_not_divide(name: str, ways: int) -> None:
    training = CASES[name]
    step = capture(training)
    compiled = step.compile({"context": ways}, "context")
    check_equal(step, compiled, training, train_eagerly(training))
    assert compiled.work.share <= 1.01 / ways
    assert "all_to_all" in {t.kind for t in transfers(compiled.rank_module)}


def test_a_batch_of_one_splits_heads() -> None:
    """The slice of 8 of 9 states is computed as one of 12, so a device does more than its share."""
    training = Training(Chunks, lambda: (torch.randn(1, 32, 8),), sgd, sum_of_squares)
    step = capture(training)
    compiled = step.compile({"context": 4}, "context")
    check_equal(step, compiled, training, train_eagerly(training))
    assert not list(compiled.work.remarks())
    assert compiled.work.share <= (12 / 9) ** 2 / 4
