"""Regions that read other parts of one buffer are equal, and are decided once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch_mlir import ir

from shardc.backends.eager.interpreter import run
from shardc.compiler.modelled_regions import text_of
from shardc.passes.fuse.grouping import region
from shardc.passes.fuse.grouping.region import Region, Verdict
from shardc.passes.fuse.grouping.shift import SLICE, shift_slices
from shardc.passes.fuse.kern_fuse import fuse_module

from .conftest import traced

X, PACKED = torch.randn(6, 8), torch.randn(512)


@pytest.fixture(autouse=True)
def all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region, "SMALL_FLOPS", 0)


def regions(f: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> list[Region]:
    found: list[Region] = []

    def choose(part: Region) -> Verdict:
        found.append(part)
        return Verdict(False, "")

    fuse_module(traced(f, tensors), matmuls=choose)
    return found


def layers(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """Two layers, each with two weights side by side in one buffer."""
    for start in (64, 128):
        gate, up = (packed.view(2, 256)[:, s : s + 16].reshape(8, 4) for s in (start, start + 16))
        x = torch.cat([(x @ gate).relu() * (x @ up)] * 2, 1).sigmoid()
    return x


def slices(module: ir.Module) -> list[tuple[int, int]]:
    block = module.body.operations[0].operation.regions[0].blocks[0]
    ops = [o.operation for o in block.operations if o.operation.name == SLICE]
    bounds = [[v.owner.attributes["value"].value for v in list(op.operands)[2:4]] for op in ops]
    return [(start, end) for start, end in bounds]


def test_layers_that_read_other_parts_of_a_buffer_have_one_region() -> None:
    found = [r for r in regions(layers, X, PACKED) if "slice" in text_of(r)]
    assert len(found) >= 2
    assert len({text_of(r) for r in found}) == len(found) // 2


def test_parts_stay_apart_and_as_aligned_as_they_were() -> None:
    for part in regions(layers, X, PACKED):
        bounds = slices(part.module)
        assert all(end - start == 16 and start < 64 for start, end in bounds)
        assert len(set(bounds)) == len(bounds)


def test_a_region_computes_what_it_did_with_the_part_moved() -> None:
    def f(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
        return x @ packed[133 : 133 + 32].reshape(8, 4)

    (part,) = regions(f, X, PACKED)
    ((start, end),) = slices(part.module)
    assert (start, end) == (5, 37)
    (made,) = run(part.module, [[X], [torch.cat([PACKED[128:], PACKED[:128]])]])
    torch.testing.assert_close(made[0], f(X, PACKED))


def test_a_buffer_that_is_also_read_whole_is_left_alone() -> None:
    def f(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
        return (x @ packed[128:160].reshape(8, 4)).relu().reshape(24, 1) * packed

    (part,) = regions(f, X, PACKED)
    assert slices(part.module) == [(128, 160)]


def test_parts_that_are_sliced_off_different_views_stay_apart() -> None:
    def f(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
        gate, up = (packed.view(2, 256)[:, s : s + 16].reshape(8, 4) for s in (64, 128))
        return (x @ gate).relu() * (x @ up)

    module = traced(f, (X, PACKED))
    shift_slices(
        module.body.operations[0].operation.regions[0].blocks[0], frozenset({"torch.aten.view", SLICE})
    )
    assert slices(module) == [(0, 16), (64, 80)]
