"""Lower bounds of what a plan needs: bytes on a device, and seconds of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.step.on_cluster import fastest_costs_on
from shardc.cost.step.work import Item
from shardc.options.presets import CONTEXT_PRESETS
from shardc.passes.manager.program import Program
from shardc.passes.search.calls.longest_part import has_towers
from shardc.planning.bounds.kept import Kept
from shardc.planning.bounds.kernels import kernels_s
from shardc.planning.bounds.pipelined import Shape
from shardc.planning.bounds.state import LeastState, presets_of, ways
from shardc.planning.candidates import Candidate
from shardc.report.step.read_step import read_step

MOST_STAGES = 8
"""Most stages for which towers are looked for in a version with few of the equal layers. There, a branch
within a layer would soon seem to have the work of a stage.
"""
WHOLE_GRADIENTS = ("data", "zero1")
"""Presets along whose axis each device sums all gradients of micro-batches."""


@dataclass(frozen=True)
class Bound:
    """What a plan needs at least: bytes on the fullest device, and seconds of a step.

    ``state_bytes``: the part of parameters and optimizer state, which no smaller batch reduces.
    """

    needed_bytes: float
    seconds: float = 0.0
    state_bytes: float = 0.0

    def and_also(self, other: Bound) -> Bound:
        """Return the bound of a plan for which both hold."""
        needed_bytes = max(self.needed_bytes, other.needed_bytes)
        state_bytes = max(self.state_bytes, other.state_bytes)
        return Bound(needed_bytes, max(self.seconds, other.seconds), state_bytes)


@dataclass(frozen=True)
class SingleStep:
    """A step on one device, of a model with some of its equal layers.

    ``items``: its kernels. ``beside``: the least number of stages that may be beside each other; 0 if a model
    has no towers.
    """

    kept: Kept
    items: Sequence[Item]
    beside: int = 0

    @classmethod
    def of(cls, program: Program) -> SingleStep:
        """Read a step at level 1, after recomputation."""
        counts = (n for n in range(2, MOST_STAGES + 1) if has_towers(program, n))
        return cls(Kept.of(program), read_step(program.module).ranks[0][0].items, next(counts, 0))


@dataclass(frozen=True)
class Least:
    """Lower bounds of the plans of one question.

    A plan is taken to share parameters, state and sums of gradients among the devices among which its presets
    can share them, activations and kernels among all, and to send nothing.

    ``shallow``: the version with few of the equal layers. ``deeper``: for each stretch of them, the version
    with one more. ``more``: how many more the whole model has.
    """

    state: LeastState
    shallow: SingleStep
    deeper: Sequence[SingleStep] = ()
    more: Sequence[int] = ()

    @property
    def kept(self) -> Kept:
        """What the whole model keeps."""
        return self.shallow.kept.extended([step.kept for step in self.deeper], self.more)

    @property
    def trains_all(self) -> bool:
        """Whether all parameters get gradients."""
        return self.kept.gradient_bytes == self.state.parameter_bytes

    def of(self, candidate: Candidate, cluster: Cluster | None, *, is_known: bool = True) -> Bound:
        """Return the bound of a plan; without a cluster, that of its memory.

        ``is_known``: whether a pipeline runs the schedule 1F1B. Raises MeshDoesNotFit.
        """
        presets = presets_of(candidate)
        pipe = next((axis for axis, name in presets.items() if name == "pipeline"), "")
        beside = self.shallow.beside
        shape = Shape.of(candidate, pipe, is_known and not 0 < beside <= candidate.mesh.get(pipe, 1))
        needed_bytes = self._bytes(candidate, presets, shape)
        seconds = self._seconds(candidate, presets, cluster, shape, pipe)
        return Bound(needed_bytes, seconds, self.state.on_device(candidate))

    def _bytes(self, candidate: Candidate, presets: Mapping[str, str], shape: Shape) -> float:
        lasting_bytes = self.state.on_device(candidate)
        if not presets:  # it may have stages
            return lasting_bytes
        kept = self.kept
        kept_bytes = kept.bytes_in_stages if shape.stages > 1 else kept.bytes_in_order
        if shape.has_sums:
            lasting_bytes += kept.gradient_bytes / ways(candidate.mesh, presets, WHOLE_GRADIENTS)
        part_bytes = kept_bytes / (shape.devices * shape.micro_batches)
        return shape.fullest_bytes(lasting_bytes * shape.stages, part_bytes)

    def _seconds(
        self,
        candidate: Candidate,
        presets: Mapping[str, str],
        cluster: Cluster | None,
        shape: Shape,
        pipe: str,
    ) -> float:
        if cluster is None:
            return 0.0
        rates = fastest_costs_on(cluster, candidate.mesh, pipe).rates
        parts = shape.devices * shape.micro_batches
        # Where a sequence is split, attention may leave out what a causal mask hides.
        left_out = ("attention",) if set(CONTEXT_PRESETS) & {*presets.values()} else ()
        versions = [
            [item for item in step.items if item.kind not in left_out]
            for step in (self.shallow, *self.deeper)
        ]

        def least_s(phase: str) -> float:
            shallow_s, *deeper_s = (kernels_s(items, phase, parts, rates) for items in versions)
            added = (n * (longer_s - shallow_s) for n, longer_s in zip(self.more, deeper_s, strict=True))
            return shallow_s + sum(added)

        backward_s = least_s("backward")
        return shape.step_s(least_s("forward") + backward_s, backward_s)
