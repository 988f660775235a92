"""Plans for a cluster that loses nodes, or devices of its only node, searched in advance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardc.compiler.local_cluster import with_devices
from shardc.cost.cluster.cluster import Cluster
from shardc.diagnostics.passes.search import NoPlanFound
from shardc.diagnostics.text import size_text, table
from shardc.planning.auto.kept import Answer
from shardc.planning.auto.searches import Searches
from shardc.planning.verdict import time_text
from shardc.runtime.check import Json


@dataclass(frozen=True)
class Left:
    """Remaining cluster and the search's answer for it; None if no plan fits."""

    cluster: Cluster
    answer: Answer | None


def left_of(cluster: Cluster, lost: int) -> list[Cluster]:
    """Return the clusters that remain after losing 1, 2, ... ``lost`` nodes; at least one stays.

    In a cluster of one node, devices are lost instead. Raises BadClusterSize for a cluster of fixed size.
    """
    ways = next((level.ways for level in reversed(cluster.levels) if level.ways > 1), 1)
    group = cluster.size // ways
    return [with_devices(cluster, (ways - gone) * group) for gone in range(1, min(lost, ways - 1) + 1)]


def plans_for_fewer(first: Left, lost: int, searches_on: Callable[[Cluster], Searches]) -> list[Left]:
    """Return ``first``, and the answers to the same question for each of the clusters that may remain."""
    found = [first]
    for cluster in left_of(first.cluster, lost):
        try:
            answer = searches_on(cluster).answer()
        except NoPlanFound:
            answer = None
        found.append(Left(cluster, answer))
    return found


def fewer_table(found: Sequence[Left]) -> list[str]:
    """Return the lines of a table with a row for each number of devices."""
    rows = [("devices", "cluster", "plan", "step", "peak of a device"), *map(_row, found)]
    return ["plans for fewer devices, for the same batch:", *table(rows, right=(0, 3, 4))]


def _row(left: Left) -> tuple[str, ...]:
    place, answer = (str(left.cluster.size), left.cluster.name), left.answer
    if answer is None:
        return *place, "none fits", "", ""
    return *place, answer.candidate.text, time_text(answer.seconds), size_text(answer.peak_bytes)


def fewer_json(found: Sequence[Left]) -> list[Json]:
    """Return the same table as JSON; ``plan`` is None if no plan fits."""
    return [_entry(left) for left in found]


def _entry(left: Left) -> Json:
    place, answer = {"devices": left.cluster.size, "cluster": left.cluster.name}, left.answer
    if answer is None:
        return {**place, "plan": None}
    candidate = answer.candidate
    return {
        **place,
        "recompute": "none",
        **candidate.options,
        "step_s": answer.seconds,
        "gap": answer.around.gap,
        "peak_bytes": answer.peak_bytes,
    }
