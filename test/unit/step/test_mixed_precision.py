"""Steps under autocast, with norms whose parameters stay f32: proved by the oracle, and equal to eager
training.
"""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

import shardc
from shardc.runtime.first_run import ResultMismatchWarning
from shardc.step.compile_step import CompiledStep

NORMS = {
    "layer": lambda: nn.LayerNorm(32),
    "group": lambda: nn.GroupNorm(4, 32),
    "batch": lambda: nn.BatchNorm1d(32),
    "rms": lambda: nn.RMSNorm(32),
}


def model_with(norm: str) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), NORMS[norm](), nn.Linear(32, 8))


def loss(out: torch.Tensor, _: object) -> torch.Tensor:
    return out.float().square().mean()


def compiled(model: nn.Module, x: torch.Tensor, dtype: torch.dtype, **options: object) -> CompiledStep:
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return shardc.compile_step(model, optimizer, (x,), loss=loss, autocast=dtype, **options)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", NORMS)
def test_a_step_under_autocast_has_eagers_gradients(norm: str, dtype: torch.dtype) -> None:
    model, x = model_with(norm), torch.randn(64, 16)
    eager = copy.deepcopy(model)
    with torch.autocast("cpu", dtype):
        loss(eager(x), None).backward()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    step = compiled(model, x, dtype, mesh={"data": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResultMismatchWarning)
        step((x,))
    largest = max(float(p.grad.abs().max()) for p in eager.parameters())
    after = step.state_dict()
    for name, p in eager.named_parameters():
        found = before[name] - after[name].full_tensor()
        torch.testing.assert_close(found, p.grad, rtol=0.02, atol=0.02 * largest)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("norm", NORMS)
def test_the_oracle_proves_it(norm: str, fuse: bool) -> None:
    """It stopped where the program had bf16 for the f32 that came."""
    model, x = model_with(norm), torch.randn(64, 16)
    step = compiled(model, x, torch.bfloat16, mesh={"data": 2}, fuse=fuse, verify=True)
    assert step.check().passed
