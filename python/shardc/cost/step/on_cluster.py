"""Costs of work on the devices and links of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from math import prod

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.device import Device
from shardc.cost.cluster.mapping import Links, Placement
from shardc.cost.collectives.seconds import seconds
from shardc.cost.ops import DeviceRates, MeasuredProducts
from shardc.cost.step.costs import Costs
from shardc.cost.step.step_time import StepTime, step_time_of
from shardc.cost.step.work import Deeper, Item, StepWork
from shardc.dialects.dist.axis import Axis
from shardc.dialects.pipe.schedule import Schedule


def step_time_on(
    cluster: Cluster,
    mesh: Mapping[str, int],
    work: StepWork,
    pipe: str = "",
    schedule: Schedule | None = None,
    deeper: Deeper | None = None,
) -> StepTime:
    """Return the time of a step on the first devices of a cluster.

    With unequal shares along an axis, each place is timed on its own kind of device, and the slowest place
    determines the step. ``deeper``: layers of a pipeline that ``work`` lacks. Raises MeshDoesNotFit.
    """
    if not work.shared:
        return step_time_of(work, costs_on(cluster, mesh, pipe), schedule, deeper)
    kinds = Placement.of(cluster, mesh).slowest_along(work.shared)
    times = [
        step_time_of(StepWork((), (sections,)), costs_on(cluster, mesh, pipe, kind))
        for sections, kind in zip(work.ranks, kinds, strict=True)
    ]
    names = [f"{work.shared} {place} ({kind.name})" for place, kind in enumerate(kinds)]
    places = {name: time.seconds for name, time in zip(names, times, strict=True)}
    return replace(max(times, key=lambda time: time.seconds), places=places)


def costs_on(
    cluster: Cluster, mesh: Mapping[str, int], pipe: str = "", device: Device | None = None
) -> Costs:
    """Return the costs on the first devices of a cluster; the last axis of ``mesh`` is the innermost.

    ``pipe``: axis along which stages send to the next; if its ranks have several kinds of device, each rank
    has costs of its own. ``device``: the device to take; by default the slowest of the kinds. Raises
    MeshDoesNotFit.
    """
    placement = Placement.of(cluster, mesh)
    used = cluster.used(max(1, prod(mesh.values())))
    slowest = device or min(used, key=lambda device: device.peak_flop_s("bf16"))
    along = placement.slowest_along(pipe) if pipe and device is None and len(used) > 1 else []
    ranks = [costs_on(cluster, mesh, pipe, kind) for kind in along] if len(set(along)) > 1 else []

    @cache
    def links(axes: tuple[Axis, ...]) -> Links:
        return placement.links([(axis.name, axis.pre, axis.size) for axis in axes])

    def collective_s(item: Item) -> float:
        return seconds(item.collective, links(item.axes), item.moved_bytes)

    def transfer_s(size_bytes: float) -> float:
        return seconds("permute", placement.links([pipe]), size_bytes) if pipe else 0.0

    overlaps = cluster.library.overlaps
    return Costs(rates_of(slowest), collective_s, transfer_s, overlap=overlaps, ranks=tuple(ranks))


def fastest_costs_on(cluster: Cluster, mesh: Mapping[str, int], pipe: str) -> Costs:
    """Return costs that are no higher than those on any rank of a pipeline along ``pipe``.

    Raises MeshDoesNotFit.
    """
    costs = costs_on(cluster, mesh, pipe)
    if not costs.ranks:
        return costs
    rates = [each.rates for each in costs.ranks]
    fastest = replace(
        costs.rates,
        half_flop_s=max(each.half_flop_s for each in rates),
        single_flop_s=max(each.single_flop_s for each in rates),
        memory_bytes_s=max(each.memory_bytes_s for each in rates),
        units=1,  # without waves
        cache_bytes=max(each.cache_bytes for each in rates),
    )
    return replace(costs, rates=fastest, ranks=())


@lru_cache(maxsize=16)
def _measured(rows: tuple[tuple[float, ...], ...]) -> MeasuredProducts:
    return MeasuredProducts(rows)


def rates_of(device: Device) -> DeviceRates:
    """Return the rates of a device; f32 products run without tf32, as PyTorch's default is."""
    gpu = device.gpu
    return DeviceRates(
        half_flop_s=device.peak_flop_s("bf16"),
        single_flop_s=device.peak_flop_s("f32"),
        memory_bytes_s=device.memory_bytes_s,
        units=1 if gpu is None else gpu.units,
        cache_bytes=0.0 if gpu is None else gpu.l2_bytes,
        is_cpu=device.is_cpu,
        measured=_measured(device.products) if device.products else None,
    )
