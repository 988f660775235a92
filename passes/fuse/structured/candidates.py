"""Steps of a block that may become separate kernels, and its sums at computed indices that do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch_mlir import ir

from shardc.passes.fuse.grouping.constraints import BlockConstraints, FusionConstraints
from shardc.passes.fuse.reading.graph import Step
from shardc.passes.fuse.reading.read import steps_of
from shardc.passes.fuse.reading.symbols import Symbols
from shardc.passes.fuse.reading.values import target_of
from shardc.passes.fuse.structured.scan import KINDS, Scan, ScanKernels
from shardc.passes.fuse.structured.scatter import SCATTERS, Scatter, ScatterKernels
from shardc.passes.ingest.torch_share import unread


@dataclass
class Candidates:
    """Steps of block ``number``, except ``without``, unread steps, and the producers of ``exclude``."""

    number: int
    block: ir.Block
    exclude: frozenset[ir.Value]
    without: frozenset[int]
    constraints: FusionConstraints
    rounding: str

    @cached_property
    def steps(self) -> list[ir.Operation]:
        return steps_of(self.block)

    @cached_property
    def targets(self) -> list[str]:
        return [target_of(op) for op in self.steps]

    @cached_property
    def _excluded(self) -> frozenset[ir.Value]:
        return self.exclude | unread(self.block)

    def is_free(self, step: int) -> bool:
        """Return whether a step may be in a kernel."""
        return step not in self.without and self._excluded.isdisjoint(self.steps[step].results)

    def constrained(self) -> BlockConstraints:
        named = zip(self.steps, self.targets, strict=True)
        steps = [Step(n, op, target, [], []) for n, (op, target) in enumerate(named)]
        return self.constraints.in_block(self.number, steps)


def find_scatters(candidates: Candidates, lone: bool) -> tuple[list[Scatter], frozenset[int]]:
    """Find the sums at computed indices that become kernels, and the calls that others may not take."""
    if SCATTERS.isdisjoint(candidates.targets):
        return [], frozenset()
    constrained = candidates.constrained()
    pairs = [pair for pairs in constrained.forced.values() for pair in pairs]
    forced = {call: sum(pair) - call for pair in pairs for call in pair}

    def may_join(first: int, second: int) -> bool:
        return forced.get(second, first) == first and not constrained.forbids({first}, {second})

    scatters = ScatterKernels(candidates.block, Symbols(candidates.block))
    found = list(scatters.find(candidates.steps, candidates.is_free, may_join, candidates.rounding, lone))
    theirs = {op for scatter in found for op in scatters.left(scatter)}
    return found, frozenset(n for n, op in enumerate(candidates.steps) if op in theirs)


def find_scans(candidates: Candidates) -> list[Scan]:
    """Find the scans along the last dim that become kernels."""
    if KINDS.keys().isdisjoint(candidates.targets):
        return []
    constrained = candidates.constrained()

    def may_join(first: int, second: int) -> bool:
        return not constrained.forbids({first}, {second})

    found = ScanKernels(Symbols(candidates.block)).find(candidates.steps, candidates.is_free, may_join)
    return list(found)
