"""Which matmuls are parts of kernels, where that is decided for each region of a program by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from shardc.cost.work import matmul_sizes
from shardc.dialects.kern.strides import Strides
from shardc.passes.fuse.grouping.constraints import BlockConstraints, FusionConstraints
from shardc.passes.fuse.grouping.group import Decision, group
from shardc.passes.fuse.grouping.region import Choose, find_regions, is_asked
from shardc.passes.fuse.lower.matmul import TARGETS
from shardc.passes.fuse.reading.graph import Block, Step
from shardc.passes.fuse.reading.unit import Units, make_units, release
from shardc.runtime.report import progress

Read = Callable[[frozenset[str | int]], Block]
"""Reads a block, with what is to stay: targets, and numbers of calls."""


@dataclass
class Division:
    """A block read with some of its matmuls as calls. The matmuls ``generated`` become parts of kernels.

    ``units``, where ``decisions`` are given: grouped already, to find that out.
    """

    read: Block
    units: Units
    generated: frozenset[int] = frozenset()
    decisions: list[Decision] | None = None


def divide_matmuls(
    number: int,
    read: Read,
    choose: Choose,
    constraints: FusionConstraints,
    strides: Mapping[ir.Value, Strides],
) -> Division:
    """Divide block ``number``: matmuls become parts of kernels where ``choose`` or a forced edge says so."""
    parted = read(TARGETS)
    apart, forced = make_units(parted), constraints.in_block(number, parted.steps).forced
    matmul_steps = [step for step in parted.steps if step.target in TARGETS]
    if not forced and not any(is_asked(_matmul_flops(step), choose) for step in matmul_steps):
        return Division(parted, apart)
    whole = read(frozenset())
    together, constrained = make_units(whole), constraints.in_block(number, whole.steps)
    decisions = group(apart, BlockConstraints(constrained.forbidden))
    group(together, BlockConstraints(constrained.forbidden))
    matmuls = frozenset(step.number for step in whole.steps if step.target in TARGETS and step.nodes)
    found = {call for pairs in forced.values() for pair in pairs for call in pair if call in matmuls}
    regions = list(find_regions(number, whole, together, apart, strides, choose))
    for index, region in enumerate(regions):
        progress.step("regions", index + 1, len(regions))
        region.beside = regions
        calls = {int(matmul.partition(".")[2]) for matmul in region.calls}
        if calls.isdisjoint(found) and choose(region).generated:
            found |= calls
    release(whole, together)
    if not found and not forced:
        return Division(parted, apart, decisions=decisions)
    release(parted, apart)
    chosen = read(matmuls - found)
    return Division(chosen, make_units(chosen), frozenset(found))


def _matmul_flops(step: Step) -> int:
    """The floating-point operations of a call in TARGETS; 0 where they are not known."""
    sizes = matmul_sizes(*(value.type.shape for value in step.operands[-2:]))
    return 2 * prod(sizes) if all(isinstance(size, int) for size in sizes) else 0
