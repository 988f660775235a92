"""Optimizers of stages that update their weights while micro-batches are in flight.

See :class:`~shardc.dialects.pipe.schedule.Updates`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.diagnostics.passes.pipeline import OneUpdateForAll
from shardc.dialects.location import source_line
from shardc.dialects.pipe.action import OPTIMIZER
from shardc.dialects.pipe.stage import stage
from shardc.dialects.pipe.yield_op import yield_values
from shardc.passes.manager.copy_ops import Copier, reads
from shardc.passes.pipeline.stages.places import Fold
from shardc.passes.pipeline.stages.stage_bodies import StageBody
from shardc.passes.pipeline.stages.step_program import StepProgram, made_from, tensor
from shardc.runtime.check import STATE_ROLES

Key = tuple[str, str]


@dataclass
class StageUpdate:
    """The optimizer of the stage ``index``: ``ops`` compute ``new`` from ``state`` and sums, value for value.

    ``state`` are arguments of the step: the stage's ``own``, and shared counts of updates, of which each
    stage keeps a copy. ``sums`` are numbers of sums over micro-batches, and ``given`` values of the step that
    every update reads. ``derived`` are values that forward and backward read, and that ``remake`` computes
    from the new state.
    """

    index: int
    own: list[ir.Value] = field(default_factory=list)
    state: list[ir.Value] = field(default_factory=list)
    new: list[ir.Value] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)
    given: list[ir.Value] = field(default_factory=list)
    derived: list[ir.Value] = field(default_factory=list)
    ops: list[ir.Operation] = field(default_factory=list)
    remake: list[ir.Operation] = field(default_factory=list)

    @property
    def versioned(self) -> list[ir.Value]:
        """The values that differ between versions of the stage's weights."""
        return [*self.state, *self.derived]


def varying(program: StepProgram, returned: Sequence[tuple[ir.Value, Key]]) -> set[ir.Value]:
    """Return the values around the loop that an update changes: replaced state, sums, and values derived from
    them.
    """
    found = {*_replaced(program, returned), *program.values.carried}
    for op in program.outside:
        if any(v in found for v in reads(op)):
            found.update(op.results)
    return found


def _replaced(program: StepProgram, returned: Sequence[tuple[ir.Value, Key]]) -> dict[ir.Value, ir.Value]:
    """Map each state argument to its new value."""
    arguments = {key: value for value, key in program.keys.items() if key[0] in STATE_ROLES}
    pairs = {arguments[key]: value for value, key in returned if key in arguments}
    return {old: new for old, new in pairs.items() if old != new}


class UpdateFinder:
    """Search for the optimizers of a step. ``returned`` are its results with role and name."""

    def __init__(
        self,
        program: StepProgram,
        bodies: Collection[StageBody],
        folds: Sequence[Fold],
        returned: Sequence[tuple[ir.Value, Key]],
    ) -> None:
        self._program, self._bodies, self._returned = program, bodies, returned
        self._varying = varying(program, returned)
        self._order = {op.results[0]: i for i, op in enumerate(program.outside) if len(op.results)}
        self._number = {value: i for i, value in enumerate(program.values.carried)}
        self._stages: dict[ir.Value, set[int]] = {}
        """Leaf (a state argument or a sum) -> the stages that read it or have terms of it."""
        for value, number in self._number.items():
            self._stages[value] = {fold.place[0] for fold in folds if fold.number == number}
        for body in bodies:
            for value in map(program.captures.__getitem__, body.captures):
                for leaf in self._closure([value])[1] if value in self._varying else ():
                    self._stages.setdefault(leaf, set()).add(body.index)

    def find(self) -> dict[int, StageUpdate]:
        """Return the optimizer of each stage.

        Raises OneUpdateForAll if a stage's new state depends on another stage's state or gradients.
        """
        updates = {index: StageUpdate(index) for index in sorted({body.index for body in self._bodies})}
        owner: dict[ir.Value, int] = {}
        replaced = _replaced(self._program, self._returned)
        made_of = {old: self._closure([new])[1] for old, new in replaced.items()}
        for old, leaves in made_of.items():
            owner[old] = index = self._stage_of(old, replaced[old], leaves)
            update, counts = updates[index], [v for v in leaves if made_of.get(v) == [v]]
            update.own.append(old)
            update.state = list(dict.fromkeys([*update.state, old, *counts]))
        for update in updates.values():
            update.new = [replaced[old] for old in update.state]
        for update in updates.values():
            self._fill(update, owner)
        self._refuse_others(updates.values())
        return updates

    def _stage_of(self, old: ir.Value, new: ir.Value, leaves: list[ir.Value]) -> int:
        stages = set[int]().union(*(self._stages.get(leaf, ()) for leaf in [old, *leaves]))
        if len(stages) > 1:
            raise self._refusal(old, new, sorted(stages))
        return min(stages, default=0)

    def _refusal(self, old: ir.Value, new: ir.Value, stages: list[int]) -> OneUpdateForAll:
        """Return the error; it names the first op that combines stages, or a value that several stages
        read.
        """
        _, name = self._program.keys[old]
        seen: dict[ir.Value, set[int]] = {}
        for op in self._closure([new])[0]:
            known = [seen.get(v, self._stages.get(v, set[int]())) for v in reads(op)]
            together = set[int]().union(*known)
            if len(together) > 1 and all(len(s) < 2 for s in known):
                cause, where = f"{op.name} reads values of all of them", source_line(op.location)
                return OneUpdateForAll(name=name, stages=_listed(stages), cause=cause, where=where)
            seen.update((result, together) for result in op.results)
        inside, roots = (o.operation for o in self._program.body.operations), self._program.roots
        reader = next((op for op in inside if any(name in roots.get(v, ()) for v in reads(op))), None)
        where = None if reader is None else source_line(reader.location)
        return OneUpdateForAll(name=name, stages=_listed(stages), cause="all of them read it", where=where)

    def _fill(self, update: StageUpdate, owner: Mapping[ir.Value, int]) -> None:
        inside = [v for body in self._bodies if body.index == update.index for v in body.captures]
        captures = dict.fromkeys(map(self._program.captures.__getitem__, inside))
        update.derived = [v for v in captures if v in self._varying and v not in owner]
        update.ops, leaves = self._closure(update.new)
        update.remake, of_weights = self._closure(update.derived)
        update.sums = [self._number[v] for v in leaves if v in self._number]
        read = [*(v for op in [*update.ops, *update.remake] for v in reads(op)), *update.new]
        given = (part for v in read if v not in self._varying for part in _tensors(v))
        update.given = list(dict.fromkeys(given))
        for leaf in (*leaves, *of_weights):
            if leaf not in update.state and owner.get(leaf, update.index) != update.index:
                name, stages = self._program.keys[leaf][1], _listed(sorted((owner[leaf], update.index)))
                raise OneUpdateForAll(name=name, stages=stages, cause="both read it")

    def _refuse_others(self, updates: Iterable[StageUpdate]) -> None:
        """Reject results, other than state, that depend on weights or gradients, because their version is
        undefined.
        """
        of_groups = {number for update in updates for number in update.sums}
        replaced = _replaced(self._program, self._returned)
        for value, (role, name) in self._returned:
            if value in replaced.values():
                continue
            for leaf in self._closure([value])[1]:
                if leaf in replaced or self._number.get(leaf) in of_groups:
                    cause = "the step returns a value that depends on weights or gradients"
                    stages = _listed(sorted(self._stages.get(leaf, ())) or [0])
                    raise OneUpdateForAll(name=f"{role} {name}", stages=stages, cause=cause)

    def _closure(self, values: Iterable[ir.Value]) -> tuple[list[ir.Operation], list[ir.Value]]:
        """Return the varying ops behind ``values``, in order, and the arguments and sums that they start
        from.
        """
        is_made = lambda v: isinstance(v, ir.OpResult) and v not in self._number  # noqa: E731
        made = made_from(values, lambda v: v in self._varying and is_made(v))
        found = [v for v in made if v in self._varying]
        ops = {v.owner.results[0]: v.owner.operation for v in found if is_made(v)}
        ordered = [ops[first] for first in sorted(ops, key=self._order.__getitem__)]
        return ordered, [v for v in found if not is_made(v)]


def _tensors(value: ir.Value) -> list[ir.Value]:
    """Return a tensor, or the tensors in a list; integers are computed where they are read."""
    if tensor(value) is not None:
        return [value]
    if isinstance(value.owner, ir.Block):
        return []
    return [part for v in reads(value.owner.operation) for part in _tensors(v)]


def _listed(stages: Sequence[int]) -> str:
    return f"{', '.join(map(str, stages[:-1]))} and {stages[-1]}" if len(stages) > 1 else str(*stages)


def write_update(program: StepProgram, update: StageUpdate, ip: ir.InsertionPoint) -> None:
    """Insert the ``pipe.stage`` of an optimizer at ``ip`` in the module.

    It reads state, sums and given values; it yields the new state, then the derived values.
    """
    loc = update.ops[0].location if update.ops else program.loop.location
    sums = [program.values.carried[number] for number in update.sums]
    arguments = [*update.state, *sums, *update.given]
    block = stage(update.index, OPTIMIZER, [v.type for v in arguments], loc=loc, ip=ip)
    end = ir.InsertionPoint(block)
    copier = Copier(end, zip(arguments, block.arguments, strict=True))
    for op in update.ops:
        copier.copy(op)
    new = [copier.operand(v) for v in update.new]
    known = {v: copier.values[v] for v in update.given}
    remaker = Copier(end, {**known, **dict(zip(update.state, new, strict=True))})
    for op in update.remake:
        remaker.copy(op)
    yield_values([*new, *(remaker.values[v] for v in update.derived)], loc=loc, ip=end)
