"""Edges that a user forbids and forces, and the report on their effects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch_mlir import ir

from shardc.diagnostics.passes.fusion import BadFusionEdge, FusionRefused, NoSuchFusionEdge
from shardc.options.fusion_edges import read_edge
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.grouping.explain import FusionReport, explain_fusion
from shardc.passes.fuse.kern_fuse import KernFuse, fuse_module

from .conftest import traced

Tensor = torch.Tensor


def sums(x: Tensor) -> Sequence[Tensor]:
    """Its two sums cannot share a kernel; each can with the exponential."""
    y = x.exp()
    return y.sum(2), y.sum((1, 2)), y


def fused(
    f: Callable[..., Any], *tensors: Tensor, forbid: Sequence[str] = (), force: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    module = traced(f, tensors)
    fuse_module(module, constraints=FusionConstraints.of(forbid, force))
    ops = [o.operation for o in module.body.operations[0].operation.regions[0].blocks[0].operations]
    return [
        tuple(ir.StringAttr(n).value for n in op.attributes["kern.calls"])
        for op in ops
        if op.name == "kern.kernel"
    ]


def test_forbidden_edges_are_apart() -> None:
    f = lambda x: ((x * 2).tanh() + x).exp()  # noqa: E731
    x = torch.randn(4, 8)
    assert fused(f, x) == [("0.0", "0.1", "0.2", "0.3")]
    assert fused(f, x, forbid=["tanh+aten.add.Tensor"]) == [("0.0", "0.1"), ("0.2", "0.3")]
    for kernel in fused(f, x, forbid=["mul+exp"]):  # not by way of what is between them, either
        assert not {"0.0", "0.3"} <= set(kernel)


def test_a_forced_edge_comes_first() -> None:
    x = torch.randn(4, 5, 6)
    (plain,) = fused(sums, x)
    first, second = ("0.0", "0.1"), ("0.0", "0.2")
    assert plain in (first, second)
    other = second if plain == first else first
    assert fused(sums, x, force=["+".join(other)]) == [other]
    assert fused(sums, x, force=["+".join(plain)]) == [plain]


@pytest.mark.parametrize(
    ("f", "edge", "why"),
    [
        (sums, "0.1+0.2", "they reduce different dims"),
        (lambda x: (x @ x).tanh(), "mm+tanh", "is left to ATen or a library"),
        (lambda x: (x.exp(), torch.ones(5).tanh()), "exp+tanh", "they share no tensor"),
        (lambda x: (lambda y: y @ y + y)(x.exp()), "exp+add", "an op between them depends on one"),
    ],
)
def test_what_cannot_be_forced_is_said(f: Callable[..., Any], edge: str, why: str) -> None:
    with pytest.raises(FusionRefused, match=edge.replace("+", r"\+")) as caught:
        fused(f, torch.randn(4, 6, 6) if f is sums else torch.randn(6, 6), force=[edge])
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "gelu",
        "a+b+c",
        "+gelu",
        "gelu+",
        "gelu@model.py+add",
        "gelu@+add",
        "ge lu+add",
        "model.py:x+add",
        "-1.2+add",
    ],
)
def test_edges_that_are_none(text: str) -> None:
    with pytest.raises(BadFusionEdge):
        read_edge(text)


def test_an_edge_is_forbidden_or_forced() -> None:
    with pytest.raises(BadFusionEdge, match="both"):
        FusionConstraints.of(["exp+tanh"], ["exp+tanh"])


def test_an_edge_that_fits_nothing() -> None:
    with pytest.raises(NoSuchFusionEdge, match=r"exp\+gelu"):
        KernFuse(forbid_fusion=("exp+gelu",)).run(traced(sums, (torch.randn(4, 5, 6),)))


def test_the_report() -> None:
    report = explain_fusion(traced(lambda x: ((x @ x) * 2).tanh(), (torch.randn(4, 4),)))
    assert isinstance(report, FusionReport)
    (kernel,) = report.kernels
    assert (kernel.name, [op.number for op in kernel.ops]) == ("mul_tanh_0", ["0.1", "0.2"])
    assert (kernel.traffic.launches, kernel.traffic.read_bytes, kernel.traffic.written_bytes) == (1, 64, 64)
    assert (kernel.apart.launches, kernel.apart.moved_bytes) == (2, 256)
    (staying,) = report.staying
    assert (staying.target, staying.why) == ("aten.mm", "is left to ATen or a library")
    assert (report.before.launches, report.after.launches) == (3, 2)
    assert report.before.moved_bytes - report.after.moved_bytes == 128
    ((first, second, decision),) = report.pairs
    assert (first.number, second.number) == ("0.1", "0.2")
    assert str(decision) == "fused: saves a launch and 128 bytes"


def test_pairs_are_the_neighbours() -> None:
    """Not the first calls of the groups that they have come to be in."""
    report = explain_fusion(traced(lambda x: ((x * 2).tanh() + 1).exp(), (torch.randn(4, 4),)))
    assert {(a.number, b.number) for a, b, _ in report.pairs} == {
        ("0.0", "0.1"),
        ("0.1", "0.2"),
        ("0.2", "0.3"),
    }
