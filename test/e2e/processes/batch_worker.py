"""Ranks that pass different batches: ``batch_worker.py STEP``, the step at which rank 1 does so."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from rank_main import run
from torch import nn

import shardc
from shardc.runtime.errors import BatchMismatch


def main(odd: int) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    step = shardc.compile_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        (torch.zeros(8, 4),),
        mesh={"data": 2},
        loss=lambda output, _: output.square().mean(),
        fuse=False,
    )
    done = 0
    try:
        for number in range(6):
            batch = torch.randn(8, 4, generator=torch.Generator().manual_seed(number))
            if number == odd and dist.get_rank() == 1:
                batch[7, 3] += 1e-3
            step((batch,))
            done += 1
    except BatchMismatch as error:
        assert f"different batches to step {odd}" in str(error) and "step.local" in str(error), error
        assert done == odd, done
    else:
        assert odd < 0, f"{done} steps passed"
        step.local((torch.randn(4, 4),))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(lambda: main(int(sys.argv[1])), "as it should")
