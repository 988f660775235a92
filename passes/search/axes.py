"""The mesh axes that a search cuts calls over, and the loop of micro-batches that it finds decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeVar

from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Axes
from shardc.options.presets import batch_axes
from shardc.passes.search.layout import WHOLE, Layout

_Mark = TypeVar("_Mark")


@dataclass(frozen=True)
class SearchAxes:
    """Axes of devices and of time, in the order in which they cut one dim; ``time``: the numbers of those
    along which micro-batches run; ``batch``: of those of devices that cut samples in forward and backward.

    ``stages``: how many stages of a pipeline share out the calls; the axis of stages cuts none of them.

    Time stands behind the axes of the batch, and behind the first axis at least. So a device holds the
    samples of all of its micro-batches, if that axis cuts the batch, and in a micro-batch the other axes may
    cut its samples in one call and not in another.
    """

    axes: Axes
    time: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()
    stages: int = 1

    @staticmethod
    def of(mesh: Mesh, pipeline: str = "") -> SearchAxes:
        """Those of a mesh; ``pipeline``: its axis of stages."""
        space = tuple(mesh.whole(axis.name) for axis in mesh.space if axis.name != pipeline)
        times = tuple(mesh.whole(axis.name) for axis in mesh.axes if axis.kind == "time")
        names = batch_axes([axis.name for axis in space])
        first = max(len(names), len(space[:1]))
        axes = (*space[:first], *times, *space[first:])
        stages = mesh.size(pipeline) if pipeline else 1
        return SearchAxes(axes, tuple(range(first, first + len(times))), tuple(range(len(names))), stages)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @property
    def space(self) -> list[int]:
        """The numbers of the axes of devices."""
        return [number for number in range(len(self.axes)) if number not in self.time]

    @property
    def decided(self) -> list[int]:
        """The numbers of the axes that do in a call of forward and backward what propagation says."""
        return [number for number in range(len(self.axes)) if number in self.time or number in self.batch]

    def joined(self, fixed: Mapping[int, _Mark], free: Iterable[_Mark]) -> tuple[_Mark, ...]:
        """Something of each axis: of those in ``fixed`` what that says, of others the next of ``free``."""
        others = iter(free)
        return tuple(fixed[n] if n in fixed else next(others) for n in range(len(self.axes)))

    @property
    def trips(self) -> int:
        """How many micro-batches a step has."""
        return prod(self.axes[number].size for number in self.time)

    def turns(self, layout: Layout) -> int:
        """How often what has such a layout is made: once for each micro-batch, or once a step."""
        return prod(self.axes[number].size for number in self.time if layout[number] != WHOLE)

    def busy(self, turns: int) -> float:
        """The part of a step's seconds on one device that a stage of a pipeline takes for what is made so
        often: its share, and for micro-batches the waiting while the pipeline fills and drains.

        As if stages took equally long, which no cut into stages is faster than (GPipe, 2019).
        """
        return (turns + self.stages - 1) / (turns * self.stages) if turns > 1 else 1 / self.stages

    def held(self, layout: Layout) -> float:
        """How often a stage holds its share of a value: of micro-batches' values for each one under way, as
        the first stage does under 1F1B (Narayanan et al., 2019).
        """
        is_part = any(layout[number] >= 0 for number in self.time)
        return min(self.stages, self.trips) / self.stages if is_part else 1 / self.stages
