"""A rank whose row chooses an expert that there is not: ``expert_worker.py FUSE``."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from rank_main import run
from torch import Tensor, nn

import shardc


class Chosen(nn.Module):
    """An expert for each row, as the batch says."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 6, 6))

    def forward(self, x: Tensor, kinds: Tensor) -> Tensor:
        return torch.bmm(x.unsqueeze(1), self.w[kinds]).square().sum()


def main(fuse: bool) -> None:
    torch.manual_seed(0)
    model = Chosen()
    batch = torch.randn(8, 6), torch.randint(0, 4, (8,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"loss": lambda output, _: output, "fuse": fuse}
    step = shardc.compile_step(model, optimizer, batch, mesh={"expert": 2}, plan="expert", **options)
    step(batch)
    batch[1][7] = 4  # of the second rank's rows
    step(batch)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(lambda: main(sys.argv[1] == "1"), "the step passed")
