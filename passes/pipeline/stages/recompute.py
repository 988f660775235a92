"""Recomputation in stages: a stage's backward recomputes forward values instead of keeping them.

Forward ops are cloned into the backward, before the first op that reads their results. Cloning stops at a
stage's inputs, at values that are the same for all micro-batches, and at kept values. Clones are placed like
backward ops: those that I needs in I, the others in W. Values that depend on no parameter (masks, parts of
the batch, random numbers, which depend only on seed and position) are always recomputed by their readers.

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
    """Let backward ops read clones, by ``policies``, one for each stage. The clones are added to
    ``found``.
    """
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
    """Return the cloner of one stage."""

    def place(clone: ir.Operation) -> None:
        found.place[clone.results[0]] = (stage, "I")

    return Clones(lambda value: is_cloned(found, value, stage, policy, data), place)


def is_cloned(
    found: Assignment, value: ir.Value, stage: int, policy: str, of_micro_batch: set[ir.Value]
) -> bool:
    """Return whether the backward of ``stage`` recomputes a value that it needs."""
    if found.place_of(value) != (stage, "F"):
        return False
    return policy == "full" or value not in of_micro_batch or not is_kept(value.owner.operation)


def of_micro_batch(program: StepProgram) -> set[ir.Value]:
    """Return the values that differ between micro-batches."""
    found: set[ir.Value] = set(program.carried)
    for op in body_ops(program.body):
        if op.name in ("dist.slice", "dist.offset") or any(value in found for value in reads(op)):
            found.update(op.results)
    return found
