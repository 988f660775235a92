"""Batch norm in a pipeline of two ranks with micro-batches as separate programs: ``micro_worker.py``.

Held against plain gradient accumulation, in f64.
"""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
from micro_batch_models import Norms, accumulated_step, samples
from rank_main import run
from torch import nn
from torch.distributed.tensor import DTensor

import shardc

BOUND = 1e-9
CLIP = 0.5
MICRO_BATCHES = 4


def new_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def main() -> None:
    torch.manual_seed(1)
    model = Norms().double()
    plain = copy.deepcopy(model)
    optimizer = new_optimizer(plain)
    step = shardc.compile_step(
        model,
        new_optimizer(model),
        samples(model),
        mesh={"pipe": 2},
        plan="pipeline",
        micro_batches=MICRO_BATCHES,
        per_micro_batch=True,
        clip_grad_norm=CLIP,
        fuse=False,
    )
    for number in range(3):
        batch = {name: value.roll(number, 0) for name, value in samples(model).items()}
        wanted = accumulated_step(plain, optimizer, batch, MICRO_BATCHES, CLIP)
        found = float(step(batch))
        assert abs(found - wanted) < BOUND, (number, found, wanted)
    held, expected = step.state_dict(), plain.state_dict()
    for name in sorted(held.keys() & expected.keys()):
        value = held[name]
        mine = value.full_tensor() if isinstance(value, DTensor) else value
        gap = float((mine.double() - expected[name].double()).abs().max())
        assert gap < BOUND, f"{name} is off by {gap}"
    ranks: list[list[str]] = [[], []]
    dist.all_gather_object(ranks, [name for name in held if name in expected])
    assert ranks[0] != ranks[1] and set(ranks[0]) | set(ranks[1]) == set(expected), ranks


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(main, "micro-batches agree")
