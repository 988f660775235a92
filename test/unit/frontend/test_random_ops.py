"""Random functions under a trace: one seed decides all numbers, and their distributions are torch's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from shardc.diagnostics.frontend import UnsupportedRandomOp
from shardc.frontend.capture import capture_step

COUNT = 20000


def sample(draw: Callable[[torch.Tensor], torch.Tensor], seed: int = 0) -> torch.Tensor:
    """``draw(zeros)``, captured as a step whose gradient is the drawn tensor, read back from the weight's
    update.
    """
    weight = nn.Linear(1, COUNT, bias=False).double()
    with torch.no_grad():
        weight.weight.zero_()
    optimizer = torch.optim.SGD(weight.parameters(), lr=1.0, maximize=True)
    capture = capture_step(
        weight,
        optimizer,
        (torch.ones(1, 1, dtype=torch.float64),),
        loss=lambda out, _: (out * draw(torch.zeros(COUNT)).double()).sum(),
    )
    values = {**capture.initial_values(), ("hyper", "group0.lr"): torch.tensor(1.0, dtype=torch.float64)}
    values |= {("input", "0"): torch.ones(1, 1, dtype=torch.float64), ("seed", "seed"): torch.tensor(seed)}
    results = capture.graph(*(values[s.role, s.name] for s in capture.arguments))
    return results[1].squeeze(1)


UNIFORM: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rand": lambda t: torch.rand(COUNT),
    "rand_size": lambda t: torch.rand((COUNT,), dtype=torch.float64),
    "rand_like": lambda t: torch.rand_like(t),
    "uniform_": lambda t: t.clone().uniform_(-1, 3) / 4 + 0.25,
    "exponential_": lambda t: torch.exp(-t.clone().exponential_()),
    "randint": lambda t: torch.randint(0, 1000, (COUNT,)) / 1000.0 + 0.0005,
    "randint_like": lambda t: torch.randint_like(t, 1000) / 1000.0 + 0.0005,
    "randperm": lambda t: torch.randperm(COUNT) / COUNT,
}


@pytest.mark.parametrize("name", sorted(UNIFORM))
def test_uniform_kinds(name: str) -> None:
    drawn = sample(UNIFORM[name])
    assert drawn.min() >= 0 and drawn.max() <= 1
    moments = torch.stack([drawn.mean(), drawn.var()])
    torch.testing.assert_close(moments, torch.tensor([1 / 2, 1 / 12], dtype=torch.float64), rtol=0, atol=0.01)


@pytest.mark.parametrize(
    "draw",
    [
        lambda t: torch.randn(COUNT),
        lambda t: torch.randn_like(t),
        lambda t: t.clone().normal_(1, 2) / 2 - 0.5,
    ],
)
def test_normal_kinds(draw: Callable[[torch.Tensor], torch.Tensor]) -> None:
    drawn = sample(draw)
    moments = torch.stack([drawn.mean(), drawn.var(), drawn.pow(3).mean(), drawn.pow(4).mean()])
    torch.testing.assert_close(moments, torch.tensor([0.0, 1, 0, 3], dtype=torch.float64), rtol=0, atol=0.15)


@pytest.mark.parametrize(
    "draw",
    [
        lambda t: torch.bernoulli(t + 0.3),
        lambda t: t.clone().bernoulli_(0.3),
        lambda t: F.dropout(t + 1, 0.7) * 0.3,
        lambda t: nn.Dropout(0.7)(t + 1) * 0.3,
        lambda t: nn.Dropout(0.7, inplace=True)(t + 1) * 0.3,
        lambda t: F.dropout1d((t + 1).view(1, COUNT, 1), 0.7).view(-1) * 0.3,
    ],
)
def test_bernoulli_kinds(draw: Callable[[torch.Tensor], torch.Tensor]) -> None:
    drawn = sample(draw)
    assert set(drawn.unique().round(decimals=6).tolist()) == {0.0, 1.0}
    assert abs(drawn.mean().item() - 0.3) < 0.015


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    drawn = sample(lambda t: F.alpha_dropout(torch.randn(COUNT), 0.2, training=True))
    assert abs(drawn.mean()) < 0.05 and abs(drawn.var() - 1) < 0.05


def test_rrelu_slopes_lie_between_the_bounds() -> None:
    drawn = sample(lambda t: F.rrelu(t - 1, 0.2, 0.4, training=True))
    assert drawn.min() >= -0.4 and drawn.max() <= -0.2 and drawn.std() > 0.05


def test_dropout_in_eval_mode_draws_nothing() -> None:
    assert sample(lambda t: F.dropout(t + 1, 0.7, training=False)).eq(1).all()


def test_seed_decides_and_calls_are_independent() -> None:
    def two(t: torch.Tensor) -> torch.Tensor:
        return torch.rand(COUNT) - torch.rand(COUNT)

    assert torch.equal(sample(two, 1), sample(two, 1))
    assert not torch.equal(sample(two, 1), sample(two, 2))
    assert sample(two, 1).abs().mean() > 0.3


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("multinomial", lambda t: torch.multinomial(t + 1, COUNT)),
        ("rand", lambda t: torch.rand(COUNT, generator=torch.Generator())),
        ("poisson", lambda t: torch.poisson(t)),
        ("rand", lambda t: F.fractional_max_pool2d(t.view(1, 1, 100, -1), 2, 50).sum() + t),
    ],
)
def test_other_random_ops_are_refused_at_their_line(name: str, draw: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(UnsupportedRandomOp, match=name) as caught:
        sample(draw)
    assert caught.value.where is not None and __file__ in caught.value.where


def test_recomputed_dropout_is_refused() -> None:
    model = nn.Linear(2, 2)

    def loss(out: torch.Tensor, batch: object) -> torch.Tensor:
        return checkpoint(lambda t: F.dropout(t).exp(), out, use_reentrant=False).sum()

    with pytest.raises(UnsupportedRandomOp, match="checkpointing"):
        capture_step(model, torch.optim.SGD(model.parameters()), (torch.ones(1, 2),), loss=loss)
