"""Estimated cost of optimizer state in host memory. The runtime does not offload yet.

In each step the state of every parameter is copied to the device, updated there and copied back. Copies run
in both directions at once, so the device holds two parameters' states. No copy overlaps with kernels.
(ZeRO-Offload, Ren et al. 2021, updates on the CPU instead, and sends gradients and parameters.)
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from shardc.backends.torch.memory.curve import ARGUMENTS, Curve, Moment, Place
from shardc.backends.torch.memory.dry_run import Peak
from shardc.cost.cluster.cluster import Cluster
from shardc.cost.step.step_time import StepTime
from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.diagnostics.planning import NoHostMemory
from shardc.planning.memory import RankMemory

OFFLOAD = "offload"
"""Name of the time spent on copies between host and device."""
IN_FLIGHT = 2
"""Number of parameters whose states are on the device at once."""


def offloaded(rank: RankMemory) -> RankMemory:
    """Return the rank's memory with the optimizer's state moved to the host."""
    moved = rank.given.get("opt_state", 0)
    there = min(IN_FLIGHT * rank.largest_state_bytes, moved)
    given = {**rank.given, "opt_state": there}
    peak = rank.peak
    if not isinstance(peak, PeakUnknown):
        less = moved - there
        sizes = {"size_bytes": peak.size_bytes - less, "given_bytes": peak.given_bytes - less}
        peak = replace(peak, make_curve=partial(_lowered_curve, peak, less), **sizes)
    reserved = rank.reserved_bytes - moved + there
    return replace(rank, given=given, peak=peak, host_bytes=moved, reserved=reserved)


def _lowered_curve(peak: Peak, less: int) -> Curve:
    """Return the peak's memory over time, with arguments ``less`` bytes smaller."""
    curve = peak.curve
    given = curve.places.index(Place()) if Place() in curve.places else ARGUMENTS
    return replace(curve, moments=tuple(_moment(moment, given, less) for moment in curve.moments))


def _moment(moment: Moment, given: int, less: int) -> Moment:
    held = tuple((place, size - less if place == given else size) for place, size in moment.held)
    return replace(moment, size_bytes=moment.size_bytes - less, held=tuple(p for p in held if p[1] > 0))


def with_copies(time: StepTime, cluster: Cluster, host_bytes: int) -> StepTime:
    """Add the time of copying ``host_bytes`` of state from the host and back. Raises NoHostMemory."""
    if not host_bytes:
        return time
    if cluster.host is None:
        raise NoHostMemory(cluster=cluster.name)
    copies_s = host_bytes / cluster.host.bytes_s + 2 * cluster.host.latency_s
    return replace(time, seconds=time.seconds + copies_s, causes={**time.causes, OFFLOAD: copies_s})
