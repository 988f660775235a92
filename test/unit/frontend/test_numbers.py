"""Python numbers as arguments of operators that take tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import shardc


class Numbers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        gate = torch.add(0.3333, y > 0, alpha=0.6667).type_as(y)  # a number and booleans make floats
        return (torch.mul(2, y) * gate).square().mean()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_number_has_the_dtype_that_promotion_gives_it(dtype: torch.dtype) -> None:
    """The importer made it an f64 tensor that was said to be f32: it ran in f64 only (Phi-MoE's router)."""
    model = Numbers().to(dtype)
    batch = (torch.randn(4, 8, dtype=dtype),)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = shardc.compile_step(
        model, optimizer, batch, mesh={"data": 2}, loss=lambda out, _: out, verify=True
    )
    assert "NumToTensor" not in step.compiled.levels["1-global"]


class Complex(nn.Module):
    """A complex parameter, and complex numbers in the forward; ``reduce`` makes real numbers of it."""

    def __init__(self, reduce: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.reduce, self.weight = reduce, nn.Parameter(torch.randn(6, 4, dtype=torch.complex128))

    def forward(self, x: Tensor) -> Tensor:
        return self.reduce((x * (1 - 2j)) @ self.weight * 0.5j + (0.25 + 0.125j)).square().mean()


REDUCED: dict[str, Callable[[Tensor], Tensor]] = {
    "abs": torch.abs,
    "norm": lambda z: torch.linalg.vector_norm(z, dim=-1),
    "norm 3": lambda z: torch.linalg.vector_norm(z, ord=3),
    "var": lambda z: z.var(0) + z.std(),
    "mean": lambda z: z.mean(0).abs() + z.sum().real,
}


@pytest.mark.usefixtures("f64")
@pytest.mark.parametrize("name", sorted(REDUCED))
def test_complex_numbers_and_parameters(name: str, follows_eager: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(5, 6),) for _ in range(2)]
    follows_eager(
        Complex(REDUCED[name]),
        lambda m: torch.optim.AdamW(m.parameters(), lr=0.1),
        batches,
        loss=lambda out, _: out,
    )


@pytest.mark.usefixtures("f64")
def test_clipping_takes_the_magnitudes_of_complex_gradients(follows_eager: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(5, 6),) for _ in range(2)]
    follows_eager(Complex(torch.abs), _sgd, batches, loss=lambda out, _: out, clip_grad_norm=0.01)


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)
