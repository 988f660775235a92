"""Values that stages send are kept, also within modules that backward recomputes.

Backward of a recomputed module reads clones of its forward ops. If a stage begins within the module, its
clones would read those of the stage before. They read instead what that stage has sent forward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch_mlir import ir

from shardc.passes.manager.copy_ops import reads
from shardc.passes.pipeline.cuts.balance import Forward, stage_of_places
from shardc.passes.pipeline.stages.step_program import StepProgram

Change = tuple[ir.Operation, int, ir.Value]
"""An op, the number of an operand, and the value that the operand was before."""


def keep_sent(program: StepProgram, forward: Forward, cuts: Sequence[int]) -> list[Change]:
    """Let readers of recomputed values read the forward's values that it sends to another stage.

    ``cuts`` are the numbers of the ops of ``forward`` at which stages begin. Return what changed, for
    :func:`undo`.
    """
    sent = set(_sent(forward, cuts)).difference(program.weights)  # which each stage computes
    changes: list[Change] = []
    for value, original in program.originals.items():
        if original in sent:
            changes += [(use.owner.operation, use.operand_number, value) for use in value.uses]
    for reader, number, value in changes:
        reader.operands[number] = program.originals[value]
    return changes


def undo(changes: Sequence[Change]) -> None:
    """Let readers read what they read before :func:`keep_sent`."""
    for reader, number, value in changes:
        reader.operands[number] = value


def _sent(forward: Forward, cuts: Sequence[int]) -> Iterator[ir.Value]:
    """Yield the results of forward ops that ops of other stages read."""
    stages = stage_of_places(cuts, len(forward.ops))
    made = {op.results[0]: stage for op, stage in zip(forward.ops, stages, strict=True)}
    for op, stage in zip(forward.ops, stages, strict=True):
        for value in reads(op):
            if isinstance(value, ir.OpResult) and made.get(value.owner.results[0], stage) != stage:
                yield value
