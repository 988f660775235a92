"""Collectives of a plan by source line: bytes, seconds, and how much of the time overlaps with kernels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from shardc.cost.cluster.mapping import Placement
from shardc.cost.collectives.seconds import seconds
from shardc.cost.step.exposed import exposed_s
from shardc.cost.step.on_cluster import costs_on
from shardc.cost.step.spans import spans_of_step
from shardc.cost.step.work import StepWork
from shardc.planning.price import Price
from shardc.report.source_lines import shown
from shardc.report.traffic import Transfer
from shardc.runtime.check import Json

Key = tuple[str, str, tuple[str, ...], str]
"""Phase, kind, axes and source line."""


def collective_rows(price: Price) -> list[Json]:
    """Return a row for each key, those with most bytes first.

    ``seconds``: time of the collective alone, None if unknown. ``exposed_s``: the part for which kernels
    wait; in a pipeline, summed over one rank of each stage.
    """
    placement = Placement.of(price.cluster, price.priced.candidate.mesh)
    rows: dict[Key, Json] = {}
    for t in price.priced.transfers:
        key = (t.phase, t.kind, t.axes, shown(t.where))
        names = dict(zip(("phase", "kind", "axes", "where"), key, strict=True))
        row = rows.setdefault(key, {**names, "times": 0, "bytes": 0.0, "seconds": 0.0})
        row["times"] += t.times
        row["bytes"] += t.bytes_moved
        taken = _seconds(t, placement)
        row["seconds"] = None if taken is None or row["seconds"] is None else row["seconds"] + taken
    waits = _waits(price)
    found = ({**row, "exposed_s": waits.get(key, 0.0)} for key, row in rows.items())
    return sorted(found, key=lambda row: -row["bytes"])


def _seconds(transfer: Transfer, placement: Placement) -> float | None:
    """Return a transfer's seconds; None for a collective over part of an axis, whose links are unknown."""
    sizes = dict(placement.axes)
    if transfer.ways != prod(sizes.get(axis, 0) for axis in transfer.axes):
        return None
    links = placement.links(transfer.axes)
    return transfer.times * seconds(transfer.kind, links, transfer.type.size_bytes)


def _waits(price: Price) -> dict[Key, float]:
    """Return the seconds for which kernels wait, by key."""
    priced = price.priced
    costs = costs_on(price.cluster, priced.candidate.mesh, priced.pipe)

    def of(step: StepWork) -> dict[Key, float]:
        found: dict[Key, float] = {}
        for rank in spans_of_step(step, costs, priced.schedule):
            for span, waited_s in zip(rank.items, exposed_s(rank), strict=True):
                item = span.item
                if item.kind == "collective":
                    names = tuple(dict.fromkeys(axis.name for axis in item.axes))
                    key = (item.phase, item.collective, names, shown(item.where))
                    found[key] = found.get(key, 0.0) + waited_s
        return found

    deeper: Sequence[dict[Key, float]] = [of(step) for step in priced.deeper]
    return priced.blend.sums(of(priced.step), deeper)
