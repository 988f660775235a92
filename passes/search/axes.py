"""Mesh axes of a search, and the loop of micro-batches, which is decided before the search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar

import numpy as np

from shardc.cost.schedule_form import ONE_F_ONE_B, ScheduleForm
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Axes
from shardc.options.presets import batch_axes
from shardc.passes.search.layout import WHOLE, Layout, marks_array

_Mark = TypeVar("_Mark")


@dataclass(frozen=True)
class SearchAxes:
    """Axes of devices and of time, in the order in which they split one dim.

    ``time`` has the numbers of the axes along which micro-batches run. ``batch`` has the numbers of the
    device axes that shard samples in forward and backward. ``stages`` is the number of pipeline stages that
    divide the calls among them; the axis of stages shards no call. ``form`` is their schedule. ``is_weights``
    is True for calls that only gradients of weights need. ``speeds``: relative speeds of the ranks of a
    pipeline, if they differ; ``rank``: the rank whose time is counted. ``shared``: the number of the device
    axis along which unequal shares divide the iterations of the axis of time, if there is one; ``runs``: the
    iterations of the device whose time is counted, 0 for all. ``fullest``: what the fullest stage holds over
    the mean.

    The axis of time follows the axes of the batch, and at least the first axis. So a device holds the samples
    of all its micro-batches if that axis shards the batch. Within a micro-batch the other axes may shard the
    samples in one call and not in another.
    """

    axes: Axes
    time: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()
    stages: int = 1
    form: ScheduleForm = ONE_F_ONE_B
    is_weights: bool = False
    speeds: tuple[float, ...] = ()
    rank: int = 0
    shared: int | None = None
    runs: int = 0
    fullest: float = 1.0

    @staticmethod
    def of(mesh: Mesh, pipeline: str = "") -> SearchAxes:
        """Return the axes of a mesh. ``pipeline`` is the name of its axis of stages, if any."""
        space = tuple(mesh.whole(axis.name) for axis in mesh.space if axis.name != pipeline)
        times = tuple(mesh.whole(axis.name) for axis in mesh.axes if axis.kind == "time")
        names = batch_axes([axis.name for axis in space], mesh.shared_names)
        first = max(len(names), len(space[:1]))
        axes = (*space[:first], *times, *space[first:])
        stages = mesh.size(pipeline) if pipeline else 1
        numbers = tuple(range(first, first + len(times))), tuple(range(len(names)))
        shared = next((n for n, axis in enumerate(space) if axis.name in mesh.shared_names), None)
        return SearchAxes(axes, *numbers, stages, shared=shared)

    def at(self, runs: int) -> SearchAxes:
        """Return the same axes for a device that runs so many iterations."""
        return replace(self, runs=runs)

    def on_rank(self, rank: int, speeds: tuple[float, ...]) -> SearchAxes:
        """Return the same axes for one rank of a pipeline whose ranks have these ``speeds``."""
        return replace(self, rank=rank, speeds=speeds)

    def under(self, form: ScheduleForm, fullest: float = 1.0) -> SearchAxes:
        """Return the same axes with another schedule of stages, and what the fullest of them holds."""
        return replace(self, form=form, fullest=fullest)

    @property
    def of_weights(self) -> SearchAxes:
        """Return the same axes for calls that only gradients of weights need."""
        return replace(self, is_weights=True) if self.form.is_split else self

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @property
    def space(self) -> list[int]:
        """Return the numbers of the device axes."""
        return [number for number in range(len(self.axes)) if number not in self.time]

    @property
    def decided(self) -> list[int]:
        """Return the numbers of the axes whose choices in forward and backward come from propagation."""
        return [number for number in range(len(self.axes)) if number in self.time or number in self.batch]

    def joined(self, fixed: Mapping[int, _Mark], free: Iterable[_Mark]) -> tuple[_Mark, ...]:
        """Return one mark per axis: from ``fixed`` if it has the axis, else the next of ``free``."""
        others = iter(free)
        return tuple(fixed[n] if n in fixed else next(others) for n in range(len(self.axes)))

    @property
    def trips(self) -> int:
        """Return the number of micro-batches of a step."""
        return prod(map(self._runs, self.time))

    @property
    def gathers(self) -> int:
        """Return how often a step gathers a parameter in a phase. Shares keep what was gathered once."""
        return self.trips if self.shared is None else 1

    def turns(self, layout: Layout) -> int:
        """Return how often a value with this layout is computed: once per micro-batch, or once per step."""
        return prod(self._runs(number) for number in self.time if layout[number] != WHOLE)

    def turns_of(self, choices: Sequence[object]) -> int:
        """Return how often a call runs that makes these ``choices`` of the axes."""
        return prod(self._runs(number) for number in self.time if choices[number] is not None)

    def _runs(self, number: int) -> int:
        return self.runs or self.axes[number].size

    def divided(self, layout: Layout) -> Layout:
        """Return a layout of a loop's value with the terms that devices with unequal shares hold of it."""
        if self.shared is None:
            return layout
        mark = min(layout[number] for number in self.time)
        return layout if mark >= WHOLE else (*layout[: self.shared], mark, *layout[self.shared + 1 :])

    def busy(self, turns: int) -> float:
        """Return the time of a pipeline stage, as a fraction of the time of all stages on one device.

        ``turns`` is how often the work runs in a step. Work of micro-batches includes the idle time while
        the pipeline fills and drains. Stages are assumed to take equally long, which is a lower bound
        (GPipe, 2019).
        """
        part = self.speeds[self.rank] / sum(self.speeds) if self.speeds else 1 / self.stages
        if turns == 1:
            return part
        if self.form.is_split or not self.speeds:
            slots = self.form.weight_slots if self.is_weights else self.form.slots
            return slots(self.stages, turns) / turns * part
        return self._busy_unequal(turns)

    def _busy_unequal(self, turns: int) -> float:
        """Return :meth:`busy` of a rank, as a bound on the slowest stage by a mean of all stages' times.

        Let m be the micro-batches, w the part of the other stages' time that a stage waits, and t_s the
        seconds of stage s for a micro-batch. A step takes m max t + w (sum of t - max t), which is at least
        the sum of (m l_s + w (1 - l_s)) t_s for any parts l_s that add up to 1. The best ones are those with
        which each call takes equally long wherever it runs: m l_s + w (1 - l_s) in proportion to the speed.
        """
        slots = self.form.slots(self.stages, turns)
        waits = (
            (slots - turns) / (self.stages - 1) if self.form.path == 1 else 0.0
        )  # towers may be on fast ranks
        total = sum(self.speeds)
        parts = [max(0.0, slots * speed / total - waits) for speed in self.speeds]
        part = parts[self.rank] / sum(parts)
        return (turns * part + waits * (1 - part)) / turns

    def held(self, layouts: tuple[Layout, ...], is_kept: bool = False) -> np.ndarray:
        """Return how many copies of its share of a value the fullest stage holds in each of ``layouts``.

        There is one copy of a micro-batch's value per micro-batch in flight, as on the first stage under 1F1B
        (Narayanan et al., 2019). ``is_kept``: whether the value is kept from forward to backward; with
        several stages on a rank there are then more.
        """
        count = min(self.form.longest(self.stages), self.trips)
        if is_kept:
            count = self.form.in_flight(self.stages, self.trips)
        is_part = (marks_array(layouts, len(self.axes))[:, self.time] >= 0).any(axis=1)
        return np.where(is_part, count, 1) * self.fullest / self.stages
