"""``options={"matmuls": "generated"}``: models whose matrix products are parts of kernels, forward and backward."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn


class Block(nn.Module):
    """A feed-forward block with dropout and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(24, 70), nn.Linear(70, 24), nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.drop(nn.functional.gelu(self.up(x)))) * 0.5


def _step(model: nn.Module, x: torch.Tensor, matmuls: str) -> list[torch.Tensor]:
    """The result and the gradients."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    made = torch.compile(model, backend="shardc", options={"matmuls": matmuls})(x)
    return [made, *torch.autograd.grad(made.square().sum(), list(model.parameters()))]


@pytest.mark.parametrize("rows", [1, 7, 129])
def test_a_block_with_dropout(rows: int) -> None:
    """The same elements are dropped, whichever kernel draws them."""
    torch.manual_seed(0)
    model, x = Block(), torch.randn(2, rows, 24)
    for found, wanted in zip(_step(model, x, "generated"), _step(model, x, "extern"), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5 * wanted.abs().max().item())


def test_bf16_is_as_near_to_f64_as_eager_is() -> None:
    torch.manual_seed(0)
    model, x = Block().eval().bfloat16(), torch.randn(2, 40, 24, dtype=torch.bfloat16)
    exact = copy.deepcopy(model).double()(x.double())
    found, eager = _step(model, x, "generated")[0], model(x)
    assert (found.double() - exact).norm() <= 1.1 * (eager.double() - exact).norm()
