"""Clones of forward ops before the backward ops that read their results."""

from __future__ import annotations

from collections.abc import Callable

from torch_mlir import ir

from shardc.passes.manager.attributes import drop_attributes
from shardc.passes.manager.copy_ops import Copier, reads
from shardc.passes.recompute.policies import PHASE


class Clones:
    """Clones the op of each value for which ``is_made_again`` holds once, before its first reader.

    Operands of clones are cloned, too, if ``is_made_again`` holds for them. ``note`` is called with each
    clone, in order.
    """

    def __init__(
        self,
        is_made_again: Callable[[ir.Value], bool],
        note: Callable[[ir.Operation], None] = lambda clone: None,
    ) -> None:
        self._is_made_again, self._note = is_made_again, note
        self._made: dict[ir.Value, ir.Value] = {}
        """Original value -> the value that backward ops read instead."""

    def read_clones(self, op: ir.Operation) -> list[ir.Operation]:
        """Redirect the operands of ``op`` to clones. Return the new clones, in order."""
        cloned: list[ir.Operation] = []
        copier = Copier(ir.InsertionPoint(op), {})
        copier.values = self._made
        for value in reads(op):
            self._make(value, copier, cloned)
        if any(self._made[value] != value for value in reads(op)):
            for number, value in enumerate(op.operands):
                op.operands[number] = copier.operand(value)
        return cloned

    def _make(self, value: ir.Value, copier: Copier, cloned: list[ir.Operation]) -> None:
        todo = [value]
        while todo:
            value = todo[-1]
            if value in self._made:
                todo.pop()
            elif not self._is_made_again(value):
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
        self._note(made)
        return made
