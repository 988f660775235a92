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

from shardc.dialects.aten.call import target_name
from shardc.dialects.dist.collectives.names import COLLECTIVES
from shardc.passes.manager.attributes import drop_attributes
from shardc.passes.pipeline.ranks.copy_ops import Copier
from shardc.passes.pipeline.stages.places import Assignment
from shardc.passes.pipeline.stages.step_program import StepProgram, body_ops, reads

PHASE = "recompute"
"""``dist.phase`` of the clones."""

_MATMULS = ("aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm", "aten.convolution")
_ATTENTION = ("shardc.attention", "aten._scaled_dot_product_flash_attention_for_cpu")


def recompute(program: StepProgram, found: Assignment, policies: Sequence[str]) -> None:
    """Make backward ops of each stage read clones, by ``policies``, one a stage. ``found`` gets these too."""
    if all(policy == "none" for policy in policies):
        return
    data = of_micro_batch(program)
    stages = [_Stage(number, policy, found, data) for number, policy in enumerate(policies)]
    ops: list[ir.Operation] = []
    for op in found.ops:
        place = found.place.get(op.results[0])
        if place is not None and place[1] != "F" and policies[place[0]] != "none":
            ops += stages[place[0]].read_clones(op)
        ops.append(op)
    found.ops = ops


class _Stage:
    """The clones of one stage."""

    def __init__(self, number: int, policy: str, found: Assignment, of_micro_batch: set[ir.Value]) -> None:
        self._number, self._policy, self._found, self._data = number, policy, found, of_micro_batch
        self._made: dict[ir.Value, ir.Value] = {}
        """What a backward op may read -> what it reads."""

    def read_clones(self, op: ir.Operation) -> list[ir.Operation]:
        """Change what ``op`` reads. Return the clones that are new, in order."""
        cloned: list[ir.Operation] = []
        copier = Copier(ir.InsertionPoint(op), {})
        copier.values = self._made
        for value in reads(op):
            self._make(value, copier, cloned)
        for number, value in enumerate(op.operands):
            op.operands[number] = copier.operand(value)
        return cloned

    def _make(self, value: ir.Value, copier: Copier, cloned: list[ir.Operation]) -> None:
        todo = [value]
        while todo:
            value = todo[-1]
            if value in self._made:
                todo.pop()
            elif not is_cloned(self._found, value, self._number, self._policy, self._data):
                self._made[value] = value
            else:
                op = value.owner.operation
                missing = [read for read in reads(op) if read not in self._made]
                todo += missing
                if not missing:
                    cloned.append(self._clone(op, copier))

    def _clone(self, op: ir.Operation, copier: Copier) -> ir.Operation:
        made = copier.copy(op)
        drop_attributes(made, "dist.name")
        made.attributes["dist.phase"] = ir.StringAttr.get(PHASE, op.context)
        self._found.place[made.results[0]] = (self._number, "I")
        return made


def is_cloned(
    found: Assignment, value: ir.Value, stage: int, policy: str, of_micro_batch: set[ir.Value]
) -> bool:
    """Whether the backward of ``stage`` makes a value again that it needs."""
    if found.place_of(value) != (stage, "F"):
        return False
    return policy == "full" or value not in of_micro_batch or not is_kept(value.owner.operation)


def is_kept(op: ir.Operation) -> bool:
    """Whether a selective stage keeps what an op makes of a micro-batch."""
    is_torch = op.name.startswith("torch.")
    return op.name in COLLECTIVES or (is_torch and target_name(op) in (*_MATMULS, *_ATTENTION))


def of_micro_batch(program: StepProgram) -> set[ir.Value]:
    """The values that are not the same for all micro-batches."""
    found: set[ir.Value] = set(program.carried)
    for op in body_ops(program.body):
        if op.name in ("dist.slice", "dist.offset") or any(value in found for value in reads(op)):
            found.update(op.results)
    return found
