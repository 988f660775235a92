"""Training with a weight that is two in one, on two ranks: ``parts_worker.py FOLDER``, with a checkpoint that
changes plans.

Under tensor parallelism a rank holds some of the gate and some of the up columns; users see what DTensor has.
In f64, held against eager training.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from rank_main import run
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

import shardc

torch.set_default_dtype(torch.float64)
BOUND = 1e-9


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_up, self.down = nn.Linear(6, 16), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(functional.silu(gate) * up)


def new_model() -> nn.Module:
    torch.manual_seed(0)
    return Gated()


def new_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def batches(count: int) -> list[tuple[Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(4, 6),) for _ in range(count)]


def loss_of(output: Tensor, batch: object) -> Tensor:
    return (output - 1).pow(2).mean()


def trained_eagerly(count: int) -> list[tuple[float, dict[str, Tensor]]]:
    model = new_model()
    optimizer = new_optimizer(model)
    made = []
    for batch in batches(count):
        optimizer.zero_grad()
        loss = loss_of(model(*batch), batch)
        loss.backward()
        optimizer.step()
        made.append((loss.item(), {n: p.detach().clone() for n, p in model.named_parameters()}))
    return made


def new_step(mesh: dict[str, int], plan: str, state: object = None) -> object:
    model = new_model()
    return shardc.compile_step(
        model, new_optimizer(model), batches(1)[0], mesh=mesh, plan=plan, loss=loss_of, state=state
    )


def check(step: object, loss: float, wanted: tuple[float, dict[str, Tensor]]) -> None:
    """The loss, every parameter as a whole, and that of the fused weight each rank shows its chunk."""
    assert abs(loss - wanted[0]) < BOUND, (loss, wanted[0])
    for name, value in step.named_parameters():
        assert isinstance(value, DTensor) and value.shape == wanted[1][name].shape
        gap = float((value.full_tensor() - wanted[1][name]).abs().max())
        assert gap < BOUND, f"{name} is off by {gap}"
        if name == "gate_up.weight":
            chunk = wanted[1][name].chunk(2)[dist.get_rank()]
            assert float((value.to_local() - chunk).abs().max()) < BOUND


def main(folder: Path) -> None:
    wanted = trained_eagerly(4)
    step = new_step({"tensor": 2}, "tensor")
    for number in (0, 1):
        check(step, float(step(batches(4)[number])), wanted[number])
    step.save_checkpoint(folder)
    step = new_step({"data": 2}, "zero3")
    step.load_checkpoint(folder)
    check(step, float(step(batches(4)[2])), wanted[2])
    saved = dict(step.state_dict())  # DTensors of another mesh
    whole = {name: value.full_tensor() for name, value in saved.items()}
    asked: list[tuple[slice, ...]] = []

    def block(name: str, shape: tuple[int, ...], dtype: torch.dtype, slices: tuple[slice, ...]) -> Tensor:
        asked.extend([slices] if name == "gate_up.weight" else [])
        return whole[name][slices]

    for state in (saved, block):
        step = new_step({"tensor": 2}, "tensor", state)
        step.steps_done = 3
        check(step, float(step(batches(4)[3])), wanted[3])
    start = 4 * dist.get_rank()
    assert [part[0] for part in asked] == [slice(start, start + 4), slice(start + 8, start + 12)], asked
    step = new_step({"tensor": 2}, "tensor")
    step.load_checkpoint(folder)
    check(step, float(step(batches(4)[2])), wanted[2])


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(lambda: main(Path(sys.argv[1])), "training with parts agrees")
