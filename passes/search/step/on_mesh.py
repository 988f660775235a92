"""A step on a mesh: the ways to split each call, whatever the schedule of stages."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

from shardc.diagnostics.passes.search import ConstraintNotSearched
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.dialects.dist.time_part import space_part
from shardc.dialects.location import source_line
from shardc.passes.manager.program import Node
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.layout import WHOLE, Layout, layouts_of, sharding_of
from shardc.passes.search.step.decided import decided_choices
from shardc.passes.search.step.facts import StepFacts, Use
from shardc.passes.search.ways import Decided, Shapes, Way, WaysOf, made_of, needed_of


class StepOnMesh:
    """A step whose program has a plan's shardings of inputs, on a mesh.

    Reads them when it is made; later changes of the program's attributes do not matter.

    Args:
        facts: Facts of the program.
        mesh: Mesh of the plan.
        pipeline: Axis of stages, if any.
        small: The step on a mesh with smaller axes of the same names, if the same is decided there.
    """

    def __init__(
        self, facts: StepFacts, mesh: Mesh, pipeline: str = "", small: StepOnMesh | None = None
    ) -> None:
        self.facts, self.pipeline, self._mesh = facts, pipeline, mesh
        self.axes = SearchAxes.of(mesh, pipeline)
        self.decided = small.decided if small else decided_choices(facts.program, mesh, self.axes)
        self._ways = WaysOf(self.axes, small._ways if small else None)
        found = [(call, self._ways.of(call.rule, *of)) for call, *of in self._calls()]
        self.ways: list[Sequence[Way]] = [self._wanted(call, of) for call, of in found]
        """Ways of each call; equal ways of calls without constraints are one object."""
        self._layouts: dict[tuple[int, bool, int], tuple[Layout, ...]] = {}
        self._shared: dict[Hashable, tuple[Layout, ...]] = {}
        self._same: dict[tuple[Layout, ...], tuple[Layout, ...]] = {}

    def read(self) -> None:
        """Keep what steps on meshes with larger axes ask, as when other processes make them."""
        self._ways.read((call.rule, shapes, of) for call, shapes, of in self._calls())

    def _calls(self) -> Iterator[tuple[Node, Shapes, Decided]]:
        """Yield calls with their shapes and the choices that are decided."""
        return zip(self.facts.program.nodes, self.facts.shapes, self.decided.choices, strict=True)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of the mesh's axes of devices."""
        return {axis.name: axis.size for axis in self._mesh.space}

    @property
    def trips(self) -> Sequence[int]:
        """Iterations that the device at each place along the axis with unequal shares runs."""
        return [runs for share in self._mesh.shares.values() for runs in share.trips]

    def needed(self, call: int, place: int) -> tuple[Layout, ...]:
        """Return the layout of an operand of a call in each of its ways; equal layouts are one object."""
        return self._of(call, False, place)

    def made(self, call: int, place: int) -> tuple[Layout, ...]:
        """Return the layout of a result of a call in each of its ways; equal layouts are one object."""
        return self._of(call, True, place)

    def same(self, layouts: tuple[Layout, ...]) -> tuple[Layout, ...]:
        """Return one object for equal sequences of layouts."""
        return self._same.setdefault(layouts, layouts)

    def layouts_of(
        self, shape: tuple[int, ...], marks: Mapping[int, tuple[int, ...]] | None = None
    ) -> tuple[Layout, ...]:
        """Return the layouts of a shape without terms over devices.

        ``marks``: allowed marks of some axes. Time axes that are not in it split no dim.
        """
        dims, axes = (WHOLE, *range(len(shape))), self.axes
        fixed = {axis: (WHOLE,) for axis in axes.time} | dict(marks or {})
        return self.same(layouts_of(shape, axes.sizes, axes.joined(fixed, [dims] * len(axes.axes))))

    def shared(
        self, shape: tuple[int, ...], made: tuple[Layout, ...], uses: Sequence[Use]
    ) -> tuple[Layout, ...]:
        """Return the layouts in which several ``uses`` can read a value that is ``made`` in others."""
        read = [self.needed(call, place) for call, place in uses]
        key = shape, id(made), frozenset(map(id, read))
        if key not in self._shared:
            self._shared[key] = self.same(self._copies(shape, made, {layout for of in read for layout in of}))
        return self._shared[key]

    def _copies(
        self, shape: tuple[int, ...], made: tuple[Layout, ...], needed: Collection[Layout]
    ) -> tuple[Layout, ...]:
        axes = self.axes
        marks = {axis: tuple(sorted({layout[axis] for layout in needed})) for axis in axes.time}
        for axis in axes.batch:
            found = {layout[axis] for layout in (*needed, *made)}
            marks |= {axis: tuple(found)} if len(found) == 1 else {}
        layouts = [*self.layouts_of(shape, marks)]
        terms = [layout for layout in made if any(layout[axis] < WHOLE for axis in axes.space)]
        for times in itertools.product(*(marks[axis] for axis in axes.time)):
            at = dict(zip(axes.time, times, strict=True))
            layouts += sorted({tuple(at.get(n, m) for n, m in enumerate(layout)) for layout in terms})
        return tuple(layouts)

    def _of(self, call: int, is_made: bool, place: int) -> tuple[Layout, ...]:
        ways = self.ways[call]
        key = id(ways), is_made, place
        if key not in self._layouts:
            found = made_of(ways, place) if is_made else needed_of(ways, place)
            self._layouts[key] = self.same(tuple(map(self.axes.divided, found)))
        return self._layouts[key]

    def _wanted(self, call: Node, ways: Sequence[Way]) -> Sequence[Way]:
        """Return the ways that agree with the user's constraint if the call is one, else all ways.

        Open dims may be split further. Raises ConstraintNotSearched if no way has the constraint's layout.
        """
        if call.op.name != "dist.constraint":
            return ways
        codec = ShardingCodec(self.facts.program.module.context, self._mesh)
        asked = codec.read(call.op.attributes["sharding"])
        found = [way for way in ways if self._allows(asked, way.results[0])]
        if not found:
            raise ConstraintNotSearched(layout=str(asked.closed()), where=source_line(call.op.location))
        return found

    def _allows(self, asked: Sharding, layout: Layout) -> bool:
        """Return whether a layout has the ``asked`` axes over devices, and further axes only in open dims."""
        found = space_part(sharding_of(layout, len(asked.dims), self.axes.axes), self._mesh)
        pairs = zip(found.dims, space_part(asked, self._mesh).dims, asked.open, strict=True)
        return not found.partial and all(f[: len(a)] == a and (o or len(f) == len(a)) for f, a, o in pairs)
