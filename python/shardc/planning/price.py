"""Cost of a plan: memory, time of a step, and a device's work and traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.mapping import Placement
from shardc.cost.step.on_cluster import step_time_on
from shardc.cost.step.step_time import StepTime
from shardc.cost.step.work import Deeper, StepWork
from shardc.diagnostics.base import Remark
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.passes.search.answer.answer import Answer
from shardc.passes.search.dist_search import capacity_of
from shardc.planning.candidates import Candidate
from shardc.planning.depth.blend import Blend
from shardc.planning.memory import RankMemory, memory_of
from shardc.planning.offload import with_copies
from shardc.planning.placement import ArgumentPlacement, placement_of
from shardc.report.device_work import DeviceWork, Work, device_work
from shardc.report.step.read_step import read_step
from shardc.report.traffic import Transfer, transfers
from shardc.step.shard import Compiled

HOUR_S = 3600.0


@dataclass(frozen=True)
class Priced:
    """Work of a plan's programs, independent of a cluster, from which costs follow.

    ``memory``: memory of one rank of each stage. ``transfers``: a device's collectives. ``tokens``: tokens of
    the global batch. ``pipe``: the axis of stages. ``placement``: placement of each argument. ``deeper``: if
    not all equal layers were compiled, the steps with one more layer of each kind; ``blend`` then
    extrapolates, and ``placement`` is that of the compiled layers. ``stages``: the same for a pipeline
    that was compiled with fewer layers or micro-batches. ``searched``: result of the search for the plan.
    """

    candidate: Candidate
    tokens: int
    memory: Sequence[RankMemory]
    work: DeviceWork
    step: StepWork
    placement: ArgumentPlacement
    transfers: Sequence[Transfer]
    schedule: Schedule | None = None
    pipe: str = ""
    remarks: Sequence[Remark] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    deeper: Sequence[StepWork] = ()
    blend: Blend = field(default_factory=lambda: Blend(()))
    stages: Deeper | None = None
    searched: Answer | None = None

    @property
    def is_whole(self) -> bool:
        """True if each layer was compiled, and each micro-batch."""
        return not self.deeper and self.stages is None

    @cached_property
    def sent(self) -> Mapping[tuple[str, ...], float]:
        """Bytes that a device sends in a step, by mesh axes."""
        found: dict[tuple[str, ...], float] = {}
        for transfer in self.transfers:
            found[transfer.axes] = found.get(transfer.axes, 0.0) + transfer.bytes_moved
        return found

    @property
    def fullest(self) -> RankMemory:
        """Memory of the rank that needs the most."""
        return max(self.memory, key=lambda rank: rank.peak_bytes)

    @property
    def devices(self) -> int:
        return prod(self.candidate.mesh.values())

    def on(self, cluster: Cluster) -> Price:
        """Return the price on a cluster. Raises MeshDoesNotFit, and NoHostMemory if state is offloaded."""
        where = cluster, self.candidate.mesh
        steps = (self.step, *self.deeper)
        time, *deeper = (step_time_on(*where, step, self.pipe, self.schedule, self.stages) for step in steps)
        time = self.blend.time(time, deeper)
        time = with_copies(time, cluster, max(rank.host_bytes for rank in self.memory))
        return Price(self, cluster, time)


@dataclass(frozen=True)
class Price:
    """Cost of a plan on a cluster."""

    priced: Priced
    cluster: Cluster
    time: StepTime

    @cached_property
    def fullest(self) -> RankMemory:
        """Memory of the rank that has the least left of its device's memory."""
        return self._tightest[0]

    @property
    def capacity_bytes(self) -> float:
        """Memory of the fullest rank's device."""
        return self._tightest[1]

    @property
    def searched_bytes(self) -> float:
        """Memory of a device that a search for the plan counts with."""
        return capacity_of(self.cluster, self.priced.candidate.mesh, self.priced.pipe)

    @cached_property
    def _tightest(self) -> tuple[RankMemory, float]:
        pairs = zip(self.priced.memory, self._capacities(), strict=True)
        return max(pairs, key=lambda pair: pair[0].peak_bytes - pair[1])

    def _capacities(self) -> list[float]:
        """Return the memory of the smallest device that runs each distinct rank's program."""
        priced, used = self.priced, self.cluster.used(self.priced.devices)
        smallest = min(device.memory_bytes for device in used)
        if not priced.pipe or len(used) == 1:
            return [smallest] * len(priced.memory)
        stages = Placement.of(self.cluster, priced.candidate.mesh).kinds_along(priced.pipe)
        return [min(device.memory_bytes for device in kinds) for kinds in stages]

    @property
    def needed_bytes(self) -> int:
        """Memory that the fullest device needs: the peak, and on GPUs the caching allocator's slack."""
        cached = all(device.has_caching_allocator for device in self.cluster.used(self.priced.devices))
        return (
            max(self.fullest.reserved_bytes, self.fullest.peak_bytes) if cached else self.fullest.peak_bytes
        )

    @property
    def slack(self) -> float:
        """Memory of the allocator beyond the peak, relative to the peak."""
        return self.needed_bytes / max(self.fullest.peak_bytes, 1) - 1

    @property
    def free_bytes(self) -> float:
        """Free memory of the fullest device; negative if the plan does not fit."""
        return self.capacity_bytes - self.needed_bytes

    @property
    def host_lacking_bytes(self) -> float:
        """Bytes of offloaded state that do not fit in the host memory of a device; 0 if all fit."""
        held = max(rank.host_bytes for rank in self.priced.memory)
        return max(held - self.cluster.host.memory_bytes, 0.0) if self.cluster.host else 0.0

    @property
    def fits(self) -> bool:
        return self.free_bytes >= 0 and not self.host_lacking_bytes

    @property
    def tokens_s(self) -> float:
        return self.priced.tokens / self.time.seconds

    @property
    def flop_utilization(self) -> float:
        """Model FLOPs utilization (Chowdhery et al., PaLM, 2022), from 0 to 1.

        FLOPs of the single-device program's matmuls, without recomputation, relative to the FLOPs that the
        devices could do at their peak in the time of a step.
        """
        devices = map(self.cluster.device, range(self.priced.devices))
        peak_flop_s = sum(device.peak_flop_s("bf16") for device in devices)
        flops = sum(work.flops for work in self.priced.work.single)
        return flops / (peak_flop_s * self.time.seconds)

    @property
    def energy_j(self) -> float | None:
        """Energy of a step in joules, at the devices' power under load; None if that is unknown."""
        powers = [device.power_w for device in self.cluster.used(self.priced.devices)]
        known = [power for power in powers if power is not None]
        return max(known) * self.priced.devices * self.time.seconds if len(known) == len(powers) else None

    @property
    def dollars(self) -> float | None:
        """Price of a step in dollars; None if the cluster has no price."""
        rate = self.cluster.dollars_per_device_hour
        return None if rate is None else rate * self.priced.devices * self.time.seconds / HOUR_S

    @property
    def order(self) -> tuple[bool, float, float]:
        """Sort key of plans: those that fit first, then by the time of a step and by memory."""
        return not self.fits, self.time.seconds if self.fits else -self.free_bytes, -self.free_bytes


def price_of(candidate: Candidate, tokens: int, compiled: Compiled, single: list[Work]) -> Priced:
    """Return the work of a compiled plan. ``single``: the calls of the single-device program.

    A pipeline that was left uncut gets no memory: no rank runs that program.
    """
    module = compiled.unfused
    written = find_schedule(module)
    is_uncut = bool(compiled.plan.pipeline) and written is None
    return Priced(
        candidate,
        tokens,
        [] if is_uncut else memory_of(module),
        device_work(single, compiled.rank_module, compiled.plan.pipeline),
        read_step(module),
        placement_of(compiled.rank_module, module),
        transfers(compiled.rank_module),
        None if written is None else read_schedule(written),
        "" if written is None else written.attributes["axis"].value,
        tuple(compiled.remarks),
        compiled.seconds,
        searched=compiled.searched,
    )
