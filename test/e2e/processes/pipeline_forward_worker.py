"""Trains as a pipeline, evaluates over the stages' tensors, and moves weights to a forward without stages and
back. Everything is compared with eager.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch
import torch.distributed as dist
from rank_main import run
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

import shardc

MESHES: dict[int, dict[str, Any]] = {
    2: {"mesh": {"pipe": 2}, "plan": "pipeline"},
    4: {"mesh": {"pipe": 2, "data": 2}, "plan": "pipeline*zero3", "schedule": "interleaved"},
}


class Net(nn.Module):
    """In eval mode a layer, of a stage of its own, is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 4)]
        )

    def forward(self, x: Tensor) -> Tensor:
        first, second, third, last = self.layers
        x = second(first(x).relu()).relu()
        return last(third(x).relu() if self.training else x)


def new_model() -> Net:
    torch.manual_seed(0)
    return Net().double()


def loss_of(output: Tensor, _: object) -> Tensor:
    return output.square().mean()


def batch(number: int, rows: int = 16) -> tuple[Tensor]:
    return (torch.randn(rows, 8, generator=torch.Generator().manual_seed(number), dtype=torch.float64),)


def close(found: Any, wanted: Tensor) -> None:
    whole = found.full_tensor() if isinstance(found, DTensor) else found
    torch.testing.assert_close(whole, wanted.detach(), rtol=1e-9, atol=1e-12)


def main() -> None:
    warnings.simplefilter("ignore")
    world = int(os.environ["WORLD_SIZE"])
    ours, theirs = new_model(), new_model()
    optimizer, other = (torch.optim.SGD(model.parameters(), lr=0.1) for model in (ours, theirs))
    given = {"micro_batches": 4, "loss": loss_of, "outputs": {"logits": "output"}, "fuse": False}
    step = shardc.compile_step(ours, optimizer, batch(0), **MESHES[world], **given)
    forward = shardc.compile_forward(new_model(), batch(0), mesh={"tensor": world}, plan="tensor", fuse=False)
    for number in range(3):
        other.zero_grad()
        output = theirs.train()(*batch(number))
        loss_of(output, None).backward()
        other.step()
        result = step(batch(number))
        close(result.loss, loss_of(output, None))
        close(result.outputs["logits"], output)
        for rows in (16, 9):
            wanted = theirs.eval()(*batch(9, rows))
            evaluated = step.evaluate(batch(9, rows))
            close(evaluated.loss, loss_of(wanted, None))
            close(evaluated.outputs["logits"], wanted)
            close(step.forward(batch(9, rows)), wanted)
        forward.take_from(step)
        close(forward(batch(9)), theirs(*batch(9)))
    before = {name: value.full_tensor() for name, value in step.named_parameters()}
    step(batch(5))
    step.take_from(forward)
    for name, value in step.named_parameters():
        assert torch.equal(value.full_tensor(), before[name]), name
    close(step.forward(batch(9)), theirs(*batch(9)))
    proof = step.check()
    assert proof.passed and len(proof.others) == 4, proof.render()
    dist.barrier()


if __name__ == "__main__":
    run(main, "as eager")
