"""Two epochs of 21 rows in batches of 8, the last of 5, on real ranks; then ranks with different shapes.

``shapes_worker.py PLAN``: losses and parameters are eager's, in f64 to 1e-9.
"""

from __future__ import annotations

import sys
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from rank_main import run
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import shardc
from shardc.runtime.errors import BatchMismatch
from shardc.step.compile_step import CompiledStep


def new_model() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    return model, torch.optim.AdamW(model.parameters(), lr=0.05)


def main(plan: str) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(21, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 4, (21,), generator=generator)
    loader = DataLoader(TensorDataset(x, y), batch_size=8)
    model, optimizer = new_model()
    eager, its_optimizer = new_model()
    mesh = {"data": dist.get_world_size()}
    step = shardc.compile_step(
        model, optimizer, next(iter(loader)), loss=F.cross_entropy, mesh=mesh, plan=plan, fuse=False
    )
    for inputs, target in [*loader, *loader, (x[:1], y[:1])]:
        its_optimizer.zero_grad()
        wanted = F.cross_entropy(eager(inputs), target)
        wanted.backward()
        its_optimizer.step()
        torch.testing.assert_close(step([inputs, target]), wanted.detach(), rtol=1e-9, atol=1e-9)
    for name, parameter in eager.named_parameters():
        found = step.state_dict()[name].full_tensor()
        torch.testing.assert_close(found, parameter.detach(), rtol=1e-9, atol=1e-9)
    assert step.steps_done == 7
    step((x[:8], y[:8]))
    check_differences(step, x, y)


def check_differences(step: CompiledStep, x: torch.Tensor, y: torch.Tensor) -> None:
    """All ranks raise, also where a script catches the error, and go on from the same state."""
    is_odd = dist.get_rank() == 1
    before = {name: value.full_tensor().clone() for name, value in step.state_dict().items()}
    for count in (5, 3):  # a shape that has a program, and one that has none
        own = count if is_odd else 8
        with pytest.raises(BatchMismatch, match=rf"different batches to step 8 .*1 int64 \[{own}\]"):
            step((x[:own], y[:own]))
    with pytest.raises(BatchMismatch) as caught:
        step({"x": x[:8]} if is_odd else (x[:8], y[:8]))
    assert ("rank 1 refused its batch of step 8" in str(caught.value)) != is_odd, caught.value
    for name, value in step.state_dict().items():
        assert torch.equal(value.full_tensor(), before[name]), name
    step((x[:5], y[:5]))
    assert step.steps_done == 9


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "ShapeCompiled")
    dist.init_process_group("gloo")
    run(lambda: main(sys.argv[1]), "as it should")
