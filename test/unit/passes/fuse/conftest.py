"""Functions of tensors as graphs, fused and run by the oracle next to the unfused graph and to eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch_mlir import ir

from shardc.backends.eager.interpreter import run
from shardc.backends.eager.proof.tolerance import difference, magnitude, own_precision
from shardc.frontend.graph.aot_graph import import_graph
from shardc.passes.fuse.grouping.group import Decision
from shardc.passes.fuse.kern_fuse import fuse_module


class Fused(NamedTuple):
    """A fused graph: its module, the names of the ATen ops in each kernel, those that stayed, and the
    decisions.
    """

    module: ir.Module
    kernels: list[tuple[str, ...]]
    stayed: list[str]
    decisions: list[tuple[str, str, Decision]]
    results: list[torch.Tensor]
    wide: list[torch.Tensor]


Fuse = Callable[..., Fused]


@pytest.fixture
def fuse() -> Fuse:
    """``fuse(f, *tensors)``: traces f, fuses it, checks in f64 that fusing changed nothing, and runs it in
    its own dtypes.

    Where the oracle's f64 run of the fused graph is further than 1e-12 (relative to the largest element) from
    that of the unfused graph, or a type differs, it fails.
    """

    def fused(
        f: Callable[..., Any],
        *tensors: torch.Tensor,
        rounding: str = "fused",
        matmuls: str = "extern",
        lone: bool = False,
    ) -> Fused:
        module = traced(f, tensors)
        arguments = [[t] for t in tensors]
        before = [r for [r] in run(module, arguments, widen=True)]
        decisions = fuse_module(module, rounding, matmuls=matmuls, lone=lone)
        module.operation.verify()
        after = [r for [r] in run(module, arguments, widen=True)]
        for a, b in zip(after, before, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            if a.dtype.is_floating_point:
                scale = b.nan_to_num(0, 0, 0).abs().max().item() if b.numel() else 0.0
                torch.testing.assert_close(a, b, rtol=0, atol=1e-12 * max(scale, 1e-30), equal_nan=True)
            else:
                assert torch.equal(a, b)
        ops = [o.operation for o in module.body.operations[0].operation.regions[0].blocks[0].operations]
        kernels = [
            tuple(n.value for n in op.attributes["kern.ops"]) for op in ops if op.name == "kern.kernel"
        ]
        stayed = [
            op.name.removeprefix("torch.")
            for op in ops
            if op.name.startswith(("torch.aten.", "torch.operator"))
        ]
        results = [r for [r] in run(module, arguments)]
        return Fused(module, kernels, stayed, decisions, results, after)

    return fused


def traced(f: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> ir.Module:
    """The level-1 module of ``f``, whose results are a tensor or a tuple of them."""

    def flat(*args: torch.Tensor) -> list[torch.Tensor]:
        made = f(*args)
        return [made] if isinstance(made, torch.Tensor) else list(made)

    graph = make_fx(flat, tracing_mode="fake")(*tensors)
    return import_graph(graph, "forward").module


def assert_near(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Same type; NaNs and infinities in the same places; else within the oracle's bound for the dtype."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if not expected.dtype.is_floating_point:
        assert torch.equal(found, expected)
        return
    finite = expected.isfinite()
    torch.testing.assert_close(found[~finite], expected[~finite], equal_nan=True, rtol=0, atol=0)
    scale = magnitude(expected)
    assert difference(found[finite], expected[finite]) <= own_precision(expected.dtype).relative * scale
