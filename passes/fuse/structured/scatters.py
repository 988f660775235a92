"""The sums at computed indices of a block: which become kernels."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.aten.call import target_name
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.reading.graph import Step
from shardc.passes.fuse.reading.read import steps_of
from shardc.passes.fuse.reading.symbols import Symbols
from shardc.passes.fuse.structured.scatter import SCATTERS, Scatter, ScatterKernels
from shardc.passes.ingest.torch_share import unread


def find_scatters(
    number: int,
    block: ir.Block,
    exclude: frozenset[ir.Value],
    without: frozenset[int],
    constraints: FusionConstraints,
    rounding: str,
    lone: bool,
) -> tuple[list[Scatter], frozenset[int]]:
    """The sums at computed indices of block ``number`` that become kernels, and the calls they take."""
    steps = steps_of(block)
    if not any(op.name.startswith("torch.") and target_name(op) in SCATTERS for op in steps):
        return [], frozenset()
    constrained = constraints.in_block(
        number, [Step(n, op, target_name(op), [], []) for n, op in enumerate(steps)]
    )
    forced = {
        call: sum(pair) - call for pairs in constrained.forced.values() for pair in pairs for call in pair
    }
    scatters, excluded = ScatterKernels(block, Symbols(block)), exclude | unread(block)

    def is_free(step: int) -> bool:
        return step not in without and excluded.isdisjoint(steps[step].results)

    def may_join(first: int, second: int) -> bool:
        return forced.get(second, first) == first and not constrained.forbids({first}, {second})

    found = list(scatters.find(steps, is_free, may_join, rounding, lone))
    theirs = {op for scatter in found for op in scatters.left(scatter)}
    return found, frozenset(n for n, op in enumerate(steps) if op in theirs)
