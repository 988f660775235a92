"""What is searched around the cuts of calls: stages, meshes of what is left, micro-batches, recomputation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from shardc.cost.cluster.cluster import Cluster
from shardc.options.presets import AUTO
from shardc.options.recompute import Policy
from shardc.planning.candidates import DATA, PIPE, Candidate, mesh_of_levels

RECOMPUTED: tuple[Policy, ...] = ("none", "selective", "full")
"""From what computes nothing again to what keeps least."""
FEWEST_PER_STAGE, MOST_PER_STAGE = 1, 8
"""Micro-batches for each stage."""
MOST_IN_TURN = 16
"""Micro-batches where there are no stages: they only save memory."""


@dataclass(frozen=True)
class Choice:
    """One choice of what is searched around the cuts of calls."""

    stages: int
    micro_batches: int
    axes: tuple[tuple[str, int], ...]
    recompute: Policy = "none"

    @property
    def mesh(self) -> Mapping[str, int]:
        return dict(self.axes)

    @property
    def candidate(self) -> Candidate:
        plan = f"pipeline*{AUTO}" if self.stages > 1 else AUTO
        return Candidate(self.mesh, plan, self.micro_batches, self.recompute)

    @property
    def waiting(self) -> float:
        """How much longer micro-batches take than their work, until the pipeline is full and empty again."""
        return (self.micro_batches + self.stages - 1) / self.micro_batches


def choices(
    cluster: Cluster,
    samples: int,
    layers: int,
    policies: Sequence[Policy] = RECOMPUTED,
    parts: int | None = None,
) -> Iterator[Choice]:
    """Every choice for a batch of ``samples``; with ``layers``, at most a stage for each.

    ``policies``: what may be computed again. ``parts``: the micro-batches that a user wants.
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
            yield Choice(stages, count, tuple(axes.items()), recompute)


def _for_batch(levels: Mapping[str, int], samples: int) -> Mapping[str, int]:
    """A mesh on which a micro-batch can be cut along the outermost links: where these have more ways than
    ``samples`` divide into, an axis of as many as do, and one for the rest.
    """
    (outer, ways), *inner = levels.items()
    cut = gcd(ways, samples)
    return levels if cut in (1, ways) else {DATA: cut, outer: ways // cut, **dict(inner)}


def _without(levels: Mapping[str, int], stages: int) -> Mapping[str, int] | None:
    """The levels' ways without those that stages take, from the outermost on; None if they do not divide."""
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
    """Divisors of the batch, doubled from step to step."""
    least, most = (FEWEST_PER_STAGE * stages, MOST_PER_STAGE * stages) if stages > 1 else (1, MOST_IN_TURN)
    counts = [n for n in range(least, min(most, samples) + 1) if samples % n == 0]
    return [n for at, n in enumerate(counts) if not at or n >= 2 * counts[at - 1] or n == counts[-1]]
