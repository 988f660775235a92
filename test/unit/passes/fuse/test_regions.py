"""Regions of a program whose matmuls are calls or parts of kernels, as something decides for each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch_mlir import ir

from shardc.backends.eager.interpreter import run
from shardc.dialects.aten.call import CallReader
from shardc.passes.fuse.grouping import region
from shardc.passes.fuse.grouping.choose import Readings
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.grouping.region import Region, Verdict
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.passes.fuse.reading.graph import Step
from shardc.passes.fuse.reading.read import read_block

from .conftest import traced


@pytest.fixture(autouse=True)
def all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region, "SMALL_FLOPS", 0)


def block(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """A feed-forward block with a norm behind it."""
    return F.layer_norm(x + F.gelu(x @ w) @ v, (4,))


X, W, V = torch.randn(6, 4), torch.randn(4, 8), torch.randn(8, 4)


def fused(
    f: Callable[..., Any],
    tensors: tuple[torch.Tensor, ...],
    generated: Callable[[int], bool],
    constraints: FusionConstraints | None = None,
) -> tuple[list[Region], list[list[str]], list[str]]:
    """The regions, and after fusing the ops of each kernel and the ATen calls.
    ``generated`` decides on a region by its number.
    """
    module, asked = traced(f, tensors), []

    def choose(part: Region) -> Verdict:
        asked.append(part)
        return Verdict(generated(len(asked) - 1), "")

    before = run(module, [[t] for t in tensors], widen=True)
    fuse_module(module, matmuls=choose, constraints=constraints)
    after = run(module, [[t] for t in tensors], widen=True)
    torch.testing.assert_close(after, before, rtol=1e-12, atol=1e-12)
    kernels = [[n.value for n in op.attributes["kern.ops"]] for op in ops(module) if op.name == "kern.kernel"]
    return (
        asked,
        kernels,
        [t for t in targets(module) if t in ("mm", "gelu", "add.Tensor", "native_layer_norm")],
    )


def ops(module: ir.Module) -> list[ir.Operation]:
    return [o.operation for o in module.body.operations[0].operation.regions[0].blocks[0].operations]


def targets(module: ir.Module) -> list[str]:
    return [op.name.removeprefix("torch.aten.") for op in ops(module) if op.name.startswith("torch.aten.")]


def test_a_piece_is_what_the_two_ways_group_differently() -> None:
    regions, _, _ = fused(block, (X, W, V), lambda _: False)
    assert [[t for t in targets(p.module) if t != "view"] for p in regions] == [
        ["mm", "gelu"],
        ["mm", "add.Tensor", "native_layer_norm"],
    ]
    assert [len(p.calls) for p in regions] == [1, 1]


def test_pieces_are_decided_on_one_by_one() -> None:
    norm = ["aten.add.Tensor", "aten.native_layer_norm"]
    for chosen, kernels, calls in (
        ((), [norm], ["mm", "gelu", "mm"]),
        ((0,), [["aten.mm", "aten.gelu"], norm], ["mm"]),
        ((1,), [["aten.mm", "aten.add.Tensor"]], ["mm", "gelu", "native_layer_norm"]),
        ((0, 1), [["aten.mm", "aten.gelu"], ["aten.mm", "aten.add.Tensor"]], ["native_layer_norm"]),
    ):
        assert fused(block, (X, W, V), chosen.__contains__)[1:] == (kernels, calls)


def test_a_matmul_alone_is_a_kernel_where_that_is_faster() -> None:
    assert fused(torch.mm, (X, W), lambda _: True)[1:] == ([["aten.mm"]], [])
    assert fused(torch.mm, (X, W), lambda _: False)[1:] == ([], ["mm"])


def test_a_piece_computes_what_its_part_of_the_program_does() -> None:
    regions, _, _ = fused(lambda x, w: (x.t() @ w).exp(), (X, torch.randn(6, 5)), lambda _: False)
    x, w = torch.randn(6, 4), torch.randn(6, 5)
    [[found]] = run(regions[0].module, [[x], [w]])
    torch.testing.assert_close(found, (x.t() @ w).exp())


def test_equal_pieces_have_equal_texts() -> None:
    """Wherever they stand: they are measured once."""

    def layers(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.gelu(x @ w, approximate="tanh") @ v @ w, approximate="tanh")

    regions, _, _ = fused(layers, (X, W, V), lambda _: False)
    first, second, third = (p.module.operation.get_asm() for p in regions)
    assert first == third != second


def test_a_matmul_that_is_forced_into_a_kernel_is_not_asked_for() -> None:
    asked, kernels, _ = fused(
        lambda x, w: (x @ w).exp(), (X, W), lambda _: False, FusionConstraints.of(force=["mm+exp"])
    )
    assert kernels == [["aten.mm", "aten.exp"]] and not asked


def test_what_is_forbidden_is_in_no_region() -> None:
    asked, kernels, _ = fused(block, (X, W, V), lambda _: True, FusionConstraints.of(forbid=["mm+gelu"]))
    assert ["mm"] in [[t for t in targets(p.module) if t != "view"] for p in asked]
    assert not any({"aten.mm", "aten.gelu"} <= set(names) for names in kernels)


def test_dropouts_of_two_layers_are_equal_regions() -> None:
    """And a region draws different numbers for each of its own dropouts."""

    def drawn(seed: torch.Tensor, op: int) -> torch.Tensor:
        return torch.ops.shardc.uniform(seed, op, (6, 8), (0, 0), (6, 8), dtype=torch.float32) > 0.25

    def layers(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor, seed: torch.Tensor) -> list[torch.Tensor]:
        return [(x @ y) * drawn(seed, op) * drawn(seed, op + 1) for y, op in ((w, 4), (v, 8))]

    regions, _, _ = fused(layers, (X, W, -W, torch.tensor(3)), lambda _: False)
    first, second = (p.module.operation.get_asm() for p in regions)
    assert first == second
    [[found]] = run(regions[0].module, [[X], [W], [torch.tensor(3)]])
    torch.testing.assert_close(found, X @ W * drawn(torch.tensor(3), 0) * drawn(torch.tensor(3), 1))


def test_flops_of_a_matmul() -> None:
    module = traced(lambda x, y: torch.bmm(x, y), (torch.randn(3, 6, 4), torch.randn(3, 4, 8)))
    steps = read_block(module.body.operations[0].operation.regions[0].blocks[0], CallReader()).steps
    assert [region.matmul_flops(n) for step in steps for n in step.nodes if n.contracts] == [
        2 * 3 * 6 * 4 * 8
    ]


def test_one_reading_serves_every_choice_of_matmuls() -> None:
    """The nodes are those of a reading of its own; not so where a part of a matmul's result is computed."""

    def parts(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.addmm(x[:1, :1], x, w)[:, 2:4].exp()

    for f, tensors, is_one in ((block, (X, W, V), True), (parts, (X, W), False)):
        module = traced(f, tensors)
        body = module.body.operations[0].operation.regions[0].blocks[0]
        read = partial(read_block, body, CallReader(), frozenset[ir.Value](), frozenset[int]())
        readings = Readings(read)
        for calls in (readings.matmuls, frozenset[int](), readings.matmuls):
            found, anew = readings.with_calls(calls), read(calls)
            assert (found.steps[-1] is readings.whole.steps[-1]) == is_one
            assert [shown(step) for step in found.steps] == [shown(step) for step in anew.steps]


def shown(step: Step) -> tuple[object, ...]:
    """What groups see of a step."""
    nodes = [(node.order, node.what, [a.base.type for a in node.accesses]) for node in step.nodes]
    made = [value and (value.type, value.node is not None, value.ir) for value in step.results]
    return step.number, step.target, step.is_view, step.always, nodes, made
