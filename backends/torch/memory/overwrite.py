"""Which operands of kernels may be overwritten with a result: memory that is the program's own and that
nobody reads again, and that of an argument whose new value the result is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch_mlir import ir

from shardc.backends.torch.memory.aliases import Aliases
from shardc.backends.torch.memory.schedule import Schedule
from shardc.backends.torch.step import Step


class Overwrites:
    """The rules for one block. ``whole`` holds the aliases of all its steps.

    ``writes``: new value -> the argument that takes it in the end; ``returned``: what callers are given.
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
            if step.starts:  # it reads its operands until it is waited for
                for value in step.operands:
                    until = max(self._read_until.get(value, 0), schedule.first[step.results[0]])
                    self._read_until[value] = until

    def allows(self, step: Step, result: ir.Value, operand: ir.Value, position: int) -> bool:
        """Whether the step at ``position`` may make ``result`` in the memory of ``operand``."""
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
