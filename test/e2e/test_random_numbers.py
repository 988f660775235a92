"""A model that draws in most ways there are: the same numbers on every mesh, in recomputation, and in the
optimizer.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models import LENGTH, Training, gpt2, tokens
from torch import Tensor, nn
from torch.distributions import Dirichlet, Gamma, Normal
from torch.utils.checkpoint import checkpoint
from training import Captured, Ranks, capture

from shardc.backends.eager.proof.compare import compare_step
from shardc.step.values import example_inputs

WIDTH = 8
MESHES = {
    "one device": ({"data": 1}, "data", 1),
    "data": ({"data": 2}, "data", 1),
    "zero3": ({"data": 4}, "zero3", 1),
    "tensor": ({"tensor": 2}, "tensor", 1),
    "grid": ({"data": 2, "tensor": 2}, "zero3*tensor", 1),
    "micro": ({"data": 2, "tensor": 2}, "zero1*tensor", 2),
    "length": ({"data": 2, "tensor": 2}, {"0": ["data", "tensor"], "*.weight": ["data"]}, 1),
}


class Block(nn.Module):
    """Draws that depend on values, and draws that do not, in and before what is differentiated."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + torch.randn_like(x) * 0.1 + torch.empty_like(x).uniform_(-0.1, 0.1)
        x = F.dropout(self.down(F.rrelu(self.up(x), training=True)), 0.3)
        gate = torch.bernoulli(x.detach().sigmoid())
        q = x[:, None] * 1.5
        x = x * gate + F.scaled_dot_product_attention(q, q, q, dropout_p=0.2)[:, 0]
        rates = F.softplus(x)
        x = x + torch.poisson(rates.detach()) * 0.01 + torch.binomial(gate + 20, gate / 2 + 0.2) * 0.01
        x = x + Normal(x, rates + 0.1).rsample() * 0.1 + Gamma(rates + 0.2, 1.0).rsample() * 0.1
        return x + F.feature_alpha_dropout(x, 0.2, training=True)


class Noisy(nn.Module):
    """``how``: blocks are run plainly, or again in the backward by either kind of checkpointing."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.first, self.blocks = (
            how,
            nn.Linear(WIDTH, WIDTH),
            nn.ModuleList(Block() for _ in range(2)),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = (
                block(x)
                if self.how == "plain"
                else checkpoint(block, x, use_reentrant=self.how == "reentrant")
            )
        order = torch.randperm(LENGTH)
        picked = torch.multinomial(x.detach().flatten(1).softmax(-1), 3)
        often = torch.multinomial(x.detach().mean(1).softmax(-1), 5, replacement=True)
        x = x[:, order] * torch.randint(1, 4, (LENGTH, 1)) + torch.empty(WIDTH).exponential_()
        mixed = Dirichlet(F.softplus(x).mean(1) + 0.1).rsample()
        return (
            (x * mixed[:, None]).square().mean()
            + picked.double().mean() * 1e-3
            + often.double().mean() * 1e-2
        )


class Langevin(torch.optim.SGD):
    """Adds noise to the parameters after each update."""

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.add_(torch.randn_like(parameter), alpha=1e-3)


def langevin(model: nn.Module) -> torch.optim.Optimizer:
    return Langevin(model.parameters(), lr=0.01)


@cache
def noisy(how: str) -> Captured:
    return capture(training(how))


def training(how: str) -> Training:
    def batch() -> tuple[Tensor]:
        return (torch.randn(8, LENGTH, WIDTH),)

    return Training(partial(Noisy, how), batch, langevin)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES)
def test_numbers_do_not_depend_on_the_mesh(mesh: str) -> None:
    step = noisy("plain")
    compiled = step.compile(*MESHES[mesh])
    inputs = example_inputs(step.capture, step.optimizer, training("plain").batches(1)[0])
    outcome = compare_step(compiled.global_module, compiled.rank_module, inputs, steps=2)
    assert outcome.passed, outcome.render(5)
    assert not outcome.unobserved


@pytest.mark.slow
@pytest.mark.parametrize("how", ["again", "reentrant"])
@pytest.mark.parametrize("mesh", ["data", "grid"])
def test_recomputation_draws_the_same(how: str, mesh: str) -> None:
    """Every parameter of the step, whose gradient it was updated by, is that of the step that keeps its
    activations.
    """
    batches = training(how).batches(2)
    made, wanted = (
        Ranks(step, step.compile(*MESHES[mesh]).rank_module, seed=3).train(batches)[0]
        for step in map(noisy, (how, "plain"))
    )
    for found, expected in zip(made, wanted, strict=True):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=1e-12, atol=1e-14)


def transformer(checkpointing: dict[str, bool] | None) -> nn.Module:
    model = gpt2(dropout=0.2)
    if checkpointing is not None:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=checkpointing)
    return model


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated")
def test_gradient_checkpointing_of_transformers_draws_the_same() -> None:
    made, drawn = [], []
    for how in (None, {"use_reentrant": False}, {"use_reentrant": True}):
        run = Training(partial(transformer, how), tokens)
        step = capture(run)
        made.append(
            Ranks(step, step.compile({"data": 2}, "zero3").rank_module, seed=3).train(run.batches(2))[0][-1]
        )
        drawn.append(sum("uniform" in str(node.target) for node in step.capture.graph.graph.nodes))
    assert drawn[1] == drawn[2] > drawn[0] > 0, "nothing was drawn again"
    for found in made[1:]:
        for key, value in made[0].items():
            torch.testing.assert_close(found[key], value, rtol=1e-12, atol=1e-14)


def test_every_kind_of_number_is_drawn_in_every_step() -> None:
    """Else the tests above would hold for a model without randomness."""
    module = noisy("plain").compile(*MESHES["data"]).rank_module
    drawn = [line for line in str(module).splitlines() if "torch.shardc." in line]
    kinds = {
        name: sum(f'"torch.shardc.{name}"' in line for line in drawn)
        for name in ("uniform", "poisson", "binomial")
    }
    assert kinds["poisson"] == kinds["binomial"] == 2 and kinds["uniform"] > 20
    batch = training("plain").batches(1)
    losses = [Ranks(noisy("plain"), module, seed).train(batch)[0][0]["loss", "loss"] for seed in (0, 1)]
    assert (losses[0] - losses[1]).abs() > 1e-3
