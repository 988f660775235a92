"""Activation checkpointing: the forward that is run again in the backward draws the numbers that it drew
before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Gamma, Normal
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from shardc.frontend.step.capture import capture_step

Function = Callable[[torch.Tensor], torch.Tensor]
WAYS: dict[str, Callable[[Function, torch.Tensor], torch.Tensor]] = {
    "non-reentrant": lambda f, x: checkpoint(f, x, use_reentrant=False),
    "reentrant": lambda f, x: checkpoint(f, x, use_reentrant=True),
    "nested": lambda f, x: checkpoint(
        lambda t: checkpoint(f, t, use_reentrant=False), x, use_reentrant=False
    ),
}
DRAWS: dict[str, Function] = {
    "dropout": lambda x: F.dropout(x, 0.3).exp(),
    "dropout in place": lambda x: F.dropout(x * 2, 0.3, inplace=True).exp(),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.3, training=True).exp(),
    "feature_dropout": lambda x: F.dropout2d(x[..., None, None], 0.3)[..., 0, 0].exp(),
    # Its slopes are the last thing that it saves, and in PyTorch they are not filled again: gradients are
    # wrong there.
    "rrelu": lambda x: F.rrelu(x, training=True),
    "uniform_": lambda x: x * torch.empty_like(x).uniform_(-1, 1),
    "bernoulli": lambda x: x * torch.bernoulli(x.detach().sigmoid()),
    "attention": lambda x: F.scaled_dot_product_attention(*[x[None, None]] * 3, dropout_p=0.2)[0, 0],
    "poisson": lambda x: x * torch.poisson(F.softplus(x).detach()),
    "multinomial": lambda x: x * torch.multinomial(x.detach().exp(), 1),
    "randperm": lambda x: x[torch.randperm(5)].exp(),
    "Normal": lambda x: Normal(x, F.softplus(x)).rsample() * x,
    "Gamma": lambda x: Gamma(F.softplus(x) + 0.2, 1.0).rsample() * x,
}


def trained(function: Function) -> list[torch.Tensor]:
    """Loss and parameters after one step of a linear layer, ``function``, and a draw that follows."""
    torch.manual_seed(0)
    with torch.no_grad():
        model, batch = nn.Linear(6, 6).double(), torch.randn(5, 6, dtype=torch.float64)
    capture = capture_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        (batch,),
        loss=lambda out, _: (function(out) * torch.rand(5, 6)).square().sum(),
    )
    values = {**capture.initial_values(), ("input", "0"): batch, ("seed", "seed"): torch.tensor(4)}
    values["hyper", "group0.lr"] = torch.tensor(0.1, dtype=torch.float64)
    return list(capture.graph(*(values[s.role, s.name] for s in capture.arguments)))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_those_of_the_program_that_keeps_activations(way: str, draw: str) -> None:
    function = DRAWS[draw]
    made, wanted = trained(lambda x: WAYS[way](function, x)), trained(function)
    torch.testing.assert_close(made, wanted, rtol=1e-14, atol=1e-15)


def test_without_the_generators_state_other_numbers_are_drawn() -> None:
    """As in PyTorch: whoever asks for it does not want the same numbers."""
    function = DRAWS["dropout"]
    made = trained(lambda x: checkpoint(function, x, use_reentrant=False, preserve_rng_state=False))
    assert not torch.allclose(made[1], trained(function)[1])


def test_selective_checkpointing_keeps_what_its_policy_says() -> None:
    """The product is kept, what follows it is computed again."""
    policy = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    model = nn.Linear(6, 6, bias=False)
    capture = capture_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        (torch.randn(5, 6),),
        loss=lambda out, _: checkpoint(
            lambda x: (x @ model.weight).sin().exp().sum(), out, use_reentrant=False, context_fn=policy
        ),
    )
    calls = [str(node.target) for node in capture.graph.graph.nodes]
    assert calls.count("aten.sin.default") == 2 and calls.count("aten.exp.default") >= 1
    # two products of the forward, and those of backward: none is computed again
    assert calls.count("aten.mm.default") == 5
