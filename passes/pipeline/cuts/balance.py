"""Positions of cuts in the forward: before modules that the user names, or for stages of equal cost."""

from __future__ import annotations

import bisect
import difflib
import itertools
from collections.abc import Callable, Container, Mapping, Sequence

from torch_mlir import ir

from shardc.cost.links import WIRE
from shardc.cost.work import work_bytes
from shardc.diagnostics.passes.pipeline import CutOrder, TooManyStages, UnknownCut
from shardc.dialects.aten.call import CallReader
from shardc.passes.manager.copy_ops import reads
from shardc.passes.pipeline.stages.step_program import Roots, size_bytes

CANDIDATES = 256
"""Limit of positions to consider. If there are more, only the one with the fewest bytes in each of so many
intervals.
"""
SLACK = 0.02
"""Part by which a stage may be slower than the slowest stage must be, if fewer bytes are sent then."""

Fraction = Callable[[int, int, int], float]
"""(stage, number of its start, number of its end) -> the fraction of its memory limit that the stage
takes.
"""

_Cuts = tuple[float, float, float, tuple[int, ...]]
"""Largest weight of a stage, bytes sent, most work in flight, and the numbers of the ends of stages."""


class Forward:
    """The forward ops of one micro-batch that depend on parameters, in order.

    A cut at ``p`` puts the ops before number ``p`` in one stage and the others in the next. ``crossing[p]``
    are the bytes to send there, ``work[p]`` is the work of op ``p`` and ``cost[p]`` that of the ops before
    it. ``sources[p]`` are the earlier ops that op ``p`` reads. ``speeds`` are the relative speeds of the
    stages' ranks; empty if all are equal. ``weights`` are values that each stage computes itself: only the
    first op that reads one has it as a source.
    """

    def __init__(
        self, ops: Sequence[ir.Operation], roots: dict[ir.Value, Roots], weights: Container[ir.Value] = ()
    ) -> None:
        self.ops, self.speeds = list(ops), list[float]()
        self._parameters = [frozenset().union(*(roots.get(v, frozenset()) for v in reads(op))) for op in ops]
        reader = CallReader()
        self.work = [_work_bytes(op, reader) for op in ops]
        self.cost = [0.0, *itertools.accumulate(self.work)]
        made: dict[ir.Value, int] = {result: i for i, op in enumerate(self.ops) for result in op.results}
        self.crossing = self._crossing({value: i for value, i in made.items() if value not in weights})
        self.sources: list[list[int]] = []
        read = set[ir.Value]()
        for op in self.ops:
            values = [v for v in reads(op) if v in made and not (v in weights and v in read)]
            self.sources.append(list(dict.fromkeys(made[v] for v in values)))
            read.update(values)

    def _crossing(self, made: Mapping[ir.Value, int]) -> list[int]:
        last: dict[ir.Value, int] = {}
        for i, op in enumerate(self.ops):
            last.update((v, i) for v in reads(op) if v in made)
        change = [0] * (len(self.ops) + 2)
        for value, end in last.items():
            change[made[value] + 1] += size_bytes(value)
            change[end + 1] -= size_bytes(value)
        return list(itertools.accumulate(change))

    def balanced(self, stages: int) -> list[int]:
        """Return the ``stages - 1`` cuts that send the fewest bytes, with about the fastest slowest stage.

        A stage may take :data:`SLACK` longer than the slowest one must; a message counts as a stage, since
        they overlap. Raises TooManyStages.
        """
        found = self.balanced_at(stages, ())
        assert found is not None
        return found

    def balanced_at(self, stages: int, ends_at: Sequence[int]) -> list[int] | None:
        """Return balanced cuts with one at each place of ``ends_at``; None if there are none."""
        ends = sorted({*self.ends(stages), *ends_at})
        after = [bisect.bisect_left(ends_at, end) for end in ends]
        until = [bisect.bisect_right(ends_at, end) for end in ends]

        def is_whole(place: int, i: int, j: int) -> bool:
            return until[i] == after[j]

        fastest = self.best(stages, ends, is_whole)
        if fastest is None:
            return None
        most = self.slowest(fastest) * (1 + SLACK)

        def is_fast(place: int, i: int, j: int) -> bool:
            return is_whole(place, i, j) and self.stage_cost(place, ends[i], ends[j]) <= most

        return self.best(stages, ends, is_fast, weight=lambda *_: 0.0)

    def slowest(self, cuts: Sequence[int]) -> float:
        """Return the cost of the slowest stage."""
        ends = [0, *cuts, len(self.ops)]
        return max(self.stage_cost(n, i, j) for n, (i, j) in enumerate(itertools.pairwise(ends)))

    def parameters_of(self, number: int) -> frozenset[str]:
        """Return the names of the parameters that an op reads."""
        return self._parameters[number]

    def parameter_behind(self, place: int) -> str:
        """Return the first parameter that is read after a cut."""
        found = (name for names in self._parameters[place:] for name in sorted(names))
        return next(found, f"op {place} of {len(self.ops)}")

    def ends(self, stages: int) -> list[int]:
        """Return the positions where stages may start and end. Raises TooManyStages."""
        places = self._places(stages)
        if stages - 1 > len(places):
            raise TooManyStages(stages=stages, most=len(places) + 1)
        return [0, *places, len(self.ops)]

    def stage_cost(self, stage: int, start: int, end: int) -> float:
        """Return the cost of a stage, or that of a message to or from it, if it is larger."""
        speed = self.speeds[stage] if self.speeds else 1.0
        return max((self.cost[end] - self.cost[start]) / speed, self._sent(start), self._sent(end))

    def _sent(self, place: int) -> float:
        return self.crossing[place] * WIRE if 0 < place < len(self.ops) else 0.0

    def best(
        self,
        stages: int,
        ends: Sequence[int],
        allows: Callable[[int, int, int], bool] = lambda place, i, j: True,
        weight: Fraction | None = None,
    ) -> list[int] | None:
        """Return the cuts at ``ends`` that minimise the largest ``weight`` of a stage, then the bytes sent,
        then the most work in flight.

        Stage ``s`` of ``p`` holds activations of up to p - s micro-batches, so early stages get less work
        among equally good cuts. Uses dynamic programming. ``weight`` defaults to the stage's cost. None if
        ``allows`` allows no cuts.
        """
        cost = [self.cost[end] for end in ends]
        sent = list(map(self._sent, ends))
        if weight is None:
            weight = lambda place, i, j: self.stage_cost(place, ends[i], ends[j])  # noqa: E731
        best: list[_Cuts | None] = [(0.0, 0.0, 0.0, ())] + [None] * (len(ends) - 1)
        for place in range(stages):
            following: list[_Cuts | None] = [None] * len(ends)
            flying = stages - place
            for j in range(1, len(ends)):
                options = [
                    (
                        max(b[0], weight(place, i, j)),
                        b[1] + sent[j],
                        max(b[2], flying * (cost[j] - cost[i])),
                        (*b[3], j),
                    )
                    for i, b in enumerate(best[:j])
                    if b is not None and allows(place, i, j)
                ]
                following[j] = min(options, default=None)
            best = following
        return None if best[-1] is None else [ends[j] for j in best[-1][3][:-1]]

    def _places(self, stages: int) -> list[int]:
        inside = range(1, len(self.ops))
        if len(inside) <= max(CANDIDATES, stages):
            return list(inside)
        step = self.cost[-1] / max(CANDIDATES, stages)
        parts = itertools.groupby(inside, key=lambda p: int(self.cost[p] / step))
        return [min(group, key=lambda p: self.crossing[p]) for _, group in parts]

    def named(self, names: Sequence[str]) -> list[int]:
        """Return cuts before the modules ``names``, each where the fewest bytes are sent after the previous
        module.

        Raises UnknownCut, CutOrder.
        """
        places = [self._first(name) for name in names]
        for (a, first), (b, second) in itertools.pairwise(zip(names, places, strict=True)):
            if first >= second:
                raise CutOrder(name=b, problem=f"it does not start after {a!r}, which is named before it")
        if places and self._last_before(places[0]) < 0:
            raise CutOrder(name=names[0], problem="no module with parameters runs before it")
        options = [range(self._last_before(first) + 1, first + 1) for first in places]
        return [self.fewest_sent(places) for places in options]

    def places_for(self, names: Sequence[str]) -> list[range]:
        """Return where cuts before the modules ``names`` may be: after the last parameter that no earlier op
        reads.
        """
        found = list[range]()
        for first in map(self._first, names):
            new, seen = 0, set[str]()
            for number, parameters in enumerate(self._parameters[:first]):
                new = new if parameters <= seen else number + 1
                seen |= parameters
            found.append(range(new, first + 1))
        return found

    def fewest_sent(self, places: Sequence[int]) -> int:
        """Return the place where a cut sends the fewest bytes."""
        return min(places, key=lambda p: (self.crossing[p], -p))

    def at_home(self, stages: int, homes: Mapping[str, Sequence[int]]) -> list[range]:
        """Return where ``stages - 1`` cuts may be, if ops run in the stages ``homes`` of their parameters.

        A stage is empty if none of its parameters is read. An op that reads parameters of an earlier stage
        runs in the current stage.
        """
        placed, at = list[tuple[int, int]](), 0
        for i, names in enumerate(self._parameters):
            options = [set(homes[name]) for name in names if name in homes]
            if options:
                at = min((stage for stage in set.intersection(*options) if stage >= at), default=at)
                placed.append((i, at))
        found = list[range]()
        for stage in range(1, stages):
            start = max((i for i, its_stage in placed if its_stage < stage), default=-1) + 1
            end = min((i for i, its_stage in placed if its_stage >= stage), default=len(self.ops))
            found.append(range(start, end + 1))
        return found

    def _first(self, name: str) -> int:
        """Return the first op that reads a parameter of a module. Raises UnknownCut."""
        for i, parameters in enumerate(self._parameters):
            if any(f"{parameter}.".startswith(f"{name}.") for parameter in parameters):
                return i
        known = sorted({part for found in self._parameters for p in found for part in _modules(p)})
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        raise UnknownCut(name=name, nearest=nearest[0] if nearest else "none")

    def _last_before(self, place: int) -> int:
        """Return the last op before ``place`` that reads a parameter; -1 if none does."""
        return max((i for i in range(place) if self._parameters[i]), default=-1)


def stage_of_places(cuts: Sequence[int], count: int) -> list[int]:
    """Return the stage of each of ``count`` ops."""
    return [bisect.bisect_right(cuts, i) for i in range(count)]


def _modules(parameter: str) -> list[str]:
    parts = parameter.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))] or [parameter]


def _work_bytes(op: ir.Operation, reader: CallReader) -> float:
    """Return the time of an op in bytes of memory moved; 0 for lists and integers."""
    if not op.name.startswith("torch.") or str(op.results[0].type) == "!torch.int":
        return 0.0
    return work_bytes(reader.read(op).spec)
