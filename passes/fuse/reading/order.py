"""Order of the ops and kernels of a fused block: moving and erasing ops."""

from __future__ import annotations

import graphlib
import itertools
from collections.abc import Collection

from torch_mlir import ir

from shardc.dialects.aten.call import is_constant
from shardc.passes.fuse.reading.unit import Unit
from shardc.passes.fuse.reading.values import LIST, is_read, owner_of


def ordered(units: list[Unit], sources: dict[Unit, set[Unit]], early: Collection[Unit]) -> list[Unit]:
    """Return ``units`` in topological order: each at the place of its last call, or earlier if a reader is.

    Units of ``early`` are at the place of their first call, or as soon after it as their operands exist.

    Ops that stay, and could not be fused, keep their relative order.
    """
    numbers = {unit: number for number, unit in enumerate(units)}
    graph = {number: {numbers[source] for source in sources[unit]} for unit, number in numbers.items()}
    staying = [(u.step, n) for u, n in numbers.items() if u.step and not u.step.is_view]
    fixed = sorted((step.number, n) for step, n in staying if not step.nodes)
    for (_, before), (_, number) in itertools.pairwise(fixed):
        graph[number].add(before)
    order = list(graphlib.TopologicalSorter(graph).static_order())
    places = [max(min(u.calls), u.time[0]) if u in early else place(u) for u in units]
    for number in reversed(order):
        for source in graph[number]:
            places[source] = min(places[source], places[number])
    return [units[number] for number in sorted(order, key=places.__getitem__)]


def place(unit: Unit) -> int:
    """Return the place of an op, or of a kernel's last call."""
    return unit.step.number if unit.step else max(unit.calls)


def move(op: ir.Operation, terminator: ir.Operation, moved: set[ir.Operation]) -> None:
    """Move an op to the end of the block, after the lists of values that it reads.

    Lists in ``moved`` are not moved again.
    """
    for owner in map(owner_of, op.operands):
        if owner is None or owner.name != LIST or owner in moved or all(map(_is_static, owner.operands)):
            continue
        moved.add(owner)
        move(owner, terminator, moved)
    op.move_before(terminator)


def check_unread(dead: list[ir.Operation]) -> None:
    """Raise AssertionError if an op that stays reads an erased result: a bug that would end the process."""
    gone = {result for op in dead for result in op.results}
    waiting = [(op, use.owner) for op in dead for result in op.results for use in result.uses]
    while waiting:
        op, reader = waiting.pop()
        if reader.name == LIST:
            waiting += [(op, use.owner) for use in reader.results[0].uses]
        elif not len(reader.results) or reader.results[0] not in gone:
            raise AssertionError(f"fusion lost a result of {op.name} that {reader.name} reads")


def erase(op: ir.Operation) -> None:
    """Erase an op with the lists of values that only it reads; the values in them are erased next."""
    lists = {v: owner for v in op.operands if (owner := owner_of(v)) is not None and owner.name == LIST}
    op.erase()
    for value, owner in lists.items():
        if not is_read(value):
            owner.erase()


def _is_static(value: ir.Value) -> bool:
    return (owner := owner_of(value)) is not None and is_constant(owner)
