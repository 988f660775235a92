"""Alias analysis: values that may share memory, which must not be overwritten or freed too early."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch_mlir import ir

from shardc.backends.torch.step import Step
from shardc.dialects.aten.python_numbers import is_python_number
from shardc.dialects.aten.schema import overload
from shardc.runtime.first_run import may_share


@dataclass(slots=True, eq=False)
class Group:
    """Values that may share memory.

    ``foreign``: code outside the block may share it, too. ``stored``: it is now a state tensor's memory.
    """

    members: list[ir.Value]
    foreign: bool = False
    stored: bool = False


class Aliases:
    """Alias groups of one block's values. ``foreign``: values whose memory has other owners."""

    def __init__(self, foreign: Iterable[ir.Value]) -> None:
        self._groups: dict[ir.Value, Group] = {}
        self.foreign = list(foreign)
        for value in self.foreign:
            self.group(value).foreign = True

    def group(self, value: ir.Value) -> Group:
        """Return the group of values that may share memory with ``value``, itself included."""
        if value not in self._groups:
            self._groups[value] = Group([value])
        return self._groups[value]

    def add(self, step: Step, reused: bool = False, alone: bool = False) -> None:
        """Record what a step's results share. ``reused``: the operand; ``alone``: one rank's collective."""
        if reused or alone or shares(step):
            for value in (*step.operands, *step.results):
                self.join(step.results[0], value)

    def join(self, value: ir.Value, other: ir.Value) -> None:
        """Record that two values share memory."""
        ours, theirs = self.group(value), self.group(other)
        if ours is theirs:
            return
        if len(ours.members) < len(theirs.members):
            ours, theirs = theirs, ours
        ours.members.extend(theirs.members)
        ours.foreign |= theirs.foreign
        ours.stored |= theirs.stored
        for member in theirs.members:
            self._groups[member] = ours


def shares(step: Step) -> bool:
    """Return True if a step's results may share memory with its operands."""
    if step.call is not None:
        return not is_python_number(step.call.spec.target) and may_share(overload(step.call.spec.target))
    return step.name in ("dist.slice", "dist.partial", "dist.broadcast")
