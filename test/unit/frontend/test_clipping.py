"""Which gradients a global norm is of: the model's or the optimizer's, each as eager training has it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.trace import ClipParameters

pytestmark = pytest.mark.usefixtures("f64")
NORM = 0.05


class TwoParts(nn.Module):
    """A body and a head, of which the optimizer trains one; a parameter that is frozen, one without use."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return (self.head(self.body(x).tanh()) * self.frozen).square().mean()


def batches() -> list[tuple[Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(6, 4),) for _ in range(3)]


def trained_eagerly(clipped: str) -> tuple[list[Tensor], nn.Module]:
    model = TwoParts()
    optimizer, losses = SGD(model.head.parameters(), 0.5), []
    parameters = {"model": model, "optimizer": model.head}[clipped].parameters
    for (x,) in batches():
        model.zero_grad()
        loss = model(x)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters(), NORM)
        optimizer.step()
        losses.append(loss.detach())
    return losses, model


@pytest.mark.parametrize("clipped", ["model", "optimizer"])
def test_a_norm_is_of_the_parameters_chosen(clipped: ClipParameters, new_program: Any) -> None:
    model = TwoParts()
    optimizer = SGD(model.head.parameters(), 0.5)
    capture = capture_step(model, optimizer, batches()[0], clip_grad_norm=NORM, clip_parameters=clipped)
    program = new_program(capture, optimizer)
    wanted, eager = trained_eagerly(clipped)
    for batch, loss in zip(batches(), wanted, strict=True):
        torch.testing.assert_close(program.step(batch), loss, rtol=1e-12, atol=1e-12)
    for name, parameter in eager.named_parameters():
        torch.testing.assert_close(program.values["param", name], parameter.detach(), rtol=1e-12, atol=1e-12)
    others = {"body.weight", "body.bias"} if clipped == "model" else set()
    assert capture.gradients.keys() == {"head.weight", "head.bias"} | others


def test_the_two_norms_differ() -> None:
    (_, *first), (_, *second) = (trained_eagerly(clipped)[0] for clipped in ("model", "optimizer"))
    assert all(abs(a - b) > 1e-5 for a, b in zip(first, second, strict=True))


def test_without_clipping_other_gradients_are_not_computed() -> None:
    model = TwoParts()
    capture = capture_step(model, SGD(model.head.parameters(), 0.5), batches()[0])
    assert capture.gradients.keys() == {"head.weight", "head.bias"}
