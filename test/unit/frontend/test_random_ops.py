"""Random functions under a trace: one seed decides all numbers, and their distributions are torch's."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import distributions as dist
from torch import nn

from shardc.diagnostics.frontend import UnsupportedRandomOp
from shardc.frontend.step.capture import capture_step

COUNT = 20000
F64 = torch.float64
Draw = Callable[[torch.Tensor], torch.Tensor]
Function = Callable[[torch.Tensor], torch.Tensor]


def sample(draw: Draw, seed: int = 0) -> torch.Tensor:
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
        (torch.ones(1, 1, dtype=F64),),
        loss=lambda out, _: (out * draw(torch.zeros(COUNT)).double()).sum(),
    )
    values = {**capture.initial_values(), ("hyper", "group0.lr"): torch.tensor(1.0, dtype=F64)}
    values |= {("input", "0"): torch.ones(1, 1, dtype=F64), ("seed", "seed"): torch.tensor(seed)}
    results = capture.graph(*(values[s.role, s.name] for s in capture.arguments))
    return results[1].squeeze(1)


def distance(drawn: torch.Tensor, cdf: Function) -> float:
    """Of Kolmogorov and Smirnov, times the root of the count: beyond 1.95 for one fair sample in
    a thousand.
    """
    below = cdf(drawn.sort().values)
    steps = torch.arange(COUNT + 1, dtype=F64) / COUNT
    return math.sqrt(COUNT) * max((steps[1:] - below).max().item(), (below - steps[:-1]).max().item())


def excess(drawn: torch.Tensor, chances: torch.Tensor) -> float:
    """Chi square of whole numbers 0, 1, ... with these chances, in standard deviations above what is
    expected.

    Numbers that come up less than 10 times are put together with what is left of the chances.
    """
    counts = torch.bincount(drawn.long(), minlength=len(chances)).double()
    assert len(counts) == len(chances), f"{drawn.max()} was drawn"
    assert not counts[chances == 0].any(), "what has no chance was drawn"
    often = chances * COUNT >= 10
    counts = torch.cat([counts[often], counts[~often].sum()[None]])
    wanted = torch.cat([chances[often], (1 - chances[often].sum()).clamp(min=0)[None]]) * COUNT
    wanted[-1] = wanted[-1].clamp(min=1)
    freedom = len(counts) - 1
    return (((counts - wanted) ** 2 / wanted).sum().item() - freedom) / math.sqrt(2 * freedom)


def normal_cdf(x: torch.Tensor) -> torch.Tensor:
    return torch.special.ndtr(x)


def gamma_cdf(alpha: float) -> Function:
    return lambda x: torch.special.gammainc(torch.tensor(alpha, dtype=F64), x)


def wide(t: torch.Tensor) -> torch.Tensor:
    return t.double()


def gumbel(t: torch.Tensor) -> torch.Tensor:
    found = dist.Gumbel(t, t + 1).sample()
    assert found is not None
    return found


CONTINUOUS: dict[str, tuple[Draw, Function]] = {
    "rand": (lambda t: torch.rand(COUNT), lambda x: x),
    "rand f64": (lambda t: torch.rand((COUNT,), dtype=F64), lambda x: x),
    "rand out": (lambda t: torch.rand(COUNT, out=t), lambda x: x),
    "rand_like": (lambda t: torch.rand_like(t), lambda x: x),
    "rand complex": (lambda t: torch.rand(COUNT, dtype=torch.complex64).imag, lambda x: x),
    "uniform_": (lambda t: t.uniform_(-1, 3), lambda x: (x + 1) / 4),
    "random_": (lambda t: t.random_() / 2**24, lambda x: x),
    "random_ of all integers": (lambda t: t.long().random_() / 2.0**63, lambda x: x),
    "random_ below and above 0": (lambda t: t.long().random_(-(2**63), None) / 2.0**64, lambda x: x + 0.5),
    "randint of many": (lambda t: torch.randint(3, 5 * 2**59, (COUNT,)) / (5 * 2**59), lambda x: x),
    "randperm": (lambda t: torch.randperm(COUNT) / COUNT, lambda x: x),
    "randn": (lambda t: torch.randn(COUNT), normal_cdf),
    "randn f64": (lambda t: torch.randn(COUNT, dtype=F64), normal_cdf),
    "randn_like": (lambda t: torch.randn_like(t), normal_cdf),
    "randn complex": (lambda t: torch.randn(COUNT, dtype=torch.complex64).real * math.sqrt(2), normal_cdf),
    "normal_": (lambda t: t.normal_(1, 2), lambda x: normal_cdf((x - 1) / 2)),
    "normal of a size": (lambda t: torch.normal(1.0, 2.0, (COUNT,)), lambda x: normal_cdf((x - 1) / 2)),
    "normal of a mean": (lambda t: torch.normal(t + 1, 2.0), lambda x: normal_cdf((x - 1) / 2)),
    "normal of a deviation": (lambda t: torch.normal(1.0, t + 2), lambda x: normal_cdf((x - 1) / 2)),
    "normal of both": (lambda t: torch.normal(t + 1, t[:1] + 2), lambda x: normal_cdf((x - 1) / 2)),
    "log_normal_": (lambda t: t.log_normal_(0.5, 0.7), lambda x: normal_cdf((x.log() - 0.5) / 0.7)),
    "exponential_": (lambda t: t.exponential_(2.0), lambda x: 1 - torch.exp(-2 * x)),
    "cauchy_": (lambda t: t.cauchy_(1, 2), lambda x: torch.atan((x - 1) / 2) / math.pi + 0.5),
    "gamma below 1": (lambda t: torch._standard_gamma(wide(t) + 0.3), gamma_cdf(0.3)),
    "gamma": (lambda t: torch._standard_gamma(wide(t) + 1.5), gamma_cdf(1.5)),
    "gamma f32": (lambda t: torch._standard_gamma(t + 40.0), gamma_cdf(40.0)),
    "Normal": (lambda t: dist.Normal(t + 1, t + 2).rsample(), lambda x: normal_cdf((x - 1) / 2)),
    "Laplace": (
        lambda t: dist.Laplace(wide(t), 1.0).sample(),
        lambda x: 0.5 + 0.5 * x.sign() * (1 - (-x.abs()).exp()),
    ),
    "Gumbel": (gumbel, lambda x: torch.exp(-torch.exp(-x))),
    "Gamma": (lambda t: dist.Gamma(wide(t) + 2, wide(t) + 3).sample(), lambda x: gamma_cdf(2)(3 * x)),
    "Beta": (lambda t: dist.Beta(wide(t) + 2, wide(t) + 1).sample(), lambda x: x**2),
    "Dirichlet": (
        lambda t: dist.Dirichlet(wide(t)[:, None].expand(-1, 3) + 1).sample()[:, 1],
        lambda x: 1 - (1 - x) ** 2,
    ),
    "StudentT": (lambda t: dist.StudentT(wide(t) + 1).sample(), lambda x: torch.atan(x) / math.pi + 0.5),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str) -> None:
    draw, cdf = CONTINUOUS[name]
    assert distance(sample(draw), cdf) < 1.95


def poisson(rate: float) -> torch.Tensor:
    k = torch.arange(200, dtype=F64)
    return torch.exp(k * math.log(rate) - rate - torch.lgamma(k + 1))


def binomial(n: int, p: float) -> torch.Tensor:
    k = torch.arange(n + 1, dtype=F64)
    choices = math.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    return torch.exp(choices + k * math.log(p) + (n - k) * math.log1p(-p))


def geometric(p: float, first: int) -> torch.Tensor:
    chances = p * (1 - p) ** torch.arange(200, dtype=F64)
    return torch.cat([torch.zeros(first, dtype=F64), chances])


WEIGHTS = torch.tensor([0.0, 3, 1, 0, 0, 6, 0], dtype=F64)


def weights(t: torch.Tensor) -> torch.Tensor:
    """[COUNT, 7] without a tensor from outside the trace."""
    return torch.stack([t + w for w in WEIGHTS.tolist()], 1)


DISCRETE: dict[str, tuple[Draw, torch.Tensor]] = {
    "bernoulli": (lambda t: torch.bernoulli(t + 0.3), binomial(1, 0.3)),
    "bernoulli of p": (lambda t: torch.bernoulli(t, 0.3), binomial(1, 0.3)),
    "bernoulli_": (lambda t: t.bernoulli_(0.3), binomial(1, 0.3)),
    "bernoulli_ of a tensor": (lambda t: t.bernoulli_(t[:1] + 0.3), binomial(1, 0.3)),
    "bernoulli_ of integers": (lambda t: t.long().bernoulli_(0.3), binomial(1, 0.3)),
    "dropout": (lambda t: F.dropout(t + 1, 0.7) * 0.3, binomial(1, 0.3)),
    "Dropout": (lambda t: nn.Dropout(0.7)(t + 1) * 0.3, binomial(1, 0.3)),
    "Dropout in place": (lambda t: nn.Dropout(0.7, inplace=True)(t + 1) * 0.3, binomial(1, 0.3)),
    "dropout1d": (lambda t: F.dropout1d((t + 1).view(1, COUNT, 1), 0.7).view(-1) * 0.3, binomial(1, 0.3)),
    "Dropout2d": (lambda t: nn.Dropout2d(0.7)((t + 1).view(1, COUNT, 1, 1)).view(-1) * 0.3, binomial(1, 0.3)),
    "native_dropout": (lambda t: torch.native_dropout(t, 0.7, True)[1], binomial(1, 0.3)),
    "randint": (lambda t: torch.randint(3, 10, (COUNT,)) - 3, torch.full((7,), 1 / 7, dtype=F64)),
    "randint_like": (lambda t: torch.randint_like(t, 7), torch.full((7,), 1 / 7, dtype=F64)),
    "randint_like of a tensor": (
        lambda t: torch.randint_like(t, t[0].long() + 7),
        torch.full((7,), 1 / 7, dtype=F64),
    ),
    "random_": (lambda t: t.random_(3, 10) - 3, torch.full((7,), 1 / 7, dtype=F64)),
    "geometric_": (lambda t: t.geometric_(0.3), geometric(0.3, 1)),
    "poisson 0.3": (lambda t: torch.poisson(t + 0.3), poisson(0.3)),
    "poisson 9.9": (lambda t: torch.poisson(t + 9.9), poisson(9.9)),
    "poisson 10.1": (lambda t: torch.poisson(wide(t) + 10.1), poisson(10.1)),
    "poisson 50": (lambda t: torch.poisson(t + 50), poisson(50)),
    "binomial by inversion": (lambda t: torch.binomial(t + 12, t + 0.75), binomial(12, 0.75)),
    "binomial by rejection": (lambda t: torch.binomial(t + 40, t + 0.3), binomial(40, 0.3)),
    "binomial, likely": (lambda t: torch.binomial(wide(t) + 400, wide(t) + 0.9), binomial(400, 0.9)),
    "multinomial": (lambda t: torch.multinomial(weights(t), 1).squeeze(1), WEIGHTS / 10),
    "multinomial, replaced": (
        lambda t: torch.multinomial(weights(t[:1])[0], COUNT, replacement=True),
        WEIGHTS / 10,
    ),
    "multinomial, many replaced": (
        lambda t: torch.multinomial(weights(t[: COUNT // 4]), 4, replacement=True).flatten(),
        WEIGHTS / 10,
    ),
    "multinomial, second of two": (
        lambda t: torch.multinomial(weights(t), 2)[:, 1],
        # A chance of b after a is p_a p_b / (1 - p_a).
        torch.tensor(
            [
                0,
                0.3 * (0.1 / 0.9 + 0.6 / 0.4),
                0.1 * (0.3 / 0.7 + 0.6 / 0.4),
                0,
                0,
                0.6 * (0.3 / 0.7 + 0.1 / 0.9),
                0,
            ],
            dtype=F64,
        ),
    ),
    "Bernoulli": (lambda t: dist.Bernoulli(logits=t).sample(), binomial(1, 0.5)),
    "Categorical": (lambda t: dist.Categorical(probs=weights(t)).sample(), WEIGHTS / 10),
    "Poisson": (lambda t: dist.Poisson(t + 4).sample(), poisson(4)),
    "Binomial": (lambda t: dist.Binomial(12, t + 0.25).sample(), binomial(12, 0.25)),
    "Geometric": (lambda t: dist.Geometric(wide(t) + 0.3).sample(), geometric(0.3, 0)),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name: str) -> None:
    draw, chances = DISCRETE[name]
    assert excess(sample(draw), chances) < 4


def test_a_permutation_has_every_number_once() -> None:
    assert torch.equal(sample(lambda t: torch.randperm(COUNT)).sort().values, torch.arange(COUNT, dtype=F64))


def test_without_replacement_every_index_is_drawn_once() -> None:
    drawn = sample(lambda t: torch.multinomial(t + 1, COUNT))
    assert torch.equal(drawn.sort().values, torch.arange(COUNT, dtype=F64))
    rows = sample(lambda t: torch.multinomial(weights(t), 3).prod(1))
    assert rows.eq(1 * 2 * 5).all(), "three weights are not 0"


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    drawn = sample(lambda t: F.alpha_dropout(torch.randn(COUNT), 0.2, training=True))
    assert abs(drawn.mean()) < 0.05 and abs(drawn.var() - 1) < 0.05


def test_feature_dropout_drops_whole_features() -> None:
    drawn = sample(
        lambda t: F.feature_alpha_dropout((t + 1).view(COUNT // 5, 5)[None], 0.5, training=True).view(-1)
    )
    rows = drawn.view(-1, 5)
    assert (rows == rows[:, :1]).all() and len(rows[:, 0].unique()) == 2


def test_rrelu_slopes_lie_between_the_bounds() -> None:
    drawn = sample(lambda t: F.rrelu(t - 1, 0.2, 0.4, training=True))
    assert distance(-drawn, lambda x: (x - 0.2) / 0.2) < 1.95


def test_dropout_in_attention_scales_what_is_kept() -> None:
    """One row of equal scores over all keys whose values are 1: the share of keys that are kept, scaled."""
    keys = 100

    def attend(t: torch.Tensor) -> torch.Tensor:
        q = t.view(1, 1, -1, keys)
        value = torch.ones(1, 1, keys, keys)
        return F.scaled_dot_product_attention(q, torch.zeros(1, 1, keys, keys), value, dropout_p=0.25).view(
            -1
        )

    shares = sample(attend).view(-1, keys)[:, 0] * 0.75 * keys
    assert shares.round().allclose(shares, atol=1e-3)
    assert abs(shares.mean() - 75) < 4 * math.sqrt(keys * 0.75 * 0.25 / len(shares))


def test_dropout_in_eval_mode_draws_nothing() -> None:
    assert sample(lambda t: F.dropout(t + 1, 0.7, training=False)).eq(1).all()


def test_seed_decides_and_calls_are_independent() -> None:
    def two(t: torch.Tensor) -> torch.Tensor:
        return torch.rand(COUNT) - torch.rand(COUNT)

    assert torch.equal(sample(two, 1), sample(two, 1))
    assert not torch.equal(sample(two, 1), sample(two, 2))
    assert sample(two, 1).abs().mean() > 0.3


@pytest.mark.parametrize("kind", [torch.randn_like, torch.rand_like, lambda t: torch.poisson(t + 20)])
def test_neighbours_calls_and_steps_do_not_correlate(kind: Draw) -> None:
    first, second = sample(kind, 5), sample(lambda t: (kind(t), kind(t))[1], 5)
    next_step = sample(kind, 6)
    pairs = [
        (first[1:], first[:-1]),
        (first[4:], first[:-4]),
        (first, second),
        (first, next_step),
        (second, next_step),
    ]
    for a, b in pairs:
        assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 4 / math.sqrt(COUNT)


def test_the_trace_leaves_the_generator_of_torch_alone() -> None:
    model = nn.Linear(2, 2)
    state = torch.get_rng_state()
    capture_step(
        model, torch.optim.SGD(model.parameters()), (torch.ones(1, 2),), loss=lambda x, _: F.dropout(x).sum()
    )
    assert torch.equal(torch.get_rng_state(), state)


def rand_with_generator(t: torch.Tensor) -> torch.Tensor:
    return torch.rand(COUNT, generator=torch.Generator())


def seeded_inside(t: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(3)
    return torch.rand(COUNT)


@pytest.mark.parametrize(
    ("name", "draw"),
    [("rand", rand_with_generator), ("seeds PyTorch's generator", seeded_inside)],
)
def test_what_does_not_follow_the_seed_is_refused_at_its_line(name: str, draw: Draw) -> None:
    with pytest.raises(UnsupportedRandomOp, match=name) as caught:
        sample(draw)
    assert caught.value.where is not None and __file__ in caught.value.where
