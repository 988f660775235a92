"""Training whose dims do not divide, on two ranks: ``uneven_worker.py FOLDER``, with a checkpoint that
changes plans.

A batch of 3, hidden layers of 33 and an output of 5, in f64, held against eager training.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from rank_main import run
from torch import nn
from torch.distributed.tensor import DTensor

import shardc

torch.set_default_dtype(torch.float64)
BOUND = 1e-9


def new_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 33), nn.GELU(), nn.Linear(33, 5))


def new_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def batches(count: int) -> list[tuple[torch.Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(3, 7),) for _ in range(count)]


def loss_of(output: torch.Tensor, batch: object) -> torch.Tensor:
    return (output - 1).pow(2).mean()


def trained_eagerly(count: int) -> list[tuple[float, dict[str, torch.Tensor]]]:
    model = new_model()
    optimizer = new_optimizer(model)
    made = []
    for batch in batches(count):
        optimizer.zero_grad()
        loss = loss_of(model(*batch), batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        made.append((loss.item(), {n: p.detach().clone() for n, p in model.named_parameters()}))
    return made


def new_step(mesh: dict[str, int], plan: object) -> object:
    model = new_model()
    return shardc.compile_step(
        model, new_optimizer(model), batches(1)[0], mesh=mesh, plan=plan, loss=loss_of, clip_grad_norm=0.1
    )


def check(
    step: object, loss: float, wanted: tuple[float, dict[str, torch.Tensor]], layout: dict[str, list[int]]
) -> None:
    """The loss, every parameter as a whole, and the local shapes of those in ``layout`` by rank."""
    assert abs(loss - wanted[0]) < BOUND, (loss, wanted[0])
    for name, value in step.named_parameters():
        assert isinstance(value, DTensor) and value.shape == wanted[1][name].shape
        gap = float((value.full_tensor() - wanted[1][name]).abs().max())
        assert gap < BOUND, f"{name} is off by {gap}"
        if name in layout:
            assert value.to_local().shape[0] == layout[name][dist.get_rank()], (
                f"{name}: {value.to_local().shape}"
            )


def main(folder: Path) -> None:
    wanted = trained_eagerly(4)
    step = new_step({"tensor": 2}, "tensor")
    held = dict(step.named_parameters())  # what a user holds follows later steps
    for number in (0, 1):
        check(
            step, float(step(batches(4)[number])), wanted[number], {"0.weight": [17, 16], "0.bias": [17, 16]}
        )
    assert torch.equal(
        held["0.weight"].full_tensor(), dict(step.named_parameters())["0.weight"].full_tensor()
    )
    step.save_checkpoint(folder)
    step = new_step({"data": 2}, "zero3")
    step.load_checkpoint(folder)
    own = slice(0, 2) if dist.get_rank() == 0 else slice(2, 3)
    check(step, float(step.local((batches(4)[2][0][own],))), wanted[2], {})
    saved = {name: value.full_tensor() for name, value in step.state_dict().items()}
    step = new_step({"tensor": 2}, {"0.weight": ["tensor"], "2.bias": ["tensor"]})
    step.load_state_dict(saved)
    step.steps_done = 3
    check(step, float(step(batches(4)[3])), wanted[3], {"0.weight": [17, 16], "2.bias": [3, 2]})


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(lambda: main(Path(sys.argv[1])), "uneven training agrees")
