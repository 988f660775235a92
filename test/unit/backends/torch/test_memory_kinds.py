"""Kinds of a program's memory at the peak: gradients, activations, collectives, temporaries."""

from __future__ import annotations

import torch

from shardc.backends.torch.memory.dry_run import META, dry_run
from shardc.backends.torch.memory.kinds import ACTIVATIONS, COLLECTIVES, GRADIENTS, TEMPORARIES, Alive

PROGRAM = """
import torch
add, mul, neg = torch.ops.aten.add.Tensor, torch.ops.aten.mul.Tensor, torch.ops.aten.neg.default

def step(rank, x):
    # -- forward
    # model.py:1
    kept = add(x, 1)
    # model.py:2
    local = add(kept, 1)
    # -- backward
    # model.py:1
    grad_w = mul(kept, x)
    other = neg(x)
    sent = rank.all_reduce(other)
    # -- optimizer
    last = add(grad_w, 1)
    return (last, local, other)
"""


class Rank:
    """Its collectives are copies."""

    @staticmethod
    def all_reduce(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.mul.Tensor(x, 1)


def test_kinds_follow_from_where_memory_is_made_and_read() -> None:
    x = torch.empty(8, dtype=torch.float32, device=META)
    found = {(a.kind, a.place.where): a.size_bytes for a in _alive(x)}
    assert found == {
        (ACTIVATIONS, "model.py:1"): 32,
        (TEMPORARIES, "model.py:2"): 32,
        (GRADIENTS, "model.py:1"): 32,
        (COLLECTIVES, "model.py:1"): 32,
        (TEMPORARIES, "model.py:1"): 32,
    }


def _alive(x: torch.Tensor) -> tuple[Alive, ...]:
    return dry_run(PROGRAM, "step", lambda: [Rank(), x]).alive
