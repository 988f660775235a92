"""Kernels of equal structure share one body, and only those."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch_mlir import ir

from .conftest import Fuse, Fused

X, Y = torch.randn(64, 64), torch.randn(64, 64)


def _kernels(fused: Fused) -> list[ir.Operation]:
    block = fused.module.body.operations[0].operation.regions[0].blocks[0]
    return [op.operation for op in block.operations if op.operation.name == "kern.kernel"]


def _names(fused: Fused) -> list[str]:
    return [ir.StringAttr(op.attributes["kern.name"]).value for op in _kernels(fused)]


def _layers(count: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(count):
            x = (x @ w).sigmoid() * 0.5
        return x

    return f


def test_layers_share_a_kernel_whatever_their_number(fuse: Fuse) -> None:
    two, three = fuse(_layers(2), X, Y), fuse(_layers(3), X, Y)
    assert len(_kernels(two)) == 2 and len(_kernels(three)) == 3
    assert set(_names(two)) == set(_names(three)) and len(set(_names(two))) == 1


def test_a_copy_has_the_lines_of_its_own_calls(fuse: Fuse) -> None:
    fused = fuse(_layers(2), X, Y)
    first, second = _kernels(fused)
    for kernel in (first, second):
        ops = [op.operation for op in kernel.regions[0].blocks[0].operations]
        ops += [
            inner.operation for op in ops if len(op.regions) for inner in op.regions[0].blocks[0].operations
        ]
        assert {str(op.location) for op in ops} == {str(kernel.location)}
        assert {str(a.location) for a in kernel.regions[0].blocks[0].arguments} == {str(kernel.location)}
    assert str(first.attributes["kern.calls"]) != str(second.attributes["kern.calls"])


def test_numbers_that_python_takes_for_equal(fuse: Fuse) -> None:
    fused = fuse(lambda x, y: ((x.abs() * 0.0).reciprocal(), (y.abs() * -0.0).reciprocal()), X, Y)
    up, down = fused.results
    assert len(set(_names(fused))) == 2
    assert (up == torch.inf).all() and (down == -torch.inf).all()


def test_what_is_read_otherwise_is_another_body(fuse: Fuse) -> None:
    fused = fuse(lambda x, y: (x.exp() * x, y.t().exp() * y), X, Y)
    assert len(set(_names(fused))) == len(fused.kernels) == 2
