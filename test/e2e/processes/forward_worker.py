"""Trains on one plan, evaluates over the same tensors, and runs a forward on another plan, in turn; no file
is opened while weights move. Everything is compared with eager.
"""

from __future__ import annotations

import os
import warnings
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from rank_main import run
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

import shardc


def new_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.0), nn.Linear(16, 4)).double()


def loss_of(output: Tensor, _: object) -> Tensor:
    return output.square().mean()


def batch(number: int) -> tuple[Tensor]:
    return (torch.randn(8, 8, generator=torch.Generator().manual_seed(number), dtype=torch.float64),)


def close(found: Any, wanted: Tensor) -> None:
    whole = found.full_tensor() if isinstance(found, DTensor) else found
    torch.testing.assert_close(whole, wanted.detach(), rtol=1e-9, atol=1e-12)


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("a file was opened")


def main() -> None:
    warnings.simplefilter("ignore")
    world = int(os.environ["WORLD_SIZE"])
    ours, theirs = new_model(), new_model()
    mesh, plan = ({"data": 2}, "zero3") if world == 2 else ({"data": 2, "tensor": 2}, "zero3*tensor")
    optimizer, other = (torch.optim.SGD(model.parameters(), lr=0.1) for model in (ours, theirs))
    outputs = {"logits": "output", "norm": "grad_norm"}
    made: dict[str, Any] = {"loss": loss_of, "outputs": outputs, "fuse": False}
    step = shardc.compile_step(ours, optimizer, batch(0), mesh=mesh, plan=plan, **made)
    forward = shardc.compile_forward(new_model(), batch(0), mesh={"tensor": world}, plan="tensor", fuse=False)
    for number in range(3):
        other.zero_grad()
        output = theirs(*batch(number))
        loss_of(output, None).backward()
        norm = nn.utils.clip_grad_norm_(theirs.parameters(), float("inf"))
        other.step()
        result = step(batch(number))
        assert isinstance(result.outputs["logits"], DTensor)
        close(result.loss, loss_of(output, None))
        close(result.outputs["logits"], output)
        close(result.outputs["norm"], norm)
        wanted = theirs(*batch(9))
        evaluated = step.evaluate(batch(9))
        close(evaluated.loss, loss_of(wanted, None))
        close(evaluated.outputs["logits"], wanted)
        close(step.forward(batch(9)), wanted)
        forward(batch(9))
        with patch("builtins.open", refuse):
            forward.take_from(step)
        close(forward(batch(9)), wanted)
    before = {name: value.full_tensor() for name, value in step.named_parameters()}
    step(batch(5))
    step.take_from(forward)
    for name, value in step.named_parameters():
        assert torch.equal(value.full_tensor(), before[name]), name
    dist.barrier()


if __name__ == "__main__":
    run(main, "as eager")
