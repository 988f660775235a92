"""Ranks whose models differ, in each of ``CASES``; all but ``same`` and ``loaded`` have to be noticed.

The weight of an embedding differs in one element of its last row alone, as where tokens were added.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from rank_main import run
from torch import nn

import shardc
from shardc.runtime.errors import WeightsMismatch

CASES = ("seeds", "row", "buffer", "local", "loaded", "same")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(5001, 4), nn.BatchNorm1d(4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.norm(self.embedding(tokens))


def check(case: str) -> None:
    torch.manual_seed(dist.get_rank() if case == "seeds" else 0)
    model = Net()
    whole = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        if dist.get_rank() == 1 and case in ("row", "local", "loaded"):
            model.embedding.weight[-1, 3] += 1e-3
        if dist.get_rank() == 1 and case == "buffer":
            model.norm.running_mean[2] = 0.5
    step = shardc.compile_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        (torch.arange(8),),
        mesh={"data": 2},
        plan="zero3",
        loss=lambda output, _: output.square().mean(),
        fuse=False,
    )
    if case == "loaded":
        step.load_state_dict(whole)
    differing = {"seeds": "embedding.weight", "row": "embedding.weight", "local": "embedding.weight"}
    differing |= {"buffer": "norm.running_mean"}
    try:
        if case == "local":
            step.local((torch.arange(4),))
        else:
            step((torch.arange(8),))
    except WeightsMismatch as error:
        assert f"different values of {differing[case]!r}" in str(error), error
        assert "torch.manual_seed" in str(error) and "broadcast" in str(error), error
        assert step.steps_done == 0
    else:
        assert case not in differing, "nothing was noticed"
        step((torch.arange(8),))


def main() -> None:
    for case in CASES:
        check(case)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(main, "as it should")
