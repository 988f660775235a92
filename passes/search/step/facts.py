"""What searches read from a step's program, whatever the mesh."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from shardc.cost.schedule_form import ScheduleForm
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Program
from shardc.passes.partition.storage import TRANSPOSES, followed
from shardc.passes.search.alive import Lives
from shardc.passes.search.calls.longest_part import longest_part
from shardc.passes.search.calls.repeats import repeats
from shardc.passes.search.calls.stage_work import forward_work
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
    the uses of each value. ``stored``: values that are parameters, or computed from one alone, with the
    dim that is the first in memory (None: no dim). ``replaced``: for each result, the state that it replaces.
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
    stored: Mapping[int, int | None]
    replaced: Sequence[int | None]
    _longest: dict[int, float] = field(default_factory=dict, repr=False)
    """The part of the forward's work on its longest path, by the number of stages."""

    @staticmethod
    def of(program: Program, more: More = ()) -> StepFacts:
        """Return the facts of a program that lacks ``more`` equal layers. Raises NotFolded."""
        roles = [role for role, _ in program.argument_keys()]
        given = zip(program.arguments, roles, strict=True)
        weights, layers = weight_calls(program), folded(program, more)
        return StepFacts(
            program,
            layers,
            weights,
            repeats(program),
            Passes(program),
            Lives(program, weights, layers.own(program)),
            _shapes(program),
            [phase_of(node.op) for node in program.nodes],
            roles,
            _readers(program),
            _stored(program, [value for value, role in given if role == "param"]),
            program.state_of_results(),
        )

    @cached_property
    def parameter_bytes(self) -> float:
        """Return the size of all parameters, at least 1, also those of layers that the program lacks."""
        pairs = zip(self.program.arguments, self.roles, strict=True)
        values = [value for value, role in pairs if role == "param"]
        return max(1.0, sum(self.weight(value) * self.program.types[value].size_bytes for value in values))

    @cached_property
    def forward_work(self) -> Sequence[float]:
        """Return the FLOP of each call of forward, also of equal layers that the program lacks."""
        return forward_work(self.program, self.folded)

    def on_stages(self, form: ScheduleForm, stages: int) -> ScheduleForm:
        """Return the closed form of a schedule for stages of the step, which may be towers beside each other.

        Schedules of several stages a rank keep them in a chain.
        """
        if stages == 1 or form.per_rank > 1:
            return form
        if stages not in self._longest:
            self._longest[stages] = longest_part(self.program, self.folded, stages)
        return replace(form, path=self._longest[stages])

    def read(self, form: ScheduleForm, stages: int) -> None:
        """Keep what graphs with a schedule of stages ask, as when other processes make them."""
        self.on_stages(form, stages)
        _ = self.forward_work

    def weight(self, value: int) -> float:
        """Return the number of values for which a value stands.

        Phases may fold equal layers differently. An argument stands for as many as its first readers do, so
        that those of all layers add up to their number.
        """
        call = self.program.producer[value]
        if call >= 0:
            return self.folded.weights[call]
        readers = [reader for reader, _ in self.readers.get(value, ())]
        if not readers:
            return 1.0
        first = self.phases[min(readers)]
        return min(self.folded.weights[reader] for reader in readers if self.phases[reader] == first)


def _stored(program: Program, parameters: Sequence[int]) -> Mapping[int, int | None]:
    """Return the values that are followed from parameters, with the dim that is the first in memory."""
    values = followed(program, dict.fromkeys(parameters, True))
    found: dict[int, int | None] = dict.fromkeys(parameters, 0)
    for node in program.nodes:
        if node.results[:1] and node.results[0] in values:
            source, made = node.operands[0], node.results[0]
            is_same = program.types[source].shape == program.types[made].shape
            first = found[source]
            if node.spec.target == "aten.t":
                found[made] = None if first is None else len(program.types[made].shape) - 1 - first
            else:
                found[made] = first if is_same and node.spec.target not in TRANSPOSES else None
    return found


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
