"""Space of the outer search: stages, their schedule, meshes of the remaining devices, micro-batches and
recomputation.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.schedule_form import FORMS, ONE_F_ONE_B, ScheduleForm
from shardc.options.presets import AUTO
from shardc.options.recompute import Policy
from shardc.planning.candidates import DATA, PIPE, Candidate, mesh_of_levels

RECOMPUTED: tuple[Policy, ...] = ("none", "selective", "full")
"""Recomputation policies, from recomputing nothing to keeping the least."""
FEWEST_PER_STAGE, MOST_PER_STAGE = 1, 8
"""Micro-batches for each stage."""
MOST_IN_TURN = 16
"""Maximum number of micro-batches without stages, where they only save memory."""


@dataclass(frozen=True)
class Choice:
    """Point of the outer search's space.

    ``shares``: weights of unequal parts of the batch along the outermost axis; empty for equal ones.
    ``speeds``: relative speeds of stages' ranks; empty if all are equal.
    """

    stages: int
    micro_batches: int
    axes: tuple[tuple[str, int], ...]
    recompute: Policy = "none"
    form: ScheduleForm = ONE_F_ONE_B
    shares: tuple[int, ...] = ()
    speeds: tuple[float, ...] = ()

    @property
    def mesh(self) -> Mapping[str, int]:
        return dict(self.axes)

    @property
    def candidate(self) -> Candidate:
        plan = f"pipeline*{AUTO}" if self.stages > 1 else AUTO
        shares = {self.axes[0][0]: self.shares} if self.shares else {}
        asked = self.mesh, plan, self.micro_batches, self.recompute
        return Candidate(*asked, form=self.form, shares=shares, speeds=self.speeds)

    @property
    def waiting(self) -> float:
        """Time of a step relative to its work, because of the pipeline's bubble; 1 without stages."""
        return self.form.slots(self.stages, self.micro_batches) / self.micro_batches

    @property
    def weights_waiting(self) -> float:
        """The same of work that only gradients of weights need; less than 1 if it fills the bubble."""
        return self.form.weight_slots(self.stages, self.micro_batches) / self.micro_batches

    @property
    def waits(self) -> tuple[float, float]:
        """Both of the above."""
        return self.waiting, self.weights_waiting

    @property
    def in_flight(self) -> float:
        """Part of the batch whose activations a rank holds at a time, at most.

        With unequal shares it is a part of one share, relative to an equal one.
        """
        part = len(self.shares) / sum(self.shares) if self.shares else 1.0
        return part * self.form.in_flight(self.stages, self.micro_batches) / self.micro_batches

    @property
    def pending(self) -> int:
        """Micro-batches of a rank whose gradients of weights are left, at most."""
        return self.form.pending(self.stages, self.micro_batches)

    def is_like(self, other: Choice) -> bool:
        """Return True if at most the schedule differs."""
        return self.parts == other.parts and self.recompute == other.recompute

    @property
    def parts(self) -> tuple[object, ...]:
        """How the step is split: stages, micro-batches, mesh, shares and speeds, without recomputation and
        schedule.
        """
        return self.stages, self.micro_batches, self.axes, *self.unequal

    @property
    def unequal(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Parts for devices of several kinds: shares and speeds."""
        return self.shares, self.speeds


def choices(
    cluster: Cluster,
    samples: int,
    layers: int,
    policies: Sequence[Policy] = RECOMPUTED,
    parts: int | None = None,
    forms: Sequence[ScheduleForm] = FORMS,
) -> Iterator[Choice]:
    """Yield every choice for a batch of ``samples`` and a model of ``layers``, which bounds the stages.

    ``policies``: recomputation policies to try. ``parts``: the number of micro-batches, if the user fixed it.
    ``forms``: schedules to try.
    """
    levels = mesh_of_levels(cluster)
    for stages in range(1, min(layers, cluster.size) + 1):
        inside = _without(levels, stages)
        if inside is None:
            continue
        counts = _micro_batches(stages, samples) if parts is None else (parts,)
        for count, recompute in itertools.product(counts, policies):
            mesh = _for_batch(inside, samples // count)
            axes = {PIPE: stages, **mesh} if stages > 1 else mesh
            for form in forms if stages > 1 else (ONE_F_ONE_B,):
                if form.allows(stages, count, layers):
                    yield Choice(stages, count, tuple(axes.items()), recompute, form)


def choices_on(
    mesh: Mapping[str, int],
    stages: int,
    samples: int,
    layers: int,
    policies: Sequence[Policy] = RECOMPUTED,
    parts: int | None = None,
    forms: Sequence[ScheduleForm] = FORMS,
) -> Iterator[Choice]:
    """Yield every choice on a mesh that the user gave; what is left open is as in :func:`choices`.

    ``stages``: stages along the mesh's axis ``pipe``; 1 if no axis has stages.
    """
    counts = _micro_batches(stages, samples) if parts is None else (parts,)
    for count, recompute in itertools.product(counts, policies):
        for form in forms if stages > 1 else (ONE_F_ONE_B,):
            if form.allows(stages, count, layers):
                yield Choice(stages, count, tuple(mesh.items()), recompute, form)


def _for_batch(levels: Mapping[str, int], samples: int) -> Mapping[str, int]:
    """Return a mesh whose outermost axis divides the ``samples`` of a micro-batch.

    If the outermost links join more groups than that, their axis is split in two.
    """
    (outer, ways), *inner = levels.items()
    cut = gcd(ways, samples)
    return levels if cut in (1, ways) else {DATA: cut, outer: ways // cut, **dict(inner)}


def _without(levels: Mapping[str, int], stages: int) -> Mapping[str, int] | None:
    """Return the levels' sizes after stages take theirs, from the outermost; None if they do not divide."""
    left: dict[str, int] = {}
    for name, ways in levels.items():
        if stages % ways == 0:
            stages //= ways
        elif ways % stages == 0:
            left[name], stages = ways // stages, 1
        else:
            return None
    return (left or {DATA: 1}) if stages == 1 else None


def _micro_batches(stages: int, samples: int) -> list[int]:
    """Return divisors of the batch to try, each at least twice the one before."""
    least, most = (FEWEST_PER_STAGE * stages, MOST_PER_STAGE * stages) if stages > 1 else (1, MOST_IN_TURN)
    counts = [n for n in range(least, min(most, samples) + 1) if samples % n == 0]
    return [n for at, n in enumerate(counts) if not at or n >= 2 * counts[at - 1] or n == counts[-1]]
