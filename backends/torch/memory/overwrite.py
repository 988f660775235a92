"""Rules for overwriting a kernel's operand with a result.

Allowed are memory that the program owns and does not read again, and the memory of an argument whose new
value is the result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch_mlir import ir

from shardc.backends.torch.memory.aliases import Aliases
from shardc.backends.torch.memory.schedule import Schedule
from shardc.backends.torch.step import Step


class Overwrites:
    """Rules for one block. ``whole``: aliases of all its steps.

    ``writes``: new value -> the argument that finally gets it. ``returned``: values that are returned.
    """

    def __init__(
        self,
        schedule: Schedule,
        whole: Aliases,
        writes: Mapping[ir.Value, ir.Value],
        returned: Collection[ir.Value],
    ) -> None:
        self._schedule, self._whole, self._writes = schedule, whole, writes
        self._returned = set(returned)
        self._read_until: dict[ir.Value, int] = {}
        for step in schedule.steps:
            if step.starts:  # a collective reads its operands until the wait
                for value in step.operands:
                    until = max(self._read_until.get(value, 0), schedule.first[step.results[0]])
                    self._read_until[value] = until

    def allows(self, step: Step, result: ir.Value, operand: ir.Value, position: int) -> bool:
        """Return True if the step at ``position`` may write ``result`` to the memory of ``operand``."""
        group = self._whole.group(operand)
        members = set(group.members)
        if sum(step.reads[value] for value in members) > 1:
            return False
        if any(max(self._schedule.last.get(v, -1), self._read_until.get(v, -1)) > position for v in members):
            return False
        if not group.foreign:
            return members.isdisjoint(self._writes) and not group.stored
        made = self._whole.group(result).members
        return result in self._writes and self._writes[result] == operand and self._returned.isdisjoint(made)
