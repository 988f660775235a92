"""Collectives of two ranks, which are threads of this process, over Gloo."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from shardc.runtime.comm.collectives import Rank
from shardc.runtime.comm.groups import Group
from shardc.runtime.comm.mesh import Mesh

MESH = Mesh((("data", 2),))
DATA = (("data", 1, 2),)
X = torch.arange(6.0).view(2, 3)


def on_both_ranks(work: Callable[[Rank], Tensor]) -> list[Tensor]:
    """What ``work`` returns on each of two ranks."""
    store = dist.HashStore()

    def run(number: int) -> Tensor:
        handle = dist.ProcessGroupGloo(store, number, 2, timedelta(seconds=30))
        return work(Rank(MESH, number, torch.device("cpu"), {DATA: Group((0, 1), handle, None)}))

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(run, range(2)))


@pytest.mark.parametrize("x", [X, X.t(), X > 2], ids=["contiguous", "transposed", "bool"])
def test_all_reduce_leaves_its_operand_as_it_is(x: Tensor) -> None:
    """A later op of the program may read the operand; ``reuse`` says that none does."""
    operands = [x.clone(), x.clone()]
    reduction = "max" if x.dtype == torch.bool else "sum"

    def reduce(rank: Rank) -> Tensor:
        return rank.all_reduce(operands[rank.number], axes=DATA, reduction=reduction).wait()

    expected = x if x.dtype == torch.bool else 2 * x
    assert all(torch.equal(made, expected) for made in on_both_ranks(reduce))
    assert all(torch.equal(operand, x) for operand in operands)
