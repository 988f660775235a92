"""Tensors that a compiled forward keeps for its backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

SHAPE = (8, 32)


def kept(f: Callable[..., Tensor], *tensors: Tensor, **options: Any) -> list[tuple[int, ...]]:
    """Shapes of what ``f``, compiled, saves; its gradients must be eager's."""
    leaves = [t.requires_grad_() for t in tensors]
    compiled = torch.compile(f, backend="shardc", dynamic=False, options=options)
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        found = compiled(*leaves)
    exact = f(*leaves)
    seed = torch.randn_like(exact)
    torch.testing.assert_close(found, exact)
    for got, wanted in zip(
        torch.autograd.grad(found, leaves, seed), torch.autograd.grad(exact, leaves, seed), strict=True
    ):
        torch.testing.assert_close(got, wanted)
    return sorted(tuple(t.shape) for t in saved)


def normed(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def test_what_a_kernel_makes_from_its_inputs_is_made_again() -> None:
    found = kept(normed, torch.randn(SHAPE), torch.randn(SHAPE[1]))
    assert found == [(8, 1), (8, 32), (32,)]


def test_where_ops_stay_calls_forward_keeps_what_it_made() -> None:
    found = kept(normed, torch.randn(SHAPE), torch.randn(SHAPE[1]), fuse=False)
    assert found.count(SHAPE) > 1


@pytest.mark.parametrize("op, count", [(torch.lgamma, 3), (torch.tanh, 2)])
def test_what_no_kernel_can_hold_is_not_computed_twice(op: Callable[[Tensor], Tensor], count: int) -> None:
    found = kept(lambda x, y: op(x) * y.exp(), torch.rand(SHAPE), torch.randn(SHAPE))
    assert len(found) == count
