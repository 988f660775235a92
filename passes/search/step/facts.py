"""What searches read from a step's program, whatever the mesh."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Program
from shardc.passes.partition.storage import followed
from shardc.passes.search.alive import Lives
from shardc.passes.search.calls.repeats import repeats
from shardc.passes.search.calls.weight_calls import weight_calls
from shardc.passes.search.fold import Folded, More, folded
from shardc.passes.search.ways import Shapes
from shardc.passes.search.work import Passes

Use = tuple[int, int]
"""A use of a value: (call, operand position)."""


@dataclass(frozen=True)
class StepFacts:
    """A step's program, and what follows from it alone.

    ``weights``: calls that only gradients of weights need. ``repeats``: recomputed call -> the call of
    forward that it repeats. ``shapes``, ``phases``: of each call. ``roles``: of each argument. ``readers``:
    the uses of each value. ``stored``: values that are parameters, or views of them. ``replaced``: for each
    result, the state that it replaces.
    """

    program: Program
    folded: Folded
    weights: frozenset[int]
    repeats: Mapping[int, int]
    passes: Passes
    lives: Lives
    shapes: Sequence[Shapes]
    phases: Sequence[str]
    roles: Sequence[str]
    readers: Mapping[int, Sequence[Use]]
    stored: Mapping[int, bool]
    replaced: Sequence[int | None]

    @staticmethod
    def of(program: Program, more: More = ()) -> StepFacts:
        """Return the facts of a program that lacks ``more`` equal layers. Raises NotFolded."""
        roles = [role for role, _ in program.argument_keys()]
        given = zip(program.arguments, roles, strict=True)
        weights = weight_calls(program)
        return StepFacts(
            program,
            folded(program, more),
            weights,
            repeats(program),
            Passes(program),
            Lives(program, weights),
            _shapes(program),
            [phase_of(node.op) for node in program.nodes],
            roles,
            _readers(program),
            followed(program, {value: True for value, role in given if role == "param"}),
            program.state_of_results(),
        )

    def weight(self, value: int) -> float:
        """Return the number of values for which a value stands."""
        call = self.program.producer[value]
        if call >= 0:
            return self.folded.weights[call]
        return min((self.folded.weights[reader] for reader, _ in self.readers.get(value, ())), default=1.0)


def _shapes(program: Program) -> list[Shapes]:
    types = program.types
    return [
        Shapes(*(tuple(types[v].shape for v in values) for values in (node.operands, node.results)))
        for node in program.nodes
    ]


def _readers(program: Program) -> Mapping[int, Sequence[Use]]:
    """Return the calls that read each value, with the operand's position."""
    found: dict[int, list[Use]] = defaultdict(list)
    for number, call in enumerate(program.nodes):
        for place, value in enumerate(call.operands):
            found[value].append((number, place))
    return found
