"""Rank 0 alone proves every program of a step that runs on a mesh, then a wrong one among them."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from rank_main import run
from torch import Tensor, nn

import shardc
from shardc.step.shard import Compiled


def rows(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, 4, generator=generator), torch.randint(0, 3, (count,), generator=generator)


def leave_tanh_out(compiled: Compiled) -> None:
    (function,) = [op for op in compiled.program.body.operations if op.operation.name == "func.func"]
    ops = [op.operation for op in function.operation.regions[0].blocks[0].operations]
    (tanh,) = [op for op in ops if "aten.tanh" in str(op) and "backward" not in str(op)]
    tanh.results[0].replace_all_uses_with(tanh.operands[0])


def main() -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    step = shardc.compile_step(
        model,
        torch.optim.AdamW(model.parameters()),
        rows(4),
        loss=F.cross_entropy,
        mesh={"data": 2},
        plan="zero3",
        fuse=False,
        verify=True,
    )
    step(rows(4))
    step(rows(6))
    step.evaluate(rows(4))
    if step.rank == 0:
        proof = step.check()
        assert proof.passed, proof.render()
        assert len(proof.others) == 2
        leave_tanh_out(next(iter(step._others.made.values())).compiled)
        assert [other.passed for _, other in step.check().others] == [False, True]


if __name__ == "__main__":
    run(main, "a wrong program was found")
