"""Recomputation: a stage's backward makes again what it reads of the forward, which is then not kept.

Forward ops are cloned into the backward part, in front of the first op that reads what they make, until what
they read is a stage's input, is the same for all micro-batches, or was kept. Clones are placed as backward
ops are: in I what I needs, in W the rest. What depends on no parameter (masks, parts of the batch, random
numbers, which depend on seed and place alone) is made again by whoever reads it in any case.

Chen et al. 2016 (full); Korthikanti et al. 2022 (selective; there attention runs again, ours has no scores).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

from shardc.passes.manager.copy_ops import reads
from shardc.passes.pipeline.stages.places import Assignment
from shardc.passes.pipeline.stages.step_program import StepProgram, body_ops
from shardc.passes.recompute.clones import Clones
from shardc.passes.recompute.policies import is_kept


def recompute(program: StepProgram, found: Assignment, policies: Sequence[str]) -> None:
    """Make backward ops of each stage read clones, by ``policies``, one a stage. ``found`` gets these too."""
    if all(policy == "none" for policy in policies):
        return
    data = of_micro_batch(program)
    stages = [_clones(found, number, policy, data) for number, policy in enumerate(policies)]
    ops: list[ir.Operation] = []
    for op in found.ops:
        place = found.place.get(op.results[0])
        if place is not None and place[1] != "F" and policies[place[0]] != "none":
            ops += stages[place[0]].read_clones(op)
        ops.append(op)
    found.ops = ops


def _clones(found: Assignment, stage: int, policy: str, data: set[ir.Value]) -> Clones:
    """The clones of one stage."""

    def place(clone: ir.Operation) -> None:
        found.place[clone.results[0]] = (stage, "I")

    return Clones(lambda value: is_cloned(found, value, stage, policy, data), place)


def is_cloned(
    found: Assignment, value: ir.Value, stage: int, policy: str, of_micro_batch: set[ir.Value]
) -> bool:
    """Whether the backward of ``stage`` makes a value again that it needs."""
    if found.place_of(value) != (stage, "F"):
        return False
    return policy == "full" or value not in of_micro_batch or not is_kept(value.owner.operation)


def of_micro_batch(program: StepProgram) -> set[ir.Value]:
    """The values that are not the same for all micro-batches."""
    found: set[ir.Value] = set(program.carried)
    for op in body_ops(program.body):
        if op.name in ("dist.slice", "dist.offset") or any(value in found for value in reads(op)):
            found.update(op.results)
    return found
