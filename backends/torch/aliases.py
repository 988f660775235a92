"""Which values may share memory, so that nothing that is still needed is overwritten or kept alive unseen."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch_mlir import ir

from shardc.backends.torch.schedule import Step
from shardc.dialects.aten.schema import overload

_UNDECLARED = frozenset(("aten._unsafe_view", "aten._reshape_alias"))
"""Ops whose results may be their operand although their schemas do not say so."""


@cache
def makes_alias(target: str) -> bool:
    """Whether an operator's results may share memory with its operands."""
    op: Any = overload(target)
    if target in _UNDECLARED or any(r.alias_info is not None for r in op._schema.returns):
        return True
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return op.has_kernel_for_dispatch_key(composite)


class Aliases:
    """Groups of values that may share memory. ``foreign`` values, and all that share with them, are somebody else's."""

    def __init__(self, foreign: Iterable[ir.Value]) -> None:
        self._group: dict[ir.Value, list[ir.Value]] = {}
        self._foreign: set[int] = set()
        for value in foreign:
            self._foreign.add(id(self._of(value)))

    def add(self, step: Step, reused: bool = False, alone: bool = False) -> None:
        """Note what a step's results share. ``reused``: its result takes the operand's place; ``alone``: a group of one."""
        if reused or alone or _shares(step):
            for value in (*step.operands, *step.results):
                self._join(step.results[0], value)

    def members(self, value: ir.Value) -> list[ir.Value]:
        """All that may share memory with ``value``, itself included."""
        return self._of(value)

    def is_foreign(self, value: ir.Value) -> bool:
        return id(self._of(value)) in self._foreign

    def disown(self, value: ir.Value) -> None:
        """``value`` may share memory with something outside."""
        self._foreign.add(id(self._of(value)))

    def _of(self, value: ir.Value) -> list[ir.Value]:
        found = self._group.get(value)
        if found is None:
            found = self._group[value] = [value]
        return found

    def _join(self, value: ir.Value, other: ir.Value) -> None:
        ours, theirs = self._of(value), self._of(other)
        if ours is theirs:
            return
        if len(ours) < len(theirs):
            ours, theirs = theirs, ours
        ours.extend(theirs)
        for member in theirs:
            self._group[member] = ours
        if id(theirs) in self._foreign:
            self._foreign.add(id(ours))


def _shares(step: Step) -> bool:
    if step.call is not None:
        return makes_alias(step.call.spec.target)
    return step.name in ("dist.slice", "dist.partial")
