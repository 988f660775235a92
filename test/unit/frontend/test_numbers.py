"""Numbers where an operator takes a tensor."""

from __future__ import annotations

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
