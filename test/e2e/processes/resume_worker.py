"""Training that is interrupted and resumed, with each of torch's schedulers.

``resume_worker.py FOLDER whole AXIS`` trains, saving a checkpoint on the way; ``... resumed AXIS`` makes all
objects anew, on another mesh or another number of ranks, loads it, and trains to the end. Both write what
each step saw, a JSON file on rank 0. The net drops out, batches are drawn by a loader in a shuffled order,
and noise comes from torch's own generator.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from rank_main import run
from torch import nn
from torch.optim import lr_scheduler, swa_utils
from torch.optim.lr_scheduler import LRScheduler

import shardc
from shardc.runtime import TrainStep

STEPS, ROWS = 8, 8
NewScheduler = Callable[[torch.optim.Optimizer], LRScheduler]

SCHEDULERS: dict[str, NewScheduler | None] = {
    "none": None,
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda n: min(1.0, (n + 1) / 7)),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda n: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3, gamma=0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 5], gamma=0.3),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.3, total_iters=4),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.2, total_iters=6),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.8),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, STEPS, power=2.0),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3, mode="triangular2"),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.2, total_steps=STEPS + 1),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0, threshold=0.5),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=3), lr_scheduler.CosineAnnealingLR(o, 5)], [3]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.1, total_iters=2), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "SWALR": lambda o: swa_utils.SWALR(o, swa_lr=0.01, anneal_epochs=4),
}
"""All that ``torch.optim`` has; a test compares."""


class Loader:
    """Rows of a data set in a shuffled order, with a state."""

    def __init__(self) -> None:
        made = torch.Generator().manual_seed(5)
        self._rows = torch.randn(64, 6, generator=made, dtype=torch.float64)
        self._generator, self._left = torch.Generator().manual_seed(6), torch.empty(0, dtype=torch.long)

    def next(self) -> torch.Tensor:
        if len(self._left) < ROWS:
            self._left = torch.randperm(20, generator=self._generator)
        taken, self._left = self._left[:ROWS], self._left[ROWS:]
        return self._rows[taken]

    def state_dict(self) -> dict[str, object]:
        return {"generator": self._generator.get_state(), "left": self._left}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self._generator.set_state(state["generator"])
        self._left = state["left"]


def new_optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.5)


def build(axis: str, folder: Path) -> None:
    """An artefact whose step every run loads."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 4)).double()
    ranks = dist.get_world_size()
    step = shardc.compile_step(
        model,
        new_optimizer(list(model.parameters())),
        (torch.zeros(ROWS, 6, dtype=torch.float64),),
        mesh={axis: ranks},
        plan={"data": "zero3", "tensor": "tensor"}[axis],
        loss=lambda output, _: output.square().mean(),
        fuse=False,
    )
    if dist.get_rank() == 0:
        step.save(folder)
    dist.barrier()


def train(name: str, artefact: Path, checkpoint: Path, cut: int, is_resumed: bool) -> list[list[float]]:
    """Loss, learning rate and a random number of each step from ``cut`` on."""
    step, optimizer, loader = (
        TrainStep.load(artefact),
        new_optimizer([nn.Parameter(torch.zeros(1))]),
        Loader(),
    )
    step.bind(optimizer)
    new_scheduler = SCHEDULERS[name]
    scheduler = new_scheduler(optimizer) if new_scheduler else None
    objects = {"data": loader} | ({"scheduler": scheduler} if scheduler else {})
    torch.manual_seed(99 if is_resumed else 1)
    if is_resumed:
        step.load_checkpoint(checkpoint, objects=objects)
        assert step.steps_done == cut
    seen, saving = [], None
    for number in range(step.steps_done, STEPS):
        if number == cut and not is_resumed:
            # every other one in the background, while the training goes on
            saving = step.save_checkpoint(checkpoint, objects=objects, wait=number % 2 == 0)
        noise = torch.rand((), dtype=torch.float64)
        loss = step((loader.next() + noise,))
        seen.append([loss.item(), optimizer.param_groups[0]["lr"], noise.item()])
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            scheduler.step(loss.item())
        elif scheduler is not None:
            scheduler.step()
    if saving is not None:
        saving.wait()
    return seen if is_resumed else seen[cut:]


def main(folder: Path, mode: str, axis: str) -> None:
    artefact = folder / f"{mode}-{axis}-{dist.get_world_size()}"
    build(axis, artefact)
    seen = {}
    for number, name in enumerate(SCHEDULERS):
        cuts = range(1, STEPS) if name in ("none", "SequentialLR") else [1 + number % (STEPS - 1)]
        for cut in cuts:
            checkpoint = folder / f"{name}-{cut}"
            seen[f"{name}-{cut}"] = train(name, artefact, checkpoint, cut, mode == "resumed")
    if dist.get_rank() == 0:
        (folder / f"{mode}-{axis}-{dist.get_world_size()}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(lambda: main(Path(sys.argv[1]), *sys.argv[2:]), "done")
