"""Which values may share memory, so that nothing that is still needed is overwritten or kept alive unseen."""

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

    ``foreign``: somebody outside may share it, too. ``stored``: it has become a state tensor's memory.
    """

    members: list[ir.Value]
    foreign: bool = False
    stored: bool = False


class Aliases:
    """The groups of one block's values. ``foreign`` ones, and what shares with them, have other owners."""

    def __init__(self, foreign: Iterable[ir.Value]) -> None:
        self._groups: dict[ir.Value, Group] = {}
        self.foreign = list(foreign)
        for value in self.foreign:
            self.group(value).foreign = True

    def group(self, value: ir.Value) -> Group:
        """All that may share memory with ``value``, itself included."""
        if value not in self._groups:
            self._groups[value] = Group([value])
        return self._groups[value]

    def add(self, step: Step, reused: bool = False, alone: bool = False) -> None:
        """Note what a step's results share. ``reused``: the operand's memory; ``alone``: a group of one."""
        if reused or alone or shares(step):
            for value in (*step.operands, *step.results):
                self.join(step.results[0], value)

    def join(self, value: ir.Value, other: ir.Value) -> None:
        """Note that two values share memory."""
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
    """Whether its results may share memory with its operands."""
    if step.call is not None:
        return not is_python_number(step.call.spec.target) and may_share(overload(step.call.spec.target))
    return step.name in ("dist.slice", "dist.partial", "dist.broadcast")
