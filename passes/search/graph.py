"""A step as a graph of choices, with costs of nodes and of edges.

A node is a call, with the ways to split it; an argument, with its layouts; or a copy of a value that several
calls read, so that they share its reshard. An edge has the seconds of the collectives between the layout that
one node makes and the layout that another needs. Corresponding calls of equal layers are one node, whose
costs are their sum.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shardc.diagnostics.passes.search import ConstraintNotSearched
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.dialects.dist.time_part import space_part
from shardc.dialects.location import source_line
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.partition.storage import followed
from shardc.passes.search.alive import Alive
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.calls.repeats import repeats
from shardc.passes.search.change import ONCE, Change, Made, When
from shardc.passes.search.decided import decided_choices
from shardc.passes.search.distances import Distances, Matrix
from shardc.passes.search.fold import Folded
from shardc.passes.search.layout import WHOLE, Layout, layouts_of, sharding_of
from shardc.passes.search.ways import Shapes, Way, WaysOf, made_of, needed_of
from shardc.passes.search.work import Work

BACKWARD, OPTIMIZER = "backward", "optimizer"
Use = tuple[int, int]
"""A use of a value: (call, operand position)."""


@dataclass
class Graph:
    """Nodes with states, and the costs of a choice of one state for each node.

    Args:
        points: Number of points of the step at which memory is counted.
        costs: For each node, the seconds of its states.
        memory: For each node, the bytes that a device holds for it, [point, state].
        edges: For each pair of nodes, the seconds of each pair of states.
        late: The same for collectives of gradients, which overlap with the kernels of the backward.
        cover: For each node, the seconds of its states' kernels that ``late`` collectives overlap with.
    """

    points: int = 0
    costs: list[np.ndarray] = field(default_factory=list)
    memory: list[np.ndarray] = field(default_factory=list)
    edges: dict[tuple[int, int], Matrix] = field(default_factory=dict)
    late: dict[tuple[int, int], Matrix] = field(default_factory=dict)
    cover: list[np.ndarray] = field(default_factory=list)

    def add_node(self, states: int) -> int:
        self.costs.append(np.zeros(states))
        self.cover.append(np.zeros(states))
        self.memory.append(np.zeros((self.points, states)))
        return len(self.costs) - 1

    def add_edge(self, first: int, second: int, seconds: Matrix, is_late: bool = False) -> None:
        """Add to the cost of an edge; if both nodes are the same, to the node's own costs."""
        edges = self.late if is_late else self.edges
        if first == second:
            self.costs[first] = self.costs[first] + np.diag(seconds)
        elif first > second:
            self.add_edge(second, first, seconds.T, is_late)
        else:
            old = edges.get((first, second))
            edges[first, second] = seconds if old is None else old + seconds

    def seconds(self, chosen: Sequence[int]) -> float:
        """Return the cost of a choice of states, without late collectives."""
        alone = sum(float(cost[state]) for cost, state in zip(self.costs, chosen, strict=True))
        return alone + _sum(self.edges, chosen)

    def uncovered(self, chosen: Sequence[int]) -> float:
        """Return by how many seconds late collectives exceed the kernels that they overlap with."""
        cover = sum(float(cover[state]) for cover, state in zip(self.cover, chosen, strict=True))
        return _sum(self.late, chosen) - cover

    def weighted(self, weight: float) -> Graph:
        """Return the graph in which each choice costs ``seconds + weight * uncovered``."""
        costs = [c - weight * cover for c, cover in zip(self.costs, self.cover, strict=True)]
        nothing = [np.zeros(len(c)) for c in costs]
        made = Graph(self.points, costs, self.memory, dict(self.edges), {}, nothing)
        for (first, second), seconds in self.late.items():
            impossible = np.isinf(seconds)
            made.add_edge(first, second, np.where(impossible, np.inf, weight * seconds))
        return made

    @property
    def least_bytes(self) -> float:
        """Return a lower bound of a device's memory, at the point where it is largest."""
        held = sum((memory.min(axis=1) for memory in self.memory), np.zeros(self.points))
        return float(held.max(initial=0.0))

    def total(self, chosen: Sequence[int]) -> float:
        """Return the total cost of a choice, with the uncovered part of late collectives."""
        return self.seconds(chosen) + max(0.0, self.uncovered(chosen))

    def bytes_at(self, chosen: Sequence[int]) -> np.ndarray:
        """Return the bytes that a device holds at each point."""
        held = (memory[:, state] for memory, state in zip(self.memory, chosen, strict=True))
        return sum(held, np.zeros(self.points))


def _sum(edges: Mapping[tuple[int, int], Matrix], chosen: Sequence[int]) -> float:
    return sum(float(seconds[chosen[a], chosen[b]]) for (a, b), seconds in edges.items())


class StepGraph:
    """Graph of a step, and the meaning of its states: ways of calls, and layouts of values."""

    def __init__(
        self,
        program: Program,
        mesh: Mesh,
        axes: SearchAxes,
        distances: Distances,
        work: Work,
        alive: Alive,
        folded: Folded,
        weights: frozenset[int],
    ) -> None:
        self.program, self.work, self._alive, self._weights = program, work, alive, weights
        self._distances = distances, distances.of_weights()
        self._mesh, self.axes, self._sizes = mesh, axes, axes.sizes
        self._decided = decided_choices(program, mesh, axes)
        self.graph = Graph(alive.moments)
        self.changes: list[Change] = []
        """All possible changes of layout."""
        self.call_node: list[int] = []
        self.ways: list[Sequence[Way]] = []
        """Ways of each call's node, by call."""
        self.argument_node: list[int] = []
        self.layouts: list[Sequence[Layout]] = []
        """Layouts of each argument's node, by argument."""
        self.floor_s = 0.0
        """Seconds of forward and backward with each call split in its fastest way."""
        self.floor_weights_s = 0.0
        """The part of calls that only gradients of weights need."""
        self.copies: dict[int, Made] = {}
        """Copies of values for all their readers, by value."""
        self._made: dict[int, Made] = {}
        self._nodes: dict[Hashable, int] = {}
        self.folded = folded
        self.readers = _readers(program)
        roles = (program.argument_key(position)[0] for position in range(len(program.arguments)))
        given = zip(program.arguments, roles, strict=True)
        self.stored = followed(program, {value: True for value, role in given if role == "param"})
        self._add_arguments()
        self._add_calls()
        self._add_reads()
        self._add_returns()

    def steps(self, change: Change, pair: tuple[Layout, Layout]) -> list[tuple[int, float]]:
        """Return the cheapest chain of steps of a change: the axis number and the seconds of each."""
        distances = self._distances[change.when.is_weights]
        layouts = (*change.made.layouts, *change.needed.layouts)
        return distances.steps(change.shape, change.element_bytes, layouts, pair)

    def _node(self, key: Hashable, states: Sequence[object]) -> int:
        """Return the node of ``key`` and ``states``, which is new or shared with equal layers."""
        whole = key, tuple(states)
        if whole not in self._nodes:
            self._nodes[whole] = self.graph.add_node(len(states))
        return self._nodes[whole]

    def _add_arguments(self) -> None:
        for position, value in enumerate(self.program.arguments):
            role, _ = self.program.argument_key(position)
            layouts = self._argument_layouts(role, self.program.types[value].shape)
            readers = [node for node, _ in self.readers[value]]
            read_by = tuple(sorted({self.folded.colours[node] for node in readers}))
            node = self._node(("argument", role, read_by or position), layouts)
            self.argument_node.append(node)
            self.layouts.append(layouts)
            self._make(value, Made(node, layouts, self._least(readers)))

    def _least(self, calls: Sequence[int]) -> float:
        """Return the number of values for which a value stands that all of ``calls`` read."""
        return min((self.folded.weights[call] for call in calls), default=1.0)

    def _layouts_of(
        self, shape: tuple[int, ...], marks: Mapping[int, tuple[int, ...]] | None = None
    ) -> tuple[Layout, ...]:
        """Return the layouts of a shape without terms over devices.

        ``marks``: allowed marks of some axes. Time axes that are not in it split no dim.
        """
        dims, axes = (WHOLE, *range(len(shape))), self.axes
        fixed = {axis: (WHOLE,) for axis in axes.time} | dict(marks or {})
        return layouts_of(shape, self._sizes, axes.joined(fixed, [dims] * len(axes.axes)))

    def _argument_layouts(self, role: str, shape: tuple[int, ...]) -> tuple[Layout, ...]:
        """Return the layouts of an argument: all for state, only splits of samples for a batch."""
        layouts = self._layouts_of(shape)
        if role in ("param", "opt_state"):
            return layouts
        kept = (WHOLE, 0) if role == "input" else (WHOLE,)
        return tuple(layout for layout in layouts if all(dim in kept for dim in layout))

    def _add_calls(self) -> None:
        """Add the calls. What the backward of a pipeline's stage recomputes is split as in forward."""
        ways_of, types = WaysOf(self.axes), self.program.types
        again = repeats(self.program) if self.axes.stages > 1 else {}
        for number, call in enumerate(self.program.nodes):
            operands, results = (tuple(types[v].shape for v in vs) for vs in (call.operands, call.results))
            shapes = Shapes(operands, results)
            ways = self._wanted(call, ways_of.of(call.rule, shapes, self._decided[number]))
            colour = self.folded.colours[again.get(number, number)]
            node = self._node(("call", colour), ways)
            weight = self.folded.weights[number]
            seconds = self.work.seconds(number, ways) * weight
            self.graph.costs[node] += seconds
            self.floor_s += float(seconds.min()) if phase_of(call.op) != OPTIMIZER else 0.0
            self.floor_weights_s += float(seconds.min()) if number in self._weights else 0.0
            if phase_of(call.op) == BACKWARD:
                self.graph.cover[node] += seconds
            self.call_node.append(node)
            self.ways.append(ways)
            for place, value in enumerate(call.results):
                self._make(value, Made(node, made_of(ways, place), weight))

    def _wanted(self, call: Node, ways: Sequence[Way]) -> Sequence[Way]:
        """Return the ways that agree with the user's constraint if the call is one, else all ways.

        Open dims may be split further. Raises ConstraintNotSearched if no way has the constraint's layout.
        """
        if call.op.name != "dist.constraint":
            return ways
        asked = ShardingCodec(self.program.module.context, self._mesh).read(call.op.attributes["sharding"])
        found = [way for way in ways if self._allows(asked, way.results[0])]
        if not found:
            raise ConstraintNotSearched(layout=str(asked.closed()), where=source_line(call.op.location))
        return found

    def _allows(self, asked: Sharding, layout: Layout) -> bool:
        """Return whether a layout has the ``asked`` axes over devices, and further axes only in open dims."""
        found = space_part(sharding_of(layout, len(asked.dims), self.axes.axes), self._mesh)
        pairs = zip(found.dims, space_part(asked, self._mesh).dims, asked.open, strict=True)
        return not found.partial and all(f[: len(a)] == a and (o or len(f) == len(a)) for f, a, o in pairs)

    def _make(self, value: int, made: Made) -> None:
        """Record the producer of a value, and its memory while it lives."""
        self._made[value] = made
        self._hold(self._alive.bytes_of(value, made.layouts), made)

    def _hold(self, held: np.ndarray | None, made: Made, sign: int = 1) -> None:
        """Count memory, [point, state], of a value; or, with a ``sign`` of -1, count it no longer."""
        if held is not None:
            self.graph.memory[made.node] = self.graph.memory[made.node] + sign * held * made.weight

    def _add_reads(self) -> None:
        for value, uses in self.readers.items():
            for phase, group in self._groups(value, uses):
                self._add_readers(value, group, 1 if phase in ("", OPTIMIZER) else self.axes.trips)

    def _groups(self, value: int, uses: list[Use]) -> Iterator[tuple[str, list[Use]]]:
        """Yield the uses that share copies of a value. A parameter is gathered anew in each phase."""
        if value not in self.stored:
            yield "", uses
            return
        phases = [phase_of(self.program.nodes[node].op) for node, _ in uses]
        for phase in dict.fromkeys(phases):
            yield phase, [use for use, of in zip(uses, phases, strict=True) if of == phase]

    def _add_readers(self, value: int, uses: list[Use], gathers: int) -> None:
        made = self._made[value]
        readers = {node for node, _ in uses}
        is_weights = self.program.producer[value] in self._weights or readers <= self._weights
        when = When(self._is_gradient(value, uses), gathers, is_weights)
        if len({self.call_node[node] for node, _ in uses}) > 1 and self.program.types[value].shape:
            made = self._copied(value, made, uses, when)
        for node, place in uses:
            needed = needed_of(self.ways[node], place)
            reader = Made(self.call_node[node], needed, self.folded.weights[node])
            self._reshard(value, made, reader, when)

    def _is_gradient(self, value: int, uses: list[Use]) -> bool:
        """Return whether backward computes a value that only the update reads."""
        nodes, producer = self.program.nodes, self.program.producer[value]
        if producer < 0 or phase_of(nodes[producer].op) != BACKWARD or self.axes.time:
            return False  # gradients are summed over micro-batches before they are summed over devices
        return all(phase_of(nodes[node].op) == OPTIMIZER for node, _ in uses)

    def _copied(self, value: int, made: Made, uses: list[Use], when: When) -> Made:
        """Add a copy of the value with its own layout for all readers."""
        needed = {layout for node, place in uses for layout in needed_of(self.ways[node], place)}
        marks = {axis: tuple(sorted({layout[axis] for layout in needed})) for axis in self.axes.time}
        for axis in self.axes.batch:
            found = {layout[axis] for layout in (*needed, *made.layouts)}
            marks |= {axis: tuple(found)} if len(found) == 1 else {}
        layouts = [*self._layouts_of(self.program.types[value].shape, marks)]
        terms = [layout for layout in made.layouts if any(layout[axis] < WHOLE for axis in self.axes.space)]
        for times in itertools.product(*(marks[axis] for axis in self.axes.time)):
            at = dict(zip(self.axes.time, times, strict=True))
            layouts += sorted({tuple(at.get(n, m) for n, m in enumerate(layout)) for layout in terms})
        readers = tuple(sorted({(self.call_node[node], place) for node, place in uses}))
        weight = max(self.folded.weights[node] for node, _ in uses)
        node = self._node(("copy", made.node, readers), layouts)
        copy = Made(node, tuple(layouts), min(made.weight, weight))
        self.copies[value] = copy
        owner = None if value in self.stored else self._alive.copied(value)
        if owner is not None:
            whole = self._made[owner]
            self._hold(self._alive.from_first_read(owner, value, whole.layouts), whole, -1)
            self._hold(self._alive.from_first_read(owner, value, copy.layouts), copy)
        self._reshard(value, made, copy, when)
        return copy

    def _reshard(self, value: int, made: Made, needed: Made, when: When = ONCE) -> None:
        type_ = self.program.types[value]
        change = Change(type_.shape, type_.dtype.itemsize, made, needed, when)
        distances = self._distances[when.is_weights]
        seconds = distances.between(change.shape, change.element_bytes, made.layouts, needed.layouts)
        if when.gathers > 1:
            seconds = seconds * change.all_times(self._sizes)
        if seconds.any():
            self.graph.add_edge(made.node, needed.node, seconds * change.weight, when.is_late)
            self.changes.append(change)

    def _add_returns(self) -> None:
        """Add the returns: state in the layout of its argument, other results without terms."""
        program = self.program
        for value, argument in zip(program.returns, program.state_of_results(), strict=True):
            if argument is not None:
                self._reshard(value, self._made[value], self._made[argument])
                continue
            layouts = self._layouts_of(program.types[value].shape)
            if program.types[value].shape:
                self._reshard(
                    value, self._made[value], Made(self._node(("result", value), layouts), layouts, 1.0)
                )
            else:
                whole = ((WHOLE,) * len(self._sizes),)
                self._reshard(value, self._made[value], Made(self._node(("whole",), whole), whole, 1.0))


def _readers(program: Program) -> dict[int, list[Use]]:
    """Return the calls that read each value, with the operand's position."""
    found: dict[int, list[Use]] = defaultdict(list)
    for number, call in enumerate(program.nodes):
        for place, value in enumerate(call.operands):
            found[value].append((number, place))
    return found
