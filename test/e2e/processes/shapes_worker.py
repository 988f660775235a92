"""Two epochs of 21 rows in batches of 8, the last of 5, on real ranks; then ranks with different shapes.

``shapes_worker.py PLAN``: losses and parameters are eager's, in f64 to 1e-9.
"""

from __future__ import annotations

import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from rank_main import run
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import shardc
from shardc.runtime.errors import BatchMismatch, RankStopped


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
    count = 5 if dist.get_rank() == 1 else 8
    try:
        step((x[:count], y[:count]))
    except (BatchMismatch, RankStopped) as error:
        assert "different batches to step 8" in str(error), error
        if dist.get_rank() == 1:
            assert "1 int64 [5]" in str(error), error
            os._exit(0)  # as a script ends by the error: who catches it leaves the others waiting
    else:
        raise AssertionError("ranks with different shapes went on")


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "ShapeCompiled")
    dist.init_process_group("gloo")
    run(lambda: main(sys.argv[1]), "as it should")
