"""Optimizers, traced, against themselves in eager mode, in f64 to 1e-9."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3)).double()


def batches(count: int = 3) -> list[tuple[torch.Tensor, ...]]:
    torch.manual_seed(1)
    return [(torch.randn(4, 6, dtype=torch.float64),) for _ in range(count)]


def squares(output: torch.Tensor, batch: Any) -> torch.Tensor:
    return output.square().mean()


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "sgd_dampening": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3),
    "sgd_maximize": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, maximize=True),
    "sgd_tensor_lr": lambda p: torch.optim.SGD(p, lr=torch.tensor(0.1, dtype=torch.float64)),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "adam_l2": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.1, maximize=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1),
    "adamw_amsgrad": lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True, betas=(0.8, 0.95)),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.1, weight_decay=0.1, decoupled_weight_decay=True),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.1),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.1, t0=1),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.1),
}


pytestmark = pytest.mark.usefixtures("f64")


TENSOR_RATES = [
    *(torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax),
    *(torch.optim.Adadelta, torch.optim.Adagrad, torch.optim.RMSprop, torch.optim.ASGD, torch.optim.Rprop),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", TENSOR_RATES)
def test_learning_rate_that_is_a_tensor(
    kind: type[torch.optim.Optimizer], follows_eager: Callable[..., Any]
) -> None:
    def make(model: nn.Module) -> torch.optim.Optimizer:
        return kind(model.parameters(), lr=torch.tensor(0.1))  # pyright: ignore[reportCallIssue]

    follows_eager(mlp(), make, batches(), loss=squares)


def test_muon_equals_eager(follows_eager: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 10, bias=False), nn.Tanh(), nn.Linear(10, 3, bias=False))
    # Muon orthogonalises in bf16, whatever the dtype of the parameters.
    follows_eager(
        model, lambda m: torch.optim.Muon(m.parameters(), lr=0.1), batches(), loss=squares, tolerance=1e-2
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_optimizer_equals_eager(name: str, follows_eager: Callable[..., Any]) -> None:
    capture = follows_eager(
        mlp(), lambda m: OPTIMIZERS[name](m.parameters()), batches(), loss=squares, clip_grad_norm=0.5
    )
    read = {item.name for item in capture.hyperparameters}
    # Rprop takes the learning rate into its state, once; everything else reads it in every step.
    assert ("group0.lr" in read) != (name == "rprop")
    assert ((0, "lr") in capture.baked) == (name == "rprop")


class Rows(nn.Module):
    """An embedding of which a batch reads some rows: the others' gradients are exactly zero."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.table(rows).square().mean()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", TENSOR_RATES)
def test_a_rate_of_0_leaves_parameters(
    kind: type[torch.optim.Optimizer], follows_eager: Callable[..., Any]
) -> None:
    """As at the first step of a warm-up."""
    torch.manual_seed(0)
    rows = [{"rows": torch.tensor([1, 2])}] * 2

    def make(model: nn.Module) -> torch.optim.Optimizer:
        return kind(model.parameters(), lr=0.0)  # pyright: ignore[reportCallIssue]

    follows_eager(Rows(), make, rows, loss=lambda output, _: output)
