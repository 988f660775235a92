"""Training on two ranks, one with three quarters of the batch: ``shares_worker.py FOLDER``.

In f64, held against eager training, with labels that a loss ignores, rows that ranks pass themselves, and a
checkpoint that goes to equal shares and back.
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
from shardc.step.compile_step import CompiledStep

torch.set_default_dtype(torch.float64)
BOUND = 1e-9
SHARES = {"data": [3, 1]}
Batch = tuple[Tensor, Tensor]


def new_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 5))


def new_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def batches(count: int) -> list[Batch]:
    """Batches of 8 rows; all labels of the last rank's rows but one are ignored."""
    torch.manual_seed(1)
    found = [(torch.randn(8, 6), torch.randint(0, 5, (8,))) for _ in range(count)]
    for _, labels in found:
        labels[[0, 3, 7]] = -100
    return found


def loss_of(output: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(output, labels)


def trained_eagerly(count: int) -> list[tuple[float, dict[str, Tensor]]]:
    model = new_model()
    optimizer = new_optimizer(model)
    made = []
    for rows, labels in batches(count):
        optimizer.zero_grad()
        loss = loss_of(model(rows), labels)
        loss.backward()
        optimizer.step()
        made.append((loss.item(), {n: p.detach().clone() for n, p in model.named_parameters()}))
    return made


def new_step(plan: str, shares: dict[str, list[int]] | None) -> CompiledStep:
    model = new_model()
    options = {"mesh": {"data": 2}, "plan": plan, "shares": shares}
    return shardc.compile_step(model, new_optimizer(model), batches(1)[0], loss=loss_of, **options)


def check(step: CompiledStep, loss: Tensor, wanted: tuple[float, dict[str, Tensor]]) -> None:
    assert abs(float(loss) - wanted[0]) < BOUND, (loss, wanted[0])
    for name, value in step.named_parameters():
        gap = float((value.full_tensor() - wanted[1][name]).abs().max())
        assert gap < BOUND, f"{name} is off by {gap}"


def check_forward(step: CompiledStep, batch: Batch, parameters: dict[str, Tensor]) -> None:
    """The loss without an update, and the outputs of all rows."""
    model = new_model()
    model.load_state_dict(parameters)
    with torch.no_grad():
        output = model(batch[0])
    assert abs(float(step.evaluate(batch)) - float(loss_of(output, batch[1]))) < BOUND
    found = step.forward(batch)
    assert isinstance(found, DTensor) and float((found.full_tensor() - output).abs().max()) < BOUND


def own_rows(batch: Batch) -> Batch:
    """The six rows of the first rank, the two of the second."""
    rows = slice(0, 6) if dist.get_rank() == 0 else slice(6, 8)
    return batch[0][rows], batch[1][rows]


def main(folder: Path) -> None:
    wanted = trained_eagerly(4)
    given = batches(4)
    for plan in ("data", "zero1", "zero3"):
        step = new_step(plan, SHARES)
        check(step, step(given[0]), wanted[0])
        check(step, step.local(own_rows(given[1])), wanted[1])
        check_forward(step, given[2], wanted[1][1])
        step.save_checkpoint(folder / plan)
    step = new_step("zero1", None)
    step.load_checkpoint(folder / "zero3")
    check(step, step(given[2]), wanted[2])
    step.save_checkpoint(folder / "equal")
    step = new_step("zero3", SHARES)
    step.load_checkpoint(folder / "equal")
    check(step, step(given[3]), wanted[3])


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(lambda: main(Path(sys.argv[1])), "training with unequal shares agrees")
