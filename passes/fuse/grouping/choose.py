"""Choice of the matmuls that become parts of kernels, made for each region of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod

from torch_mlir import ir

from shardc.cost.work import matmul_sizes
from shardc.dialects.kern.strides import Strides
from shardc.passes.fuse.grouping.constraints import BlockConstraints, FusionConstraints
from shardc.passes.fuse.grouping.group import Decision, group
from shardc.passes.fuse.grouping.region import Choose, find_regions, is_asked
from shardc.passes.fuse.lower.matmul import TARGETS
from shardc.passes.fuse.reading.graph import Block, Step
from shardc.passes.fuse.reading.read import LEFT
from shardc.passes.fuse.reading.unit import Units, make_units, release_units
from shardc.passes.fuse.reading.view import VIEWS
from shardc.runtime.report import progress

Read = Callable[[frozenset[str | int]], Block]
"""Function that reads a block; its argument has the targets and numbers of the calls that stay calls."""


@dataclass
class Division:
    """Block in which some matmuls stay calls, and the matmuls ``generated`` become parts of kernels.

    If ``decisions`` are given, ``units`` are already grouped.
    """

    read: Block
    units: Units
    generated: frozenset[int] = frozenset()
    decisions: list[Decision] | None = None


class Readings:
    """Readings of a block, in each of which other matmuls stay calls. A reading is valid until the next one.

    The block is read only once, because an op that reads a matmul's result reads the same tensor in either
    case. The exception is a slice that is lowered to its part of the matmul: such a block is read each time.
    """

    def __init__(self, read: Read) -> None:
        self._read, self.whole = read, read(frozenset())
        steps = self.whole.steps
        matmuls = [step for step in steps if step.target in TARGETS and _contracts(step)]
        self._made = {step.number: (made, made.node) for step in matmuls for made in step.results if made}
        results = {result for result, _ in self._made.values()}
        cuts = (step for step in steps if step.nodes and step.target in VIEWS)
        self._is_one = results.isdisjoint(step.operands[0] for step in cuts)

    @property
    def matmuls(self) -> frozenset[int]:
        """Numbers of the matmuls that can be in kernels."""
        return frozenset(self._made)

    def with_calls(self, calls: frozenset[int]) -> Block:
        """Return the block in which the matmuls ``calls`` stay calls."""
        if not self._is_one:
            return self._read(calls)
        for number, (result, node) in self._made.items():
            result.node = None if number in calls else node
        left = (replace(s, nodes=[], why=LEFT) if s.number in calls else s for s in self.whole.steps)
        return replace(self.whole, steps=list(left))


def divide_matmuls(
    number: int,
    read: Read,
    choose: Choose,
    constraints: FusionConstraints,
    strides: Mapping[ir.Value, Strides],
) -> Division:
    """Divide block ``number``: matmuls become parts of kernels where ``choose`` or a forced edge says so."""
    readings = Readings(read)
    parted = readings.with_calls(readings.matmuls)
    apart, forced = make_units(parted), constraints.in_block(number, parted.steps).forced
    matmul_steps = [step for step in parted.steps if step.number in readings.matmuls]
    if not forced and not any(is_asked(_matmul_flops(step), choose) for step in matmul_steps):
        return Division(parted, apart)
    constrained = BlockConstraints(constraints.in_block(number, parted.steps).forbidden)
    decisions = group(apart, constrained)
    whole = readings.with_calls(frozenset())
    together = make_units(whole)
    group(together, constrained)
    found = {c for pairs in forced.values() for pair in pairs for c in pair if c in readings.matmuls}
    regions = list(find_regions(number, whole, together, apart, strides, choose))
    for index, region in enumerate(regions):
        progress.step("regions", index + 1, len(regions))
        region.beside = regions
        calls = {int(matmul.partition(".")[2]) for matmul in region.calls}
        if calls.isdisjoint(found) and choose(region).generated:
            found |= calls
    release_units(together)
    if not found and not forced:
        return Division(readings.with_calls(readings.matmuls), apart, decisions=decisions)
    release_units(apart)
    chosen = readings.with_calls(readings.matmuls - found)
    return Division(chosen, make_units(chosen), frozenset(found))


def _contracts(step: Step) -> bool:
    return any(node.contracts for node in step.nodes)


def _matmul_flops(step: Step) -> int:
    """Return the floating-point operations of a call in TARGETS; 0 if they are not known."""
    sizes = matmul_sizes(*(value.type.shape for value in step.operands[-2:]))
    return 2 * prod(sizes) if all(isinstance(size, int) for size in sizes) else 0
