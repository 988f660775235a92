"""Values that backward computes again, as clones of forward ops do (``torch-recompute``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from torch_mlir import ir

from shardc.passes.manager.attributes import phase_of
from shardc.passes.recompute.policies import PHASE

NOTES = frozenset(("dist.apart", "dist.module", "dist.name", "dist.phase"))
"""Attributes in which an op and its clone may differ."""


def originals(ops: Sequence[ir.Operation], captures: Mapping[ir.Value, ir.Value]) -> dict[ir.Value, ir.Value]:
    """Map each value that is computed again to the first equal one. Empty if there are no clones.

    ``ops`` are those of a loop's body, in order, and ``captures`` maps the body's arguments to values
    outside. Values are equal if equal ops compute them from equal values.
    """
    if not any(phase_of(op) == PHASE for op in ops):
        return {}
    numbers, first = _Numbers(captures), dict[int, ir.Value]()
    values = [value for op in ops for value in op.results]
    found = {value: first.setdefault(numbers.of(value), value) for value in values}
    return {value: original for value, original in found.items() if value != original}


class _Numbers:
    """Numbers of values, equal for equal values."""

    def __init__(self, captures: Mapping[ir.Value, ir.Value]) -> None:
        self._captures = captures
        self._known: dict[ir.Value, int] = {}
        self._found: dict[Hashable, int] = {}

    def of(self, value: ir.Value) -> int:
        """Return the number of a value."""
        todo = [value]
        while todo:
            value = todo[-1]
            missing = [read for read in self._operands(value) if read not in self._known]
            todo += missing
            if not missing:
                self._known[value] = self._found.setdefault(self._key(value), len(self._found))
                todo.pop()
        return self._known[value]

    def _operands(self, value: ir.Value) -> Iterable[ir.Value]:
        if isinstance(value, ir.OpResult):
            return value.owner.operands
        return [self._captures[value]] if value in self._captures else []

    def _key(self, value: ir.Value) -> Hashable:
        if value in self._captures:
            return self._known[self._captures[value]]
        if not isinstance(value, ir.OpResult) or any(value.owner.operation.regions):
            return value
        op = value.owner.operation
        attributes = frozenset((name, op.attributes[name]) for name in op.attributes if name not in NOTES)
        read = tuple(self._known[operand] for operand in op.operands)
        return op.name, attributes, read, str(value.type), value.result_number
