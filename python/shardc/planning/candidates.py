"""Plans to compare: every product of presets, on every mesh of a number of devices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.schedule_form import ONE_F_ONE_B, ScheduleForm
from shardc.options.presets import SEARCHED_AXES
from shardc.options.recompute import Policy
from shardc.options.step import StepOptions

DATA, TENSOR, CONTEXT, PIPE = "data", "tensor", "context", "pipe"
DATA_PRESETS = ("data", "zero1", "zero2", "zero3")
CUTS = ("tensor", "sequence")


@dataclass(frozen=True)
class Candidate:
    """Plan to price: a mesh, a plan for it, and the number of micro-batches of a rank's batch.

    ``recompute``: recomputation policy; None if the plan leaves it to other options. ``room``: the part of a
    device's memory that a search may use. ``form``: the schedule of stages, unless other options name one.
    ``shares``: weights of unequal parts of the batch, by mesh axis. ``speeds``: relative speeds of stages'
    ranks.
    """

    mesh: Mapping[str, int]
    plan: str
    micro_batches: int = 1
    recompute: Policy | None = None
    room: float = 1.0
    form: ScheduleForm = ONE_F_ONE_B
    shares: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    speeds: tuple[float, ...] = ()

    @property
    def options(self) -> dict[str, object]:
        """Options of ``compile_step`` for the plan."""
        found: dict[str, object] = {
            "mesh": dict(self.mesh),
            "plan": self.plan,
            "micro_batches": self.micro_batches,
        }
        if self.recompute is not None:
            found["recompute"] = self.recompute
        return {**found, **self.schedule, **self.uneven}

    @property
    def uneven(self) -> dict[str, object]:
        """Options of ``compile_step`` for devices of several kinds."""
        shares = {"shares": {axis: [*weights] for axis, weights in self.shares.items()}}
        return {**(shares if self.shares else {}), **({"speeds": [*self.speeds]} if self.speeds else {})}

    @property
    def schedule(self) -> dict[str, object]:
        """Options of ``compile_step`` for a schedule that is not the default."""
        if self.form == ONE_F_ONE_B:
            return {}
        stages = {"stages": self.mesh[PIPE] * self.form.per_rank} if self.form.per_rank > 1 else {}
        balances = {"balance_activations": True} if self.form.balances else {}
        return {"schedule": self.form.name, **stages, **balances}

    @property
    def text(self) -> str:
        """Text such as ``zero3*tensor on data 8 x tensor 8, 4 micro-batches``."""
        axes = " x ".join(f"{name} {size}" for name, size in self.mesh.items())
        parts = f", {self.micro_batches} micro-batches" if self.micro_batches > 1 else ""
        order = f", {self.form}" if self.form != ONE_F_ONE_B else ""
        again = f", recompute {self.recompute}" if self.recompute not in (None, "none") else ""
        return f"{self.plan} on {axes}{parts}{order}{again}{self.uneven_text}"

    @property
    def uneven_text(self) -> str:
        """Text such as ``, shares data 3:1`` or ``, speeds 3:1``; empty for equal devices."""
        found = [f", shares {axis} {':'.join(map(str, of))}" for axis, of in self.shares.items()]
        found += [f", speeds {':'.join(f'{speed:g}' for speed in self.speeds)}"] if self.speeds else []
        return "".join(found)


def plans_of(mesh: Mapping[str, int], batch: int) -> Iterator[Candidate]:
    """Yield every product of presets over those of ``data``, ``tensor``, ``context``, ``pipe`` in ``mesh``.

    ``batch``: samples of the global batch. With a pipeline, a rank's batch is split into as many
    micro-batches as possible, at most :data:`PER_STAGE` for each stage.
    """
    choices = {DATA: DATA_PRESETS, TENSOR: CUTS, CONTEXT: ("context",), PIPE: ("pipeline",)}
    presets = [choices[axis] for axis in mesh if axis in choices]
    parts = 1 if PIPE not in mesh else micro_batches(batch // mesh.get(DATA, 1), mesh[PIPE])
    for chosen in itertools.product(*presets):
        yield Candidate(mesh, "*".join(chosen), parts)


PER_STAGE = 8
"""Maximum micro-batches for each stage. More are not needed: the bubble is below a ninth with these."""


def micro_batches(samples: int, stages: int) -> int:
    """Return the largest divisor of ``samples`` that is at most :data:`PER_STAGE` for each stage."""
    most = min(samples, PER_STAGE * stages)
    return next(n for n in range(max(most, 1), 0, -1) if samples % n == 0 or n == 1)


def meshes_of(devices: int, node: int, batch: int, layers: int) -> Iterator[dict[str, int]]:
    """Yield meshes of ``devices``: ``tensor`` within a node of ``node`` devices, at most one stage for each
    of ``layers``, and ``data`` that divides ``batch``. Axes of size 1 are omitted; the innermost axis is
    last.
    """
    for tensor, pipe in itertools.product(_divisors(devices), repeat=2):
        data, rest = divmod(devices, tensor * pipe)
        if rest or tensor > node or pipe > max(layers, 1) or batch % data:
            continue
        sizes = {PIPE: pipe, DATA: data, TENSOR: tensor}
        mesh = {name: size for name, size in sizes.items() if size > 1}
        if prod(mesh.values()) == devices:
            yield mesh or {DATA: 1}


def mesh_of_levels(cluster: Cluster) -> dict[str, int]:
    """Return a mesh of all devices for a searched plan: an axis for each level of links, the innermost last.

    If there are more levels than a search has axes for, the outermost are joined under the outermost's name.
    """
    levels = [(level.name, level.ways) for level in cluster.levels if level.ways > 1]
    inner, outer = levels[: SEARCHED_AXES - 1], levels[SEARCHED_AXES - 1 :]
    joined = {outer[-1][0]: prod(ways for _, ways in outer)} if outer else {}
    return {**joined, **dict(reversed(inner))} or {DATA: 1}


def options_of(candidate: Candidate, options: Mapping[str, object]) -> StepOptions:
    """Return the options of a plan's compile, with other ``options`` of ``compile_step``."""
    given = {"mesh": candidate.mesh, "plan": candidate.plan, "micro_batches": candidate.micro_batches}
    again = {"recompute": candidate.recompute} if candidate.recompute else {}
    return StepOptions.of({**given, **options, **again, **candidate.schedule, **candidate.uneven})


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
