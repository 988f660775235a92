"""Products without a dim of the sequence, under ``context``: devices share them over another dim.

Three steps, gradients included, are those of one device in f64, and a device computes its share of them.
"""

from __future__ import annotations

import pytest
import torch
from models import Training, sgd, sum_of_squares
from torch import Tensor, nn
from torch.nn import functional as F
from training import capture, check_equal, train_eagerly

WIDTH, LENGTH = 16, 16


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2), -1) @ v


class Latents(nn.Module):
    """Latents that attend to a sequence, then to each other: Perceiver."""

    def __init__(self) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(8, WIDTH))
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:
        first, *others = self.layers
        read = torch.tanh(first(x))
        latents = self.latents.expand(x.shape[0], -1, -1)
        latents = latents + attend(others[0](latents), others[1](read), others[2](read))
        latents = latents + attend(others[3](latents), others[4](latents), others[5](latents))
        return others[6](torch.relu(latents))


class Relative(nn.Module):
    """Keys of 2 n relative positions, shifted for each query: Transformer-XL, XLNet."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.place = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        b, n = x.shape[:2]
        angle = torch.arange(n, -n, -1.0, dtype=x.dtype)[:, None] * 0.1 ** torch.arange(WIDTH)
        q = self.query(x)
        shifted = q @ self.place(angle.sin()).T
        shifted = shifted.reshape(b, 2 * n, n)[:, 1:].reshape(b, n, 2 * n - 1)[..., :n]
        return torch.softmax(q @ self.key(x).transpose(1, 2) + shifted, -1) @ self.value(x)


class Sorted(nn.Module):
    """Rows in the order of their experts, each of which computes an equal part of them."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        order = self.router(rows).argmax(-1).argsort(stable=True)
        parts = zip(self.experts, rows[order].chunk(4), strict=True)
        made = torch.cat([torch.relu(expert(part)) for expert, part in parts])
        return torch.zeros_like(rows).index_add(0, order, made).view_as(x)


class Blocks(nn.Module):
    """Attention within two blocks and their neighbours, more of which four devices would need: LongT5."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            F.pad(layer(x).unflatten(2, (2, 8)), (0, 0, 0, 0, 0, 2)).unflatten(1, (2, 9))
            for layer in (self.query, self.key, self.value)
        )
        k, v = (F.pad(t, (0, 0, 0, 0, 0, 0, 1, 1)) for t in (k, v))
        k, v = (torch.cat([t[:, n : n + 2] for n in range(3)], 2) for t in (k, v))
        scores = torch.softmax(torch.einsum("bnqhd,bnkhd->bnhqk", q, k), -1)
        return torch.einsum("bnhqk,bnkhd->bnqhd", scores, v).flatten(1, 2)[:, : x.shape[1]]


class Recurrent(nn.Module):
    """A loop over the sequence, whose products have the batch alone."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(WIDTH, WIDTH, batch_first=True), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.lstm(x)[0])


class Model(nn.Module):
    """One of the above behind an embedding."""

    def __init__(self, layer: type[nn.Module]) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(32, WIDTH), layer()

    def forward(self, ids: Tensor) -> Tensor:
        return self.layer(self.embedding(ids))


def training_of(layer: type[nn.Module], batch: int = 4) -> Training:
    tokens = lambda: (torch.randint(0, 32, (batch, LENGTH)),)  # noqa: E731
    return Training(lambda: Model(layer), tokens, sgd, sum_of_squares)


PLANS = {
    "context2": ({"context": 2}, "context"),
    "context4": ({"context": 4}, "context"),
    "data2-context2": ({"data": 2, "context": 2}, "zero3*context"),
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("layer", [Latents, Relative, Sorted, Blocks, Recurrent], ids=lambda c: c.__name__)
def test_devices_share_products(layer: type[nn.Module], plan: str) -> None:
    training = training_of(layer)
    step = capture(training)
    mesh, text = PLANS[plan]
    compiled = step.compile(mesh, text)
    check_equal(step, compiled, training, train_eagerly(training))
    assert not list(compiled.work.remarks())
    assert compiled.work.share <= 1.1 / compiled.mesh.world_size


def test_a_batch_of_one_splits_latents() -> None:
    training = training_of(Latents, 1)
    step = capture(training)
    compiled = step.compile({"context": 4}, "context")
    check_equal(step, compiled, training, train_eagerly(training))
    assert compiled.work.share <= 1.1 / 4


def test_micro_batches_share_products() -> None:
    training = training_of(Latents)
    step = capture(training)
    compiled = step.compile({"context": 2}, "context", micro_batches=2)
    check_equal(step, compiled, training, train_eagerly(training))
    assert compiled.work.share <= 1.1 / 2
