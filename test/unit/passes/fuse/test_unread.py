"""Calls without readers, before or after fusion, are removed and do not become kernels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_mlir import ir

import shardc.runtime.operators.attention  # noqa: F401  (defines shardc::attention)
from shardc.backends.eager.interpreter import run
from shardc.passes.fuse.kern_fuse import fuse_module

from .conftest import traced

aten, ours = torch.ops.aten, torch.ops.shardc
X, INDEX = torch.ones(2, 2, 64, 32), torch.arange(64) % 5

CALLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "attention": lambda x, index: ours.attention(x, x, x, None, False, 0.3)[0],
    "attention, backward": lambda x, index: ours.attention_backward(
        x, x, x, x, None, x, x[..., 0], False, 0.3, 0
    )[1],
    "index_add": lambda x, index: aten.index_add(x.view(64, 128), 0, index, x.view(64, 128)),
    "embedding added": lambda x, index: (
        x.view(64, 128) + aten.embedding_dense_backward(x.view(64, 128), index, 64, -1, False)
    ),
}


def names(module: ir.Module) -> list[str]:
    ops = module.body.operations[0].operation.regions[0].blocks[0].operations
    return [
        o.operation.name
        for o in ops
        if o.operation.name.startswith(("kern.", "torch.aten.", "torch.operator"))
    ]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("read", [False, True], ids=["never read", "read for its shape"])
def test_what_nobody_reads_becomes_nothing(name: str, read: bool) -> None:
    def f(x: Tensor, index: Tensor) -> Tensor:
        made = CALLS[name](x, index)
        return (torch.ones_like(made) if read else x).sin() * 2

    module = traced(f, [X, INDEX])
    fuse_module(module)
    module.operation.verify()
    assert names(module) == ["kern.kernel"]


@pytest.mark.parametrize("name", ["max", "min"])
def test_indices_that_nobody_reads_are_not_computed(name: str) -> None:
    """Over a dim that is not the last, an extremum is then one reduction, also of a permuted tensor."""
    x = torch.randn(4, 6, 5, 16)
    x[1, 2, 3, 4] = float("nan")

    def f(x: Tensor) -> Tensor:
        return getattr(torch, name)(x.permute(0, 3, 1, 2), 1, keepdim=True)[0] * 2

    module = traced(f, [x])
    fuse_module(module)
    assert names(module) == ["kern.kernel"]
    [[found]] = run(module, [[x]])
    torch.testing.assert_close(found, f(x), rtol=0, atol=0, equal_nan=True)
