"""Norms and differences that the backward computes again: what is saved, gradients against eager in f64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

NORMS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "layer": lambda x, w, b: F.layer_norm(x, x.shape[1:], w[:, None, None] + x.new_zeros(x.shape[1:])),
    "group": lambda x, w, b: F.group_norm(x, 3, w, b),
    "batch": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
    "without weights": lambda x, w, b: F.group_norm(x, 3),
}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "hardswish": F.hardswish,
    "twice the sine": lambda x: (2 * x).sin(),
    "gelu of a view": lambda x: F.gelu(x.flatten(1)).unflatten(1, x.shape[1:]),
    "a small factor": lambda x: F.silu(x * x[0, 0, 0, 0].detach()),
}


def _saved(call: Callable[..., Tensor], x: Tensor, w: Tensor, b: Tensor) -> tuple[list[int], list[Tensor]]:
    """Return the sizes of other tensors than ``x`` that forward keeps, and the gradients."""
    kept = list[Tensor]()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        made = call(x, w, b)
    large = [t.numel() for t in kept if t.numel() == x.numel() and t.data_ptr() != x.data_ptr()]
    return large, list(torch.autograd.grad(made.square().sum(), [x, w, b], allow_unused=True))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", NORMS)
def test_only_the_input_is_saved(norm: str, activation: str) -> None:
    def call(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return ACTIVATIONS[activation](NORMS[norm](x, w, b)).sum((2, 3))

    x, w, b = torch.randn(4, 6, 9, 11), torch.randn(6), torch.randn(6)
    given = [t.requires_grad_() for t in (x, w, b)]
    large, found = _saved(torch.compile(call, backend="shardc", dynamic=False), *given)
    assert not large
    exact = [t.detach().double().requires_grad_() for t in given]
    _, truth = _saved(call, *exact)
    for got, want in zip(found, truth, strict=True):
        assert (got is None) == (want is None)
        if got is not None and want is not None:
            torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4 * float(want.abs().max()))


def test_what_a_product_reads_is_saved() -> None:
    def call(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.relu(F.layer_norm(x, (32,), b)) @ w

    x, w, b = (t.requires_grad_() for t in (torch.randn(40, 32), torch.randn(32, 32), torch.randn(32)))
    large, _ = _saved(torch.compile(call, backend="shardc", dynamic=False), x, w, b)
    assert large == [x.numel()]


def test_differences_of_inputs_are_taken_again_behind_their_norms() -> None:
    def call(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return (F.softplus((x - w).norm(dim=-1)) - (x - b).norm(dim=-1)).mean()

    given = [torch.randn(70, 50).requires_grad_() for _ in range(3)]
    kept = list[Tensor]()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        torch.compile(call, backend="shardc", dynamic=False)(*given)
    large = {t.data_ptr() for t in kept if t.numel() == given[0].numel()}
    assert large <= {t.data_ptr() for t in given}
