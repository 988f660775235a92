"""A step as a graph of choices.

A node is a call, with the ways to split it; an argument, with its layouts; or a copy of a value that several
calls read, so that they share its reshard. An edge has the seconds of the collectives between the layout that
one node makes and the layout that another needs. Corresponding calls of equal layers are one node, whose
costs are their sum.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from shardc.cost.collective import BUCKET_BYTES
from shardc.cost.links import LinkModel
from shardc.cost.ops import DeviceRates
from shardc.cost.schedule_form import ScheduleForm
from shardc.passes.search.alive import Alive
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.distances import Distances
from shardc.passes.search.graph import Graph
from shardc.passes.search.layout import WHOLE, Layout
from shardc.passes.search.step.beside import Beside
from shardc.passes.search.step.change import ONCE, STATE, Change, Made, When
from shardc.passes.search.step.facts import Use
from shardc.passes.search.step.on_mesh import StepOnMesh
from shardc.passes.search.ways import Way
from shardc.passes.search.work import Work

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"


class StepGraph:
    """Graph of a step, and the meaning of its states: ways of calls, and layouts of values."""

    def __init__(self, step: StepOnMesh, links: LinkModel, rates: DeviceRates, axes: SearchAxes) -> None:
        facts = step.facts
        self._step, self._facts, self.axes, self._sizes = step, facts, axes, axes.sizes
        self.program, self.folded = facts.program, facts.folded
        self.readers, self.stored = facts.readers, facts.stored
        self.work, self._alive = Work(facts.passes, axes, rates, facts.weights), Alive(facts.lives, axes)
        bucket_bytes = min(BUCKET_BYTES, facts.parameter_bytes)
        stream_bytes_s = rates.stream_reached * rates.memory_bytes_s
        distances = Distances(axes, links, stream_bytes_s, bucket_bytes, rates.cache_bytes)
        self._distances = distances, distances.of_weights()
        self._overlaps = links.overlaps
        self.graph = Graph(self._alive.moments)
        self.changes: list[Change] = []
        """All possible changes of layout that take time."""
        self.call_node: list[int] = []
        self._beside = Beside(facts)
        self.ways = step.ways
        """Ways of each call's node, by call."""
        self.argument_node: list[int] = []
        self.layouts: list[Sequence[Layout]] = []
        """Layouts of each argument's node, by argument."""
        self.least_s: list[float] = []
        """Seconds of each call of forward and backward, split in its fastest way; 0 for other calls."""
        self._kept_bytes: dict[int, np.ndarray | float] = {}
        self.others: list[Graph] = []
        """Graphs with the times of other devices, if those of a step differ."""
        self.copies: dict[int, Made] = {}
        """Copies of values for all their readers, by value."""
        self._made: dict[int, Made] = {}
        self._nodes: dict[Hashable, int] = {}
        self._changes: dict[Hashable, Change] = {}
        self._add_arguments()
        self._add_calls()
        self._add_reads()
        self._add_returns()
        self._add_changes()

    @property
    def floor_s(self) -> float:
        """Seconds of forward and backward with each call split in its fastest way."""
        return sum(self.least_s)

    @property
    def floor_weights_s(self) -> float:
        """The part of calls that only gradients of weights need."""
        return sum(self.least_s[number] for number in self._facts.weights)

    @property
    def forward_part(self) -> float:
        """Part of :attr:`floor_s` that forward takes."""
        seconds = zip(self.least_s, self._facts.phases, strict=True)
        return sum(least for least, phase in seconds if phase == FORWARD) / (self.floor_s or 1.0)

    @property
    def kept(self) -> list[np.ndarray]:
        """For each node, the bytes [state] that a rank keeps for a micro-batch from forward to backward.

        They are a mean over ranks, and 0 unless the schedule keeps some of them on other ranks.
        """
        return [
            np.zeros(len(of)) + self._kept_bytes.get(node, 0.0) for node, of in enumerate(self.graph.costs)
        ]

    @property
    def weights(self) -> frozenset[int]:
        """Calls that only gradients of weights need."""
        return self._facts.weights

    def on_stages(self, form: ScheduleForm, stages: int) -> ScheduleForm:
        """Return the closed form of a schedule for stages of the step, as its facts do."""
        return self._facts.on_stages(form, stages)

    def least_on(self, rates: DeviceRates) -> list[float]:
        """Return :attr:`least_s` on other devices."""
        work, weights, phases = self.work.on(rates), self.folded.weights, self._facts.phases
        return [
            0.0 if phases[n] == OPTIMIZER else float(work.seconds(n, ways).min()) * weights[n]
            for n, ways in enumerate(self.ways)
        ]

    def whole_on(self, rates: DeviceRates) -> float:
        """Return the seconds of all calls of forward and backward that are not split."""
        work, weights, phases = self.work.on(rates), self.folded.weights, self._facts.phases
        calls = ((n, ways) for n, ways in enumerate(self.ways) if phases[n] != OPTIMIZER)
        return sum(float(work.seconds(n, ways)[0]) * weights[n] for n, ways in calls)

    def slowest_s(self, chosen: Sequence[int]) -> float:
        """Return the seconds of a choice of states on the slowest device."""
        return max(graph.total(chosen) for graph in (self.graph, *self.others))

    def steps(self, change: Change, pair: tuple[Layout, Layout]) -> list[tuple[int, float]]:
        """Return the cheapest chain of steps of a change: the axis number and the seconds of each."""
        distances = self._distances[change.when.is_weights]
        layouts = (*change.made.layouts, *change.needed.layouts)
        return distances.steps(change.shape, change.element_bytes, layouts, pair, change.when.major)

    def _node(self, key: Hashable, states: Sequence[Way] | Sequence[Layout]) -> int:
        """Return the node of ``key`` and ``states``, which is new or shared with equal layers.

        Equal states must be one object.
        """
        whole = key, id(states)
        if whole not in self._nodes:
            self._nodes[whole] = self.graph.add_node(len(states))
        return self._nodes[whole]

    def _add_arguments(self) -> None:
        for position, value in enumerate(self.program.arguments):
            role = self._facts.roles[position]
            layouts = self._argument_layouts(role, self.program.types[value].shape)
            read_by = tuple(sorted({self.folded.colours[node] for node, _ in self.readers.get(value, ())}))
            node = self._node(("argument", role, read_by or position), layouts)
            self.argument_node.append(node)
            self.layouts.append(layouts)
            self._make(value, Made(node, layouts, self._facts.weight(value)))

    def _argument_layouts(self, role: str, shape: tuple[int, ...]) -> tuple[Layout, ...]:
        """Return the layouts of an argument: all for state, only splits of samples for a batch."""
        layouts = self._step.layouts_of(shape)
        if role in ("param", "opt_state"):
            return layouts
        kept = (WHOLE, 0) if role == "input" and self.axes.shared is None else (WHOLE,)
        return self._step.same(tuple(layout for layout in layouts if all(dim in kept for dim in layout)))

    def _add_calls(self) -> None:
        """Add the calls. What backward recomputes is split as in forward."""
        facts, graph, again = self._facts, self.graph, self._facts.repeats
        for number, call in enumerate(self.program.nodes):
            ways, phase = self.ways[number], facts.phases[number]
            node = self._node(("call", self.folded.colours[again.get(number, number)]), ways)
            weight = self.folded.weights[number]
            seconds = self.work.seconds(number, ways) * weight
            graph.costs[node] += seconds
            self._beside.add(float(seconds.min()) / weight)
            self.least_s.append(float(seconds.min()) if phase != OPTIMIZER else 0.0)
            if phase == BACKWARD:
                graph.cover[node] += seconds
            self.call_node.append(node)
            for place, value in enumerate(call.results):
                self._make(value, Made(node, self._step.made(number, place), weight))

    def _make(self, value: int, made: Made) -> None:
        """Record the producer of a value, and its memory while it lives."""
        self._made[value] = made
        self._hold(value, made)

    def _hold(self, value: int, made: Made, first: int | None = None, sign: int = 1) -> None:
        """Count memory of a value from call ``first`` on; or, with a ``sign`` of -1, count it no longer."""
        given = value, made.layouts, made.weight, first
        held = self._alive.bytes_of(*given)
        if held is not None:
            self.graph.memory[made.node] += sign * held
        kept = self._alive.kept_bytes(*given) if self.axes.form.balances else None
        if kept is not None:
            self._kept_bytes[made.node] = self._kept_bytes.get(made.node, 0.0) + sign * kept

    def _add_reads(self) -> None:
        for value, uses in self.readers.items():
            for phase, group in self._groups(value, uses):
                self._add_readers(value, group, 1 if phase in ("", OPTIMIZER) else self.axes.gathers)
            self._add_waiting(value, [use for use in uses if use[0] in self._facts.weights])

    def _add_waiting(self, value: int, uses: Sequence[Use]) -> None:
        """Count memory of what calls of weights' gradients read, if it was gathered for others before."""
        for call, place in uses:
            weight = self.folded.weights[call] / len(uses)
            held = self._alive.waiting_bytes(value, self._step.needed(call, place), weight)
            if held is not None:
                self.graph.memory[self.call_node[call]] += held

    def _groups(self, value: int, uses: Sequence[Use]) -> Iterator[tuple[str, Sequence[Use]]]:
        """Yield the uses that share copies of a value.

        A parameter is gathered anew in each phase; with unequal shares it is gathered before the loop.
        """
        if value not in self.stored:
            yield "", uses
            return
        phases = [self._facts.phases[node] for node, _ in uses]
        if self.axes.shared is not None:
            phases = [phase if phase == OPTIMIZER else FORWARD for phase in phases]
        for phase in dict.fromkeys(phases):
            yield phase, [use for use, of in zip(uses, phases, strict=True) if of == phase]

    def _add_readers(self, value: int, uses: Sequence[Use], gathers: int) -> None:
        made, is_gradient = self._made[value], self._is_gradient(value, uses)
        # Gradients are summed over micro-batches before they are summed over devices.
        is_late = is_gradient and not self.axes.time
        is_packed = is_late or (is_gradient and self.axes.shared is not None)

        def when(some: Sequence[Use]) -> When:
            weights = self._facts.weights
            is_weights = self.program.producer[value] in weights or all(node in weights for node, _ in some)
            major = 0 if is_packed else self._facts.stored.get(value)
            beside_s = 0.0 if is_late or not self._overlaps else self._beside.seconds(value, some)
            return When(is_late, gathers, is_weights, major, beside_s)

        if self._is_shared(value, uses):
            made = self._kept(value, made, uses, when(uses))
        for group in self._by_phase(uses):
            near = made
            if len(group) < len(uses) and self._is_shared(value, group):
                near = self._copied(value, made, group, when(group))
            for use in group:
                reader = Made(self.call_node[use[0]], self._step.needed(*use), self.folded.weights[use[0]])
                self._reshard(value, near, reader, when([use]))

    def _is_shared(self, value: int, uses: Sequence[Use]) -> bool:
        """Return whether several calls read a value that can be split."""
        return bool(self.program.types[value].shape) and len({self.call_node[node] for node, _ in uses}) > 1

    def _by_phase(self, uses: Sequence[Use]) -> Iterator[Sequence[Use]]:
        """Yield the uses in forward, and the later ones, which may gather a value again."""
        for is_early in (True, False):
            found = [use for use in uses if (self._facts.phases[use[0]] == FORWARD) == is_early]
            if found:
                yield found

    def _is_gradient(self, value: int, uses: Sequence[Use]) -> bool:
        """Return whether backward computes a value that only the update reads."""
        producer, phases = self.program.producer[value], self._facts.phases
        if producer < 0 or phases[producer] != BACKWARD:
            return False
        return all(phases[node] == OPTIMIZER for node, _ in uses)

    def _kept(self, value: int, made: Made, uses: Sequence[Use], when: When) -> Made:
        """Add a copy of the value in which it lives from its first reader on."""
        copy = self._copied(value, made, uses, when)
        self.copies[value] = copy
        owner = None if value in self.stored else self._facts.lives.copied(value)
        if owner is not None:
            first = min(self.program.users[value])
            self._hold(owner, self._made[owner], first, -1)
            self._hold(owner, copy, first)
        return copy

    def _copied(self, value: int, made: Made, uses: Sequence[Use], when: When) -> Made:
        """Add a copy of a value with its own layout for several readers."""
        layouts = self._step.shared(self.program.types[value].shape, made.layouts, uses)
        readers = tuple(sorted({(self.call_node[node], place) for node, place in uses}))
        weight = max(self.folded.weights[node] for node, _ in uses)
        copy = Made(self._node(("copy", made.node, readers), layouts), layouts, _between(made.weight, weight))
        self._reshard(value, made, copy, when)
        return copy

    def _reshard(self, value: int, made: Made, needed: Made, when: When = ONCE) -> None:
        """Record a possible change of layout; those of equal layers are one."""
        type_ = self.program.types[value]
        size, width = type_.shape, type_.dtype.itemsize
        key = made.node, needed.node, id(made.layouts), id(needed.layouts), size, width, when
        if key not in self._changes:
            self._changes[key] = Change(size, width, made, needed, when)
        self._changes[key].weight += _between(made.weight, needed.weight)

    def _add_changes(self) -> None:
        for change in self._changes.values():
            made, needed, when = change.made, change.needed, change.when
            distances = self._distances[when.is_weights]
            given = change.shape, change.element_bytes, made.layouts, needed.layouts
            seconds = distances.between(*given, when.major)
            if when.gathers > 1:
                seconds = seconds * change.all_times(self._sizes)
            if when.beside_s:
                is_terms = np.array([min(layout, default=WHOLE) < WHOLE for layout in made.layouts])
                seconds = np.maximum(seconds - when.beside_s * is_terms[:, None], 0.0)
            if seconds.any():
                is_late = when.is_late and self._overlaps
                self.graph.add_edge(made.node, needed.node, seconds * change.weight, is_late)
                self.changes.append(change)

    def _add_returns(self) -> None:
        """Add the returns: state in the layout of its argument, other results without terms."""
        program = self.program
        for value, argument in zip(program.returns, self._facts.replaced, strict=True):
            if argument is not None:
                self._reshard(value, self._made[value], self._made[argument], STATE)
                continue
            shape = program.types[value].shape
            layouts = (
                self._step.layouts_of(shape) if shape else self._step.same(((WHOLE,) * len(self._sizes),))
            )
            node = self._node(("result", value) if shape else "whole", layouts)
            self._reshard(value, self._made[value], Made(node, layouts, 1.0))


def _between(made: float, read: float) -> float:
    """Return for how many values one stands that a call makes and another reads, given those of the calls.

    Phases may fold equal layers differently. Within layers, values are as many as those who make them, so
    that those of all layers add up to their number.
    """
    return made if read > 1 else min(made, read)
