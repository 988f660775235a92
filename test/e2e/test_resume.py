"""Training resumed in new objects, on a mesh of one, has the losses of the run that went on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

import shardc
from shardc.runtime import TrainStep
from shardc.step.compile_step import CompiledStep

STEPS = 4
"""Before the checkpoint, and after it."""

NewScheduler = Callable[[torch.optim.Optimizer], LRScheduler]


@dataclass
class Run:
    """What a script trains with."""

    step: CompiledStep | TrainStep
    optimizer: torch.optim.Optimizer
    scheduler: LRScheduler | None

    def train(self, first: int, count: int = STEPS) -> list[float]:
        losses = []
        for number in range(first, first + count):
            losses.append(self.step(batch(number)).item())
            if self.scheduler is not None:
                self.scheduler.step()
        return losses


def new_run(new_scheduler: NewScheduler | None = None, seed: int = 0, lr: float | torch.Tensor = 0.1) -> Run:
    """All that a script makes at its start, with an optimizer of two groups."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "weight_decay": 0.2}]
    optimizer = torch.optim.AdamW(groups, lr=lr)
    scheduler = new_scheduler(optimizer) if new_scheduler else None
    step = shardc.compile_step(
        model,
        optimizer,
        batch(0),
        mesh={"data": 1},
        loss=lambda output, _: output.square().mean(),
        fuse=False,
    )
    return Run(step, optimizer, scheduler)


def batch(number: int) -> tuple[torch.Tensor]:
    return (torch.randn(6, 4, generator=torch.Generator().manual_seed(number)),)


def one_cycle(optimizer: torch.optim.Optimizer) -> LRScheduler:
    """Changes the first beta, too."""
    return lr_scheduler.OneCycleLR(optimizer, max_lr=[0.2, 0.3], total_steps=2 * STEPS + 1)


SCHEDULERS: dict[str, NewScheduler] = {
    "step": lambda optimizer: lr_scheduler.StepLR(optimizer, 3, gamma=0.5),
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda number: min(1.0, (number + 1) / 7)),
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=2 * STEPS),
    "one cycle": one_cycle,
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("new_scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_with_a_scheduler(
    new_scheduler: NewScheduler, kind: Callable[[float], float | torch.Tensor], tmp_path: Path
) -> None:
    run = new_run(new_scheduler, lr=kind(0.1))
    run.train(0)
    run.step.save_checkpoint(tmp_path, objects={"scheduler": run.scheduler})
    expected = run.train(STEPS)

    resumed = new_run(new_scheduler, seed=1, lr=kind(0.1))
    resumed.step.load_checkpoint(tmp_path, objects={"scheduler": resumed.scheduler})
    assert resumed.train(STEPS) == expected
    assert resumed.scheduler.get_last_lr() == run.scheduler.get_last_lr()


@pytest.mark.filterwarnings("ignore:SchedulerNotSaved")
@pytest.mark.parametrize("name", ["step", "cosine"])
def test_with_a_scheduler_that_is_made_after_loading(name: str, tmp_path: Path) -> None:
    """Those that go on from the optimizer's learning rate, and do not set it when they are made."""
    run = new_run(SCHEDULERS[name])
    run.train(0)
    run.step.save_checkpoint(tmp_path)
    kept = run.scheduler.state_dict()
    expected = run.train(STEPS)

    resumed = new_run(seed=1)
    resumed.step.load_checkpoint(tmp_path)
    resumed.scheduler = SCHEDULERS[name](resumed.optimizer)
    resumed.scheduler.load_state_dict(kept)
    assert resumed.train(STEPS) == expected


def test_a_new_optimizer_takes_the_checkpoints_numbers_and_is_obeyed_then(tmp_path: Path) -> None:
    run = new_run()
    for group, lr in zip(run.optimizer.param_groups, (0.02, 0.03), strict=True):
        group.update(lr=lr, betas=(0.8, 0.95), weight_decay=0.5)
    run.train(0)
    run.step.save_checkpoint(tmp_path)
    expected = run.train(STEPS)

    resumed = new_run(seed=1, lr=7.0)
    resumed.step.load_checkpoint(tmp_path)
    for group, lr in zip(resumed.optimizer.param_groups, (0.02, 0.03), strict=True):
        assert (group["lr"], group["betas"], group["weight_decay"]) == (lr, (0.8, 0.95), 0.5)
    assert resumed.train(STEPS) == expected

    for one in (run, resumed):
        one.optimizer.param_groups[0]["lr"] = 0.5
    assert resumed.train(2 * STEPS, 2) == run.train(2 * STEPS, 2)
    resumed.step.hyper["group1.lr"] = 0.0
    assert resumed.optimizer.param_groups[1]["lr"] == 0.0


@pytest.mark.filterwarnings("ignore:SchedulerNotSaved")
@pytest.mark.parametrize("bound", ["before", "after"])
def test_with_an_artefact(bound: str, tmp_path: Path) -> None:
    """A script without the model has an optimizer of its own."""
    run = new_run(one_cycle)
    run.step.save(tmp_path / "out")
    run.train(0)
    run.step.save_checkpoint(tmp_path / "checkpoint")
    kept = run.scheduler.state_dict()
    expected = run.train(STEPS)

    optimizer = torch.optim.AdamW([{"params": [torch.zeros(1)]}, {"params": [torch.zeros(1)]}], lr=9.0)
    resumed = Run(TrainStep.load(tmp_path / "out"), optimizer, one_cycle(optimizer))
    if bound == "before":
        resumed.step.bind(optimizer)
    resumed.step.load_checkpoint(tmp_path / "checkpoint")
    if bound == "after":
        resumed.step.bind(optimizer)
    resumed.scheduler.load_state_dict(kept)
    assert resumed.train(STEPS) == expected
